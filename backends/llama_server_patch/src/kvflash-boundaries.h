#pragma once

#include "kvflash-pages.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

// Where a state that cannot be cut back is worth capturing while a prompt is processed: where prompts that
// came before it went another way. Pure.

class kvflash_history {
public:
    // Remembers the last `max_prompts` prompts, of at most `max_tokens` tokens together. Below `floor` tokens
    // nothing is captured, nor for the sake of fewer.
    kvflash_history(size_t floor, size_t max_prompts, size_t max_tokens) :
        floor(floor), max_prompts(max_prompts), max_tokens(max_tokens) {}

    // Ascending, each at least one token before the prompt's end, and at most `max_states`: those that would
    // have saved the remembered prompts the most tokens.
    std::vector<size_t> boundaries(const kvflash_seed & seed, const int32_t * tokens, size_t n, size_t max_states) const;

    void add(const kvflash_seed & seed, std::vector<int32_t> tokens);

private:
    struct prompt {
        kvflash_seed seed;
        std::vector<int32_t> tokens;
    };

    const size_t floor, max_prompts, max_tokens;
    size_t n_tokens = 0;
    std::deque<prompt> prompts; // the newest one last
};
