#include "server-gears.h"

#include "common.h"
#include "ggml-cpp.h"
#include "gguf.h"
#include "llama.h"
#include "speculative.h"

#include "../../src/llama-ext.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <vector>

using json = common_json;

namespace {

// The metadata of a drafter's file. A key that is missing, or of another type, is -1 or empty.
struct drafter_file {
    gguf_context_ptr gguf;
    std::string      arch;

    explicit drafter_file(const std::string & path) : gguf(gguf_init_from_file(path.c_str(), { /* .no_alloc = */ true, /* .ctx = */ nullptr })) {
        const int64_t id = gguf ? gguf_find_key(gguf.get(), "general.architecture") : -1;
        if (id >= 0 && gguf_get_kv_type(gguf.get(), id) == GGUF_TYPE_STRING) {
            arch = gguf_get_val_str(gguf.get(), id);
        }
    }

    int64_t number(const std::string & key) const {
        const int64_t id = gguf_find_key(gguf.get(), key.c_str());
        return id >= 0 && gguf_get_kv_type(gguf.get(), id) == GGUF_TYPE_UINT32 ? (int64_t) gguf_get_val_u32(gguf.get(), id) : -1;
    }

    size_t length(const std::string & key) const {
        const int64_t id = gguf_find_key(gguf.get(), key.c_str());
        return id >= 0 && gguf_get_kv_type(gguf.get(), id) == GGUF_TYPE_ARRAY ? gguf_get_arr_n(gguf.get(), id) : 0;
    }

    // upstream reads both kinds as int32_t
    std::vector<int32_t> numbers(const std::string & key) const {
        const size_t n = length(key);
        const int64_t id = gguf_find_key(gguf.get(), key.c_str());
        if (n == 0 || (gguf_get_arr_type(gguf.get(), id) != GGUF_TYPE_INT32 && gguf_get_arr_type(gguf.get(), id) != GGUF_TYPE_UINT32)) {
            return {};
        }
        const auto * data = (const int32_t *) gguf_get_arr_data(gguf.get(), id);
        return { data, data + n };
    }
};

struct gears {
    std::mutex mutex;
    std::vector<std::string> types;
    int32_t n_max = 0;
};

} // namespace

static gears & instance() {
    static gears found;
    return found;
}

static bool has_type(const common_params_speculative & params, common_speculative_type type) {
    return std::find(params.types.begin(), params.types.end(), type) != params.types.end();
}

static std::string arch_of(const llama_model * model) {
    char name[64] = {};
    return llama_model_meta_val_str(model, "general.architecture", name, sizeof(name)) < 0 ? "unknown" : name;
}

// What DFlash and DSpark need beyond the target's layers: they share its embeddings, head and tokens.
static std::string check_block_drafter(const std::string & named, const drafter_file & drafter, const llama_model * model) {
    if (drafter.arch != "dflash") {
        return named + " is of architecture " + drafter.arch + "; draft-dflash and draft-dspark need a drafter of architecture dflash: use --spec-type draft-simple";
    }
    const int64_t width = drafter.number("dflash.embedding_length");
    if (width >= 0 && width != llama_model_n_embd(model)) {
        return named + " is " + std::to_string(width) + " wide and the target " + std::to_string(llama_model_n_embd(model)) +
            "; give the drafter that was made for this target";
    }
    const int64_t n_tokens = (int64_t) drafter.length("tokenizer.ggml.tokens");
    const int64_t n_vocab  = llama_vocab_n_tokens(llama_model_get_vocab(model));
    if (n_tokens > n_vocab) {
        return named + " has " + std::to_string(n_tokens) + " tokens and the target " + std::to_string(n_vocab) +
            "; give the drafter that was made for this target";
    }
    const int64_t mask = drafter.number("tokenizer.ggml.mask_token_id");
    if (mask < 0 || mask >= n_tokens) {
        return named + (mask < 0 ? " names no mask token" : " names token " + std::to_string(mask) + " as its mask, which it does not have") +
            "; convert it again with the tokenizer of its target";
    }
    return "";
}

std::string server_gears_check(const common_params_speculative & params, llama_context * target) {
    const bool is_block = has_type(params, COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH) || has_type(params, COMMON_SPECULATIVE_TYPE_DRAFT_DSPARK);
    if (!params.has_dft() || !(is_block || has_type(params, COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3))) {
        return "";
    }
    const drafter_file drafter(params.draft.mparams.path);
    if (drafter.arch.empty()) {
        return ""; // upstream says why it cannot be loaded
    }
    const std::string named = "the drafter (-md " + params.draft.mparams.path + ")";
    const llama_model * model = llama_get_model(target);
    if (is_block) {
        const std::string error = check_block_drafter(named, drafter, model);
        if (!error.empty()) {
            return error;
        }
    }

    const int32_t n_layer = llama_model_n_layer(model);
    std::vector<int32_t> layers;
    for (const int32_t layer : drafter.numbers(drafter.arch + ".target_layers")) {
        if (layer < 0 || layer > n_layer) {
            return named + " reads layer " + std::to_string(layer) + " of a target that has " + std::to_string(n_layer) +
                " layers; give the drafter that was made for this target";
        }
        if (is_block || layer < n_layer) { // EAGLE-3 reads what the last layer gives in another way
            layers.push_back(layer);
        }
    }
    const int32_t missing = llama_missing_layer_inp(target, layers.data(), layers.size());
    if (missing >= 0) {
        return named + " reads layer " + std::to_string(missing) + " of the target, which llama.cpp does not give out for a target of architecture " +
            arch_of(model) + " with " + std::to_string(n_layer) + " layers; use another target, --spec-type draft-simple with a small model of the same vocabulary, or --spec-type none";
    }
    return "";
}

int32_t server_gears_read(const json & value) {
    if (!value.is_number_integer() || value.get<double>() < 0.0 || value.get<double>() > (double) INT32_MAX) {
        throw std::invalid_argument("it must be a whole number from 0 to " + std::to_string(INT32_MAX));
    }
    return value.get<int32_t>();
}

void server_gears_started(const common_params_speculative & params, const common_speculative * speculator) {
    std::vector<std::string> types;
    if (speculator) {
        for (const auto type : params.types) {
            if (type != COMMON_SPECULATIVE_TYPE_NONE) { // stands before those that -md alone adds
                types.push_back(common_speculative_type_to_str(type));
            }
        }
    }
    auto & gears = instance();
    const std::lock_guard<std::mutex> lock(gears.mutex);
    gears.types = std::move(types);
    gears.n_max = common_speculative_n_max(speculator);
}

json server_gears_props() {
    auto & gears = instance();
    const std::lock_guard<std::mutex> lock(gears.mutex);
    return json { { "types", gears.types }, { "n_max", gears.n_max } };
}
