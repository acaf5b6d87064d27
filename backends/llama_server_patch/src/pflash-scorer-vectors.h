#pragma once

#include "ggml.h"

#include <cstdint>
#include <vector>

// Reads keys and queries from the inputs of flash attention nodes, without the positions that are turned into
// them: what was read at different places, or in different passes, then compares. No llama objects.

// The rotation by position (RoPE) of a layer, as its graph has it; none where the graph has none.
struct pflash_rotation {
    std::vector<int32_t> params;
    std::vector<float>   factors;  // of the frequencies, where the model has them
    int64_t n_dims  = 0;           // of the heads that it turns
    bool    by_parts = false;      // positions of several dimensions, which are not undone

    void see(const ggml_tensor * rope);
};

struct pflash_rows {
    int64_t n_dims  = 0;
    int64_t n_heads = 0;
    std::vector<float> values; // [token][head][dim]
};

// Rows [begin, end) of keys or queries of a flash attention node; the first one's position is `position`.
// Empty where the layout or the rotation is another.
pflash_rows pflash_read_rows(const ggml_tensor * tensor, int64_t begin, int64_t end, int64_t position, const pflash_rotation & rotation);
