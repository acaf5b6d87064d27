#pragma once

#include "flashlane-args.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// Which idle prefixes leave the KV cache, and whether a request may start. Pure.

struct kvflash_idle {
    size_t  n_tokens  = 0;
    int64_t last_used = 0;    // by any one clock
    float   score     = 0.0f; // how much better than others it matches what is being asked; not finite: not known
};

// The prefixes to evict, the first one first, so that those left hold at most `budget` tokens. By `lru` those
// used longest ago. By the others first all that do not match, of which the score is not known or at most 0,
// those used longest ago first, then the rest, the lowest score first. So one that is not known yet never stays
// in place of one that matches, and is no worse off than one that does not.
std::vector<uint32_t> kvflash_victims(kvflash_policy policy, const std::vector<kvflash_idle> & idle, size_t budget);

struct kvflash_load {
    size_t capacity = 0; // cells of the KV cache
    size_t budget   = 0; // tokens that idle prefixes may hold
    size_t active   = 0; // tokens that running requests hold or are promised
};

struct kvflash_admission {
    bool   admitted = false;
    size_t idle_left = 0; // tokens that idle prefixes may keep hold of while it runs
};

// A request that needs `n_needed` cells (what it goes on from included) starts when these and those of the
// running requests fit; idle prefixes make room. While nothing runs it always starts: a server that is idle
// never waits for itself.
kvflash_admission kvflash_admit(const kvflash_load & load, size_t n_needed);
