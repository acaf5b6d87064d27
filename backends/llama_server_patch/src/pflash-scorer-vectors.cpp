#include "pflash-scorer-vectors.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"

#include <cstring>
#include <numeric>

void pflash_rotation::see(const ggml_tensor * rope) {
    params.assign(rope->op_params, rope->op_params + GGML_MAX_OP_PARAMS/sizeof(int32_t));
    n_dims   = rope->ne[0];
    by_parts = rope->ne[2] != rope->src[1]->ne[0];
    factors.resize(rope->src[2] ? rope->src[2]->ne[0] : 0);
    if (!factors.empty()) {
        ggml_backend_tensor_get(rope->src[2], factors.data(), 0, factors.size()*sizeof(float));
    }
}

// Turns rows of ascending positions back.
static bool undo(const pflash_rotation & rotation, int64_t first, pflash_rows & rows) {
    if (rotation.params.empty()) {
        return true;
    }
    if (rotation.by_parts || rotation.n_dims != rows.n_dims) {
        return false;
    }
    const int64_t n_tokens = (int64_t) rows.values.size()/(rows.n_dims*rows.n_heads);
    const size_t  n_bytes  = 2*rows.values.size()*sizeof(float) + (n_tokens + rotation.factors.size())*sizeof(float);
    ggml_context_ptr ctx(ggml_init({ n_bytes + ggml_graph_overhead() + 16*ggml_tensor_overhead() + (1u << 20), nullptr, false }));
    if (!ctx) {
        return false;
    }
    ggml_tensor * turned = ggml_new_tensor_3d(ctx.get(), GGML_TYPE_F32, rows.n_dims, rows.n_heads, n_tokens);
    ggml_tensor * where  = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, n_tokens);
    ggml_tensor * factors = nullptr;
    memcpy(turned->data, rows.values.data(), ggml_nbytes(turned));
    std::iota((int32_t *) where->data, (int32_t *) where->data + n_tokens, (int32_t) first);
    if (!rotation.factors.empty()) {
        factors = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, rotation.factors.size());
        memcpy(factors->data, rotation.factors.data(), ggml_nbytes(factors));
    }
    ggml_tensor * plain = ggml_rope_ext_back(ctx.get(), turned, where, factors, rotation.params[1], rotation.params[2], 0, 0, 0, 0, 0, 0, 0);
    memcpy(plain->op_params, rotation.params.data(), rotation.params.size()*sizeof(int32_t));
    ggml_cgraph * graph = ggml_new_graph(ctx.get());
    ggml_build_forward_expand(graph, plain);
    if (ggml_graph_compute_with_ctx(ctx.get(), graph, 1) != GGML_STATUS_SUCCESS) {
        return false;
    }
    memcpy(rows.values.data(), plain->data, ggml_nbytes(plain));
    return true;
}

pflash_rows pflash_read_rows(const ggml_tensor * tensor, int64_t begin, int64_t end, int64_t position, const pflash_rotation & rotation) {
    pflash_rows rows;
    if ((tensor->type != GGML_TYPE_F32 && tensor->type != GGML_TYPE_F16) || tensor->ne[1] < end || tensor->ne[3] != 1 || begin >= end) {
        return rows;
    }
    rows.n_dims  = tensor->ne[0];
    rows.n_heads = tensor->ne[2];
    rows.values.resize((end - begin)*rows.n_heads*rows.n_dims);
    std::vector<uint8_t> data((end - begin - 1)*tensor->nb[1] + (rows.n_heads - 1)*tensor->nb[2] + ggml_row_size(tensor->type, rows.n_dims));
    ggml_backend_tensor_get(tensor, data.data(), begin*tensor->nb[1], data.size());
    for (int64_t i = 0; i < end - begin; i++) {
        for (int64_t head = 0; head < rows.n_heads; head++) {
            const uint8_t * row = data.data() + i*tensor->nb[1] + head*tensor->nb[2];
            float * out = rows.values.data() + (i*rows.n_heads + head)*rows.n_dims;
            if (tensor->type == GGML_TYPE_F16) {
                ggml_fp16_to_fp32_row((const ggml_fp16_t *) row, out, rows.n_dims);
            } else {
                memcpy(out, row, rows.n_dims*sizeof(float));
            }
        }
    }
    if (!undo(rotation, position, rows)) {
        rows = {};
    }
    return rows;
}
