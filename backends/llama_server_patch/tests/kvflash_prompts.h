#pragma once

#include "kvflash-pages.h"

#include <string>
#include <vector>

// Seeds and prompts for the checks of KVFlash.

using tokens = std::vector<int32_t>;

inline kvflash_seed seed_of(const std::string & text) {
    kvflash_seed made;
    made.add(text.data(), text.size());
    return made;
}

// `n` tokens from `first` on.
inline tokens counted(int32_t first, size_t n) {
    tokens made(n);
    for (size_t i = 0; i < n; i++) {
        made[i] = first + (int32_t) i;
    }
    return made;
}

inline tokens joined(tokens a, const tokens & b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
