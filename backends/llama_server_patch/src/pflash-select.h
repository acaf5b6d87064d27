#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The pure part of PFlash: which tokens of a prompt stay. No llama objects, no I/O, no clock.
// Positions are token indices; `protect[i]` non-zero means that token i must stay.

struct pflash_block {
    size_t begin = 0;
    size_t end   = 0; // exclusive
};

// Cuts the unprotected tokens into blocks of about `block_tokens`, each in one unprotected run.
// A block starts only where `char_start[i]` is non-zero: no character is cut in half.
std::vector<pflash_block> pflash_blocks(
        const std::vector<uint8_t> & protect,
        const std::vector<uint8_t> & char_start,
        size_t block_tokens);

// Scores that spread any share of the blocks evenly over the prompt, the first and the last on top.
// Source: the golden ratio sequence, whose every prefix is evenly spread in [0, 1).
std::vector<float> pflash_uniform_scores(size_t n_blocks);

// Indices to keep, ascending: everything protected, and the best blocks while they fit into
// `budget` unprotected tokens. Equal scores go to the earlier block; a NaN score is never kept.
std::vector<int32_t> pflash_select(
        const std::vector<float>        & scores,
        const std::vector<pflash_block> & blocks,
        const std::vector<uint8_t>      & protect,
        size_t budget);

// Unprotected tokens to keep: ceil(ratio * compressible), raised so that the whole prompt keeps
// at least `min_keep`. Never more than there are.
size_t pflash_budget(size_t n_tokens, size_t n_compressible, float keep_ratio, size_t min_keep);

// Empty if `keep` is an ordered proper subsequence of [0, n) that holds everything protected and
// at most `budget` unprotected tokens; else what is wrong with it.
std::string pflash_validate(
        const std::vector<int32_t> & keep,
        const std::vector<uint8_t> & protect,
        size_t budget);
