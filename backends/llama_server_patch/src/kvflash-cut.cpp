#include "kvflash-cut.h"

#include <algorithm>

int32_t kvflash_pos_min(const kvflash_cutting & how, size_t n_tokens) {
    const int64_t n = (int64_t) n_tokens;
    return how.anywhere() ? 0 : (int32_t) std::max<int64_t>(0, how.recurrent ? n - 1 : n - how.n_swa);
}

size_t kvflash_cut(const kvflash_cutting & how, const kvflash_view & state, int32_t pos_min, size_t n_common) {
    if (n_common >= state.n_tokens) {
        return state.n_tokens;
    }
    const int64_t n = (int64_t) n_common;
    const auto reaches = [&](int64_t from) { return from == 0 || from < n - how.n_swa; };
    if (how.anywhere() || reaches(pos_min)) {
        return n_common;
    }
    int64_t best = 0;
    for (const auto & c : state.checkpoints) {
        if (c.pos_max <= n && reaches(c.pos_min)) {
            // of a window, the last token is processed once more
            best = std::max(best, std::min({ n, c.n_tokens, (int64_t) std::max(c.pos_min + 1, c.pos_max) }));
        }
    }
    return (size_t) best;
}
