#pragma once

#include "kvflash-record.h"

#include <cstddef>
#include <cstdint>

// How far back a state can be cut, by the rules that llama-server itself goes by. Pure.

struct kvflash_cutting {
    bool    recurrent = false; // the memory, or a part of it
    int32_t n_swa     = 0;     // window of attention, 0: none

    bool anywhere() const { return !recurrent && n_swa == 0; }
};

// The lowest position that is there in every part of the memory after a state of `n_tokens` was restored: of a
// window, no more than what the next token sees is kept.
int32_t kvflash_pos_min(const kvflash_cutting & how, size_t n_tokens);

// How many of its first `n_common` tokens are left of a state when it is cut back, by itself or to one of its
// checkpoints. `pos_min` is the lowest position that is there.
size_t kvflash_cut(const kvflash_cutting & how, const kvflash_view & state, int32_t pos_min, size_t n_common);
