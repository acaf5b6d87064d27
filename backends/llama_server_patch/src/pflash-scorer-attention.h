#pragma once

#include "ggml.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

// Reads the attention of a question's tokens from the inputs of flash attention nodes. No llama objects.

// The batch holds [start][window][question][null question]; start and window are the context. Both tails
// see the context and themselves, never each other; tail i is sequence i.
enum pflash_tail : int32_t { PFLASH_TAIL_QUESTION, PFLASH_TAIL_NULL, PFLASH_N_TAILS };

// What is read while one window is decoded.
struct pflash_reading {
    int32_t n_start   = 0;                    // tokens that take the attention that belongs to none
    int32_t n_context = 0;                    // tokens before the tails
    int32_t n_tail[PFLASH_N_TAILS] = {};
    int32_t n_heads = 0;
    std::vector<float> best[PFLASH_N_TAILS];  // [layer][head][token of the window]: the largest log attention of the
                                              // tail's tokens, normalised over the window alone
    std::string error;
    int64_t host_us = 0;
};

// exp(x) for x <= 0, without branches or calls so that loops over it become vector code.
// 2^f for |f| <= 0.5 by the Taylor series of exp(f ln 2) up to the fifth power: relative error below 1e-5.
inline float pflash_exp_negative(float x) {
    const float y = (x > -80.0f ? x : -80.0f)*1.44269504f;
    const float whole = (float) (int32_t) (y - 0.5f); // to nearest, for y <= 0
    const float f = (y - whole)*0.693147181f;
    const float power = 1.0f + f*(1.0f + f*(0.5f + f*(0.166666667f + f*(0.0416666667f + f*0.00833333333f))));
    const int32_t bits = ((int32_t) whole + 127)*(1 << 23);
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return power*scale;
}

// The layer whose cached keys a flash attention node reads; -1 if it reads no key cache.
int32_t pflash_attention_layer(const ggml_tensor * node);

// Whether the last token of tail `tail` sees the whole context and all of its own tail, and nothing else,
// without a bias by distance (ALiBi).
// This also proves that the cells lie in the order of the batch.
bool pflash_attention_is_global(const ggml_tensor * node, const pflash_reading & reading, pflash_tail tail);

// Fills layer `slot` of reading.best. Failure is told in reading.error.
void pflash_read_attention(const ggml_tensor * node, size_t slot, pflash_reading & reading);
