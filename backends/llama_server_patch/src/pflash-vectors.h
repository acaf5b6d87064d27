#pragma once

#include <cstddef>
#include <vector>

// Keys or queries of the layers whose attention the scorer reads, without the positions that were turned into
// them. The dot product of a query and a key is their attention logit at no distance; head `h` of the queries
// asks head `h*keys.n_heads/queries.n_heads` of the keys.
struct pflash_vectors {
    size_t n_rows   = 0;
    size_t n_layers = 0, n_heads = 0, n_dims = 0;
    std::vector<float> values; // [row][layer][head][dim]
};
