#include "pflash-scorer-impl.h"

#include "pflash-scorer-text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

void pflash_attention_scorer::impl::read_rows(const ggml_tensor * node, size_t slot) {
    const int32_t n_asked = current.n_tail[PFLASH_TAIL_QUESTION];
    if (!pflash_attention_is_global(node, current, PFLASH_TAIL_NULL)) {
        current.error = "layout";
        return;
    }
    if (kind == PFLASH_READ_KEYS) {
        rows[0][slot] = pflash_read_rows(node->src[1], current.n_start, current.n_context, current.n_start, rotation);
    } else {
        float scale;
        memcpy(&scale, node->op_params, sizeof(scale));
        const int32_t begin = current.n_context;
        const int32_t plain = begin + n_asked;
        rows[PFLASH_TAIL_QUESTION][slot] = pflash_read_rows(node->src[0], begin, plain, begin, rotation);
        rows[PFLASH_TAIL_NULL][slot] = pflash_read_rows(node->src[0], plain, plain + current.n_tail[PFLASH_TAIL_NULL], begin, rotation);
        for (auto & of_layers : rows) {
            for (float & value : of_layers[slot].values) {
                value *= scale;
            }
        }
    }
}

// The shape of what every layer gave; throws where they differ, or gave nothing.
static pflash_vectors shape_of(const std::vector<pflash_rows> & layers, size_t n_rows) {
    pflash_vectors shape;
    shape.n_rows   = n_rows;
    shape.n_layers = layers.size();
    shape.n_heads  = layers[0].n_heads;
    shape.n_dims   = layers[0].n_dims;
    for (const auto & layer : layers) {
        if (layer.values.empty() || (size_t) layer.n_heads != shape.n_heads || (size_t) layer.n_dims != shape.n_dims) {
            throw std::runtime_error("layout");
        }
    }
    shape.values.resize(n_rows*shape.n_layers*shape.n_heads*shape.n_dims);
    return shape;
}

static void check_finite(const pflash_vectors & vectors) {
    if (!std::all_of(vectors.values.begin(), vectors.values.end(), [](float value) { return std::isfinite(value); })) {
        throw std::runtime_error("nan");
    }
}

pflash_vectors pflash_attention_scorer::impl::mean_keys(std::string_view text, const std::vector<size_t> & part_end) {
    const auto tokens = pflash_tokenize(vocab, text, [this] { check(); });
    if (tokens.id.empty()) {
        throw std::runtime_error("vocabulary");
    }
    pflash_vectors sums;
    std::vector<size_t> n_summed(part_end.size());
    for (size_t begin = 0; begin < tokens.id.size();) {
        const size_t end = pflash_window_end(text, tokens, begin, info.window);
        check();
        decode(PFLASH_READ_KEYS, tokens.id.data() + begin, (int32_t) (end - begin), {});
        if (begin == 0) {
            sums = shape_of(rows[0], part_end.size());
        } else {
            shape_of(rows[0], 0);
        }
        const size_t n_row = sums.n_heads*sums.n_dims;
        for (size_t i = begin; i < end; i++) {
            const size_t offset = i == 0 ? 0 : tokens.end[i - 1];
            const size_t part = std::upper_bound(part_end.begin(), part_end.end(), offset) - part_end.begin();
            if (part == part_end.size()) {
                continue; // a token without bytes at the text's end
            }
            n_summed[part]++;
            for (size_t layer = 0; layer < sums.n_layers; layer++) {
                const float * key = rows[0][layer].values.data() + (i - begin)*n_row;
                float * sum = sums.values.data() + (part*sums.n_layers + layer)*n_row;
                for (size_t j = 0; j < n_row; j++) {
                    sum[j] += key[j];
                }
            }
        }
        begin = end;
    }
    const size_t n_part = sums.n_layers*sums.n_heads*sums.n_dims;
    for (size_t i = 0; i < sums.values.size(); i++) {
        sums.values[i] /= std::max<size_t>(1, n_summed[i/n_part]);
    }
    check_finite(sums);
    return sums;
}

pflash_vectors pflash_attention_scorer::impl::queries(std::string_view question, pflash_vectors & plain) {
    decode(PFLASH_READ_QUERIES, nullptr, 0, question_tail(question));
    pflash_vectors found[PFLASH_N_TAILS];
    for (int32_t tail = 0; tail < PFLASH_N_TAILS; tail++) {
        auto & vectors = found[tail];
        vectors = shape_of(rows[tail], current.n_tail[tail]);
        const size_t n_row = vectors.n_heads*vectors.n_dims;
        for (size_t i = 0; i < vectors.n_rows; i++) {
            for (size_t layer = 0; layer < vectors.n_layers; layer++) {
                std::copy_n(rows[tail][layer].values.data() + i*n_row, n_row, vectors.values.data() + (i*vectors.n_layers + layer)*n_row);
            }
        }
        check_finite(vectors);
    }
    plain = std::move(found[PFLASH_TAIL_NULL]);
    return std::move(found[PFLASH_TAIL_QUESTION]);
}

pflash_vectors pflash_attention_scorer::mean_keys(
        std::string_view text, const std::vector<size_t> & part_end, int64_t deadline_us, const std::function<bool()> & cancelled) {
    const auto turn = self->begin(deadline_us, cancelled);
    return self->mean_keys(text, part_end);
}

pflash_vectors pflash_attention_scorer::queries(
        std::string_view question, pflash_vectors & plain, int64_t deadline_us, const std::function<bool()> & cancelled) {
    const auto turn = self->begin(deadline_us, cancelled);
    return self->queries(question, plain);
}
