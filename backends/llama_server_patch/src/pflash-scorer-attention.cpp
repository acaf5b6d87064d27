#include "pflash-scorer-attention.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

int32_t pflash_attention_layer(const ggml_tensor * node) {
    static const char prefix[] = "cache_k_l";
    const ggml_tensor * keys = node->src[1];
    const char * name = keys->view_src ? keys->view_src->name : keys->name;
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0 ? atoi(name + sizeof(prefix) - 1) : -1;
}

bool pflash_attention_is_global(const ggml_tensor * node, const pflash_reading & reading, pflash_tail tail) {
    const ggml_tensor * mask = node->src[3];
    float max_bias;
    memcpy(&max_bias, (const float *) node->op_params + 1, sizeof(max_bias));
    if (mask == nullptr || mask->type != GGML_TYPE_F16 || max_bias != 0.0f) {
        return false;
    }
    const int32_t begin = reading.n_context + (tail == PFLASH_TAIL_NULL ? reading.n_tail[PFLASH_TAIL_QUESTION] : 0);
    const int32_t end   = begin + reading.n_tail[tail];
    if (mask->ne[0] < end || mask->ne[1] < end) {
        return false;
    }
    std::vector<ggml_fp16_t> cells(mask->ne[0]);
    ggml_backend_tensor_get(mask, cells.data(), (end - 1)*mask->nb[1], cells.size()*sizeof(ggml_fp16_t));
    for (int32_t i = 0; i < (int32_t) cells.size(); i++) {
        const bool expected = i < reading.n_context || (i >= begin && i < end);
        if (std::isinf(ggml_fp16_to_fp32(cells[i])) == expected) {
            return false;
        }
    }
    return true;
}

// Rows [begin, end) of dimension 1 with all of dimension 2, byte for byte as they lie in the backend.
static std::vector<uint8_t> read_rows(const ggml_tensor * tensor, int64_t begin, int64_t end) {
    const size_t size = (end - begin - 1)*tensor->nb[1] + (tensor->ne[2] - 1)*tensor->nb[2] + ggml_row_size(tensor->type, tensor->ne[0]);
    std::vector<uint8_t> data(size);
    ggml_backend_tensor_get(tensor, data.data(), begin*tensor->nb[1], size);
    return data;
}

static float log_sum_exp(const float * x, int32_t n) {
    const float largest = *std::max_element(x, x + n);
    float sum[8] = {};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int32_t j = 0; j < 8; j++) {
            sum[j] += pflash_exp_negative(x[i + j] - largest);
        }
    }
    for (; i < n; i++) {
        sum[0] += pflash_exp_negative(x[i] - largest);
    }
    float total = 0.0f;
    for (const float part : sum) {
        total += part;
    }
    return largest + std::log(total);
}

void pflash_read_attention(const ggml_tensor * node, size_t slot, pflash_reading & r) {
    const ggml_tensor * q = node->src[0];
    const ggml_tensor * k = node->src[1];
    const int32_t n_tails  = r.n_tail[PFLASH_TAIL_QUESTION] + r.n_tail[PFLASH_TAIL_NULL];
    const int32_t n_keys   = r.n_context + n_tails;
    const int32_t n_heads  = (int32_t) q->ne[2];
    const int32_t n_shared = n_heads/(int32_t) k->ne[2]; // query heads for each head of keys
    const int32_t n_dims   = (int32_t) q->ne[0];

    if (q->type != GGML_TYPE_F32 || k->type != GGML_TYPE_F16 || q->ne[1] != n_keys || k->ne[1] < n_keys || k->ne[3] != 1) {
        r.error = "layout";
        return;
    }
    if (!pflash_attention_is_global(node, r, PFLASH_TAIL_QUESTION) || !pflash_attention_is_global(node, r, PFLASH_TAIL_NULL)) {
        r.error = "layout";
        return;
    }
    float scale;
    float softcap;
    memcpy(&scale,   (const float *) node->op_params + 0, sizeof(scale));
    memcpy(&softcap, (const float *) node->op_params + 2, sizeof(softcap));

    const auto queries = read_rows(q, r.n_context, n_keys);
    const auto keys    = read_rows(k, r.n_start, r.n_context);
    const auto * f16   = ggml_get_type_traits_cpu(GGML_TYPE_F16);

    const int32_t n_window = r.n_context - r.n_start;
    r.n_heads = n_heads;
    for (auto & best : r.best) {
        best.resize((slot + 1)*n_heads*n_window, -std::numeric_limits<float>::infinity());
    }
    std::vector<ggml_fp16_t> query(n_dims);
    std::vector<float> logits(n_window);
    for (int32_t head = 0; head < n_heads; head++) {
        const uint8_t * head_keys = keys.data() + (head/n_shared)*k->nb[2];
        for (int32_t row = 0; row < n_tails; row++) {
            f16->from_float((const float *) (queries.data() + row*q->nb[1] + head*q->nb[2]), query.data(), n_dims);
            for (int32_t i = 0; i < n_window; i++) {
                f16->vec_dot(n_dims, &logits[i], 0, head_keys + i*k->nb[1], 0, query.data(), 0, 1);
            }
            for (float & logit : logits) {
                logit *= scale;
            }
            if (softcap != 0.0f) {
                for (float & logit : logits) {
                    logit = softcap*std::tanh(logit/softcap);
                }
            }
            if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); })) {
                r.error = "nan";
                return;
            }
            const float total = log_sum_exp(logits.data(), n_window);
            const auto  tail  = row < r.n_tail[PFLASH_TAIL_QUESTION] ? PFLASH_TAIL_QUESTION : PFLASH_TAIL_NULL;
            float * best = r.best[tail].data() + (slot*n_heads + head)*(size_t) n_window;
            for (int32_t i = 0; i < n_window; i++) {
                best[i] = std::max(best[i], logits[i] - total);
            }
        }
    }
}
