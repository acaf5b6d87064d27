#include "server-kvflash-seed.h"

#include "build-info.h"
#include "common.h"
#include "kvflash-record.h"

#include "llama.h"

#include <algorithm>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void add_text(kvflash_seed & seed, const std::string & text) {
    seed.add(text.data(), text.size());
}

template <typename T>
static void add_value(kvflash_seed & seed, T value) {
    seed.add(&value, sizeof(value));
}

// Every byte of the file, since models that differ anywhere have other states. Pages that loading has read
// already come from memory.
static bool add_file(kvflash_seed & seed, const std::string & path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0 || about.st_size <= 0) {
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    void * data = mmap(nullptr, about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED) {
        return false;
    }
    add_value(seed, (uint64_t) about.st_size);
    add_value(seed, kvflash_checksum((const uint8_t *) data, about.st_size));
    munmap(data, about.st_size);
    return true;
}

// The files of a model that is split over several: "-00001-of-00004.gguf".
static std::vector<std::string> files_of(const std::string & path) {
    std::vector<std::string> files;
    const size_t mark = path.find("-00001-of-");
    if (mark == std::string::npos) {
        return { path };
    }
    const int n = atoi(path.c_str() + mark + 10);
    for (int i = 1; i <= n; i++) {
        char number[16];
        snprintf(number, sizeof(number), "-%05d-of-", i);
        files.push_back(path.substr(0, mark) + number + path.substr(mark + 10));
    }
    return files;
}

// Some models turn to other rotary factors where the context is longer than what they were trained on.
static bool is_stretched(const common_params & params, const llama_context * ctx) {
    const llama_model * model = llama_get_model(ctx);
    char arch[128] = {}, length[32] = {};
    llama_model_meta_val_str(model, "general.architecture", arch, sizeof(arch));
    const std::string key = std::string(arch) + ".rope.scaling.original_context_length";
    const bool named = llama_model_meta_val_str(model, key.c_str(), length, sizeof(length)) > 0;
    const int64_t trained = named ? atoll(length) : llama_model_n_ctx_train(model);
    return llama_n_ctx_seq(ctx) > (params.yarn_orig_ctx > 0 ? params.yarn_orig_ctx : trained);
}

static void add_model(kvflash_seed & seed, const llama_context * ctx) {
    char about[256] = {};
    llama_model_desc(llama_get_model(ctx), about, sizeof(about));
    add_text(seed, about);
    add_value(seed, llama_model_size(llama_get_model(ctx)));
    add_value(seed, llama_n_rs_seq(ctx));
}

static void add_override(kvflash_seed & seed, const llama_model_kv_override & o) {
    add_text(seed, o.key);
    add_value(seed, (int32_t) o.tag);
    switch (o.tag) {
        case LLAMA_KV_OVERRIDE_TYPE_INT:   add_value(seed, o.val_i64);  break;
        case LLAMA_KV_OVERRIDE_TYPE_FLOAT: add_value(seed, o.val_f64);  break;
        case LLAMA_KV_OVERRIDE_TYPE_BOOL:  add_value(seed, o.val_bool); break;
        case LLAMA_KV_OVERRIDE_TYPE_STR:   add_text(seed, o.val_str);   break;
    }
}

static void add_params(kvflash_seed & seed, const common_params & params) {
    for (const auto type : { params.cache_type_k, params.cache_type_v }) {
        add_value(seed, (int32_t) type);
    }
    add_value(seed, (int32_t) params.flash_attn_type);
    add_value(seed, (int32_t) params.rope_scaling_type);
    for (const float value : { params.rope_freq_base, params.rope_freq_scale, params.yarn_ext_factor, params.yarn_attn_factor,
            params.yarn_beta_fast, params.yarn_beta_slow }) {
        add_value(seed, value);
    }
    add_value(seed, (int32_t) params.yarn_orig_ctx);
    add_value(seed, (int32_t) params.grp_attn_n);
    add_value(seed, (int32_t) params.grp_attn_w);
    add_value(seed, params.swa_full);
    add_value(seed, params.kv_unified);
    for (const auto & o : params.kv_overrides) {
        add_override(seed, o);
    }
    for (const auto & vector : params.control_vectors) {
        add_text(seed, vector.fname);
        add_value(seed, vector.strength);
    }
    add_value(seed, params.control_vector_layer_start);
    add_value(seed, params.control_vector_layer_end);
}

static void add_draft(kvflash_seed & seed, const common_params_speculative & params, const llama_context * draft) {
    add_model(seed, draft);
    for (const auto type : params.types) {
        add_value(seed, (int32_t) type);
    }
    for (const auto type : { params.draft.cache_type_k, params.draft.cache_type_v }) {
        add_value(seed, (int32_t) type);
    }
}

std::string kvflash_fingerprint_of(
        const common_params & params, const llama_context * target, const llama_context * draft, bool files,
        kvflash_fingerprint & fingerprint) {
    auto & base = fingerprint.base;
    add_text(base, llama_build_info());
    add_model(base, target);
    add_value(base, is_stretched(params, target));
    add_params(base, params);
    add_value(base, draft != nullptr);
    if (draft) {
        add_draft(base, params.speculative, draft);
    }
    for (const auto & adapter : params.lora_adapters) {
        auto & seed = fingerprint.adapters.emplace_back();
        if (!files) {
            add_text(seed, adapter.path);
        } else if (!add_file(seed, adapter.path)) {
            return adapter.path;
        }
    }
    if (!files) {
        return ""; // within one process they stay the same
    }
    std::vector<std::string> paths = files_of(params.model.path);
    if (draft && !params.speculative.draft.mparams.path.empty()) {
        const auto drafts = files_of(params.speculative.draft.mparams.path);
        paths.insert(paths.end(), drafts.begin(), drafts.end());
    }
    for (const auto & vector : params.control_vectors) {
        paths.push_back(vector.fname);
    }
    const auto bad = std::find_if_not(paths.begin(), paths.end(), [&](const auto & path) { return add_file(base, path); });
    return bad == paths.end() ? "" : *bad;
}

kvflash_seed kvflash_fingerprint::with(const std::vector<common_adapter_lora_info> & lora) const {
    kvflash_seed seed = base;
    for (size_t i = 0; i < lora.size(); i++) {
        if (lora[i].scale != 0.0f) {
            add_value(seed, adapters.at(i));
            add_value(seed, lora[i].scale);
        }
    }
    return seed;
}
