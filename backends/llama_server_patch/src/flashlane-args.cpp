#include "flashlane-args.h"

#include "arg.h"
#include "common.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

flashlane_params & flashlane_params_get() {
    static flashlane_params params;
    return params;
}

const char * pflash_mode_name(pflash_mode mode) {
    switch (mode) {
        case PFLASH_MODE_OFF:    return "off";
        case PFLASH_MODE_AUTO:   return "auto";
        case PFLASH_MODE_ALWAYS: return "always";
    }
    return "";
}

const char * pflash_scorer_name(pflash_scorer scorer) {
    switch (scorer) {
        case PFLASH_SCORER_UNIFORM:         return "uniform";
        case PFLASH_SCORER_LEXICAL:         return "lexical";
        case PFLASH_SCORER_EXTERNAL_HELPER: return "external-helper";
        case PFLASH_SCORER_MODEL:           return "model";
    }
    return "";
}

const char * kvflash_policy_name(kvflash_policy policy) {
    switch (policy) {
        case KVFLASH_POLICY_LRU:     return "lru";
        case KVFLASH_POLICY_QK:      return "qk";
        case KVFLASH_POLICY_DRAFTER: return "drafter";
    }
    return "";
}

[[noreturn]] static void refuse(const std::string & field, const std::string & value, const std::string & accepted) {
    throw std::invalid_argument(field + " is '" + value + "'; it must be " + accepted);
}

pflash_mode pflash_mode_parse(const std::string & field, const std::string & value) {
    for (auto mode : { PFLASH_MODE_OFF, PFLASH_MODE_AUTO, PFLASH_MODE_ALWAYS }) {
        if (value == pflash_mode_name(mode)) {
            return mode;
        }
    }
    refuse(field, value, "off, auto or always");
}

// the whole text must be a number in [min, max]
static int32_t parse_int(const std::string & flag, const std::string & value, int64_t min, int64_t max) {
    char * end = nullptr;
    errno = 0;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || errno != 0 || number < min || number > max) {
        refuse(flag, value, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return (int32_t) number;
}

static float parse_ratio(const std::string & flag, const std::string & value) {
    char * end = nullptr;
    const float number = std::strtof(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !std::isfinite(number) || number <= 0.0f || number > 1.0f) {
        refuse(flag, value, "above 0 and at most 1");
    }
    return number;
}

static bool is_file(const std::string & path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error);
}

void flashlane_add_args(const std::function<void(common_arg)> & add_opt) {
    auto add = [&](common_arg arg, const char * env) {
        arg.set_examples({ LLAMA_EXAMPLE_SERVER });
        arg.set_env(env);
        add_opt(std::move(arg));
    };

    add(common_arg({ "--pflash-mode" }, "off|auto|always",
        "PFlash: drop prompt tokens before prefill; auto = long prompts, always = whatever is allowed (default: off)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.mode = pflash_mode_parse("--pflash-mode", value);
        }), "LLAMA_ARG_PFLASH_MODE");
    add(common_arg({ "--pflash-keep-ratio" }, "R",
        "PFlash: share of the compressible tokens that is kept, above 0 and at most 1 (default: 0.5)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.keep_ratio = parse_ratio("--pflash-keep-ratio", value);
        }), "LLAMA_ARG_PFLASH_KEEP_RATIO");
    add(common_arg({ "--pflash-score" }, "uniform|lexical|external-helper|model",
        "PFlash: what ranks the tokens (default: uniform)",
        [](common_params &, const std::string & value) {
            for (auto scorer : { PFLASH_SCORER_UNIFORM, PFLASH_SCORER_LEXICAL, PFLASH_SCORER_EXTERNAL_HELPER, PFLASH_SCORER_MODEL }) {
                if (value == pflash_scorer_name(scorer)) {
                    flashlane_params_get().pflash.scorer = scorer;
                    return;
                }
            }
            refuse("--pflash-score", value, "uniform, lexical, external-helper or model");
        }), "LLAMA_ARG_PFLASH_SCORE");
    add(common_arg({ "--pflash-model" }, "FILE",
        "PFlash: GGUF file of the scorer model, for --pflash-score model",
        [](common_params &, const std::string & value) {
            if (!is_file(value)) {
                refuse("--pflash-model", value, "the path of a GGUF file");
            }
            flashlane_params_get().pflash.model = value;
        }), "LLAMA_ARG_PFLASH_MODEL");
    add(common_arg({ "--pflash-drafter" }, "PROGRAM",
        "PFlash: helper program, for --pflash-score external-helper",
        [](common_params &, const std::string & value) {
            if (!is_file(value)) {
                refuse("--pflash-drafter", value, "the path of a program");
            }
            flashlane_params_get().pflash.drafter = value;
        }), "LLAMA_ARG_PFLASH_DRAFTER");
    add(common_arg({ "--pflash-min-tokens" }, "N",
        "PFlash: in auto mode, compressible tokens from which on a prompt is compressed (default: 2048)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.min_tokens = parse_int("--pflash-min-tokens", value, 0, INT32_MAX);
        }), "LLAMA_ARG_PFLASH_MIN_TOKENS");
    add(common_arg({ "--pflash-min-keep-tokens" }, "N",
        "PFlash: tokens that are left of a prompt at least (default: 256)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.min_keep_tokens = parse_int("--pflash-min-keep-tokens", value, 0, INT32_MAX);
        }), "LLAMA_ARG_PFLASH_MIN_KEEP_TOKENS");
    add(common_arg({ "--pflash-protected-prefix" }, "N",
        "PFlash: tokens never dropped at the start of the prompt (default: 32)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.protected_prefix = parse_int("--pflash-protected-prefix", value, 0, INT32_MAX);
        }), "LLAMA_ARG_PFLASH_PROTECTED_PREFIX");
    add(common_arg({ "--pflash-protected-suffix" }, "N",
        "PFlash: tokens never dropped at the end of the prompt (default: 32)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.protected_suffix = parse_int("--pflash-protected-suffix", value, 0, INT32_MAX);
        }), "LLAMA_ARG_PFLASH_PROTECTED_SUFFIX");
    add(common_arg({ "--pflash-timeout-ms" }, "N",
        "PFlash: time limit of a scorer in ms (default: 10000)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.timeout_ms = parse_int("--pflash-timeout-ms", value, 1, INT32_MAX);
        }), "LLAMA_ARG_PFLASH_TIMEOUT_MS");

    add(common_arg({ "--pflash-adaptive" }, "R",
        "PFlash: share that spread evidence may raise the keep ratio to, 0 = never (default: 0)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.adaptive = value == "0" ? 0.0f : parse_ratio("--pflash-adaptive", value);
        }), "LLAMA_ARG_PFLASH_ADAPTIVE");
    add(common_arg({ "--pflash-recall-tokens" }, "N",
        "PFlash: tokens of dropped text that a later message may bring back when it asks for it, 0 = none (default: 128)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.recall_tokens = parse_int("--pflash-recall-tokens", value, 0, INT32_MAX);
        }), "LLAMA_ARG_PFLASH_RECALL_TOKENS");
    add(common_arg({ "--pflash-marker" }, "TEXT",
        "PFlash: text that stands where text was dropped, such as ' [...] ' (default: none)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().pflash.marker = value;
        }), "LLAMA_ARG_PFLASH_MARKER");
    add(common_arg({ "--pflash-debug-dir" }, "DIR",
        "PFlash: folder for a private file per compressed prompt with the kept ranges, no text (default: none)",
        [](common_params &, const std::string & value) {
            std::error_code error;
            if (!std::filesystem::is_directory(value, error)) {
                refuse("--pflash-debug-dir", value, "an existing folder");
            }
            flashlane_params_get().pflash.debug_dir = value;
        }), "LLAMA_ARG_PFLASH_DEBUG_DIR");

    add(common_arg({ "--kvflash" }, "N|auto",
        "KVFlash: tokens that idle slots may keep resident, 0 = off (default: 0)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().kvflash.budget =
                value == "auto" ? -1 : parse_int("--kvflash", value, 0, INT32_MAX);
        }), "LLAMA_ARG_KVFLASH");
    add(common_arg({ "--kvflash-policy" }, "lru|qk|drafter",
        "KVFlash: what picks the prefix to evict (default: lru)",
        [](common_params &, const std::string & value) {
            for (auto policy : { KVFLASH_POLICY_LRU, KVFLASH_POLICY_QK, KVFLASH_POLICY_DRAFTER }) {
                if (value == kvflash_policy_name(policy)) {
                    flashlane_params_get().kvflash.policy = policy;
                    return;
                }
            }
            refuse("--kvflash-policy", value, "lru, qk or drafter");
        }), "LLAMA_ARG_KVFLASH_POLICY");
    add(common_arg({ "--kvflash-drafter" }, "FILE",
        "KVFlash: GGUF file of the scorer model, for --kvflash-policy qk and drafter (default: that of --pflash-model)",
        [](common_params &, const std::string & value) {
            if (!is_file(value)) {
                refuse("--kvflash-drafter", value, "the path of a GGUF file");
            }
            flashlane_params_get().kvflash.drafter = value;
        }), "LLAMA_ARG_KVFLASH_DRAFTER");
    add(common_arg({ "--kvflash-tau" }, "N",
        "KVFlash: tokens of a page (default: 64)",
        [](common_params &, const std::string & value) {
            flashlane_params_get().kvflash.tau = parse_int("--kvflash-tau", value, 1, 65536);
        }), "LLAMA_ARG_KVFLASH_TAU");
    add(common_arg({ "--kvflash-store" }, "DIR",
        "KVFlash: folder of the disk tier",
        [](common_params &, const std::string & value) {
            std::error_code error;
            if (!std::filesystem::is_directory(value, error)) {
                refuse("--kvflash-store", value, "an existing folder");
            }
            flashlane_params_get().kvflash.store = value;
        }), "LLAMA_ARG_KVFLASH_STORE");
    add(common_arg({ "--kvflash-store-mb" }, "N",
        "KVFlash: size limit of the disk tier in MiB",
        [](common_params &, const std::string & value) {
            flashlane_params_get().kvflash.store_mb = parse_int("--kvflash-store-mb", value, 1, INT32_MAX);
        }), "LLAMA_ARG_KVFLASH_STORE_MB");
}

std::string flashlane_check(const flashlane_params & params) {
    const auto & pflash  = params.pflash;
    const auto & kvflash = params.kvflash;

    if (pflash.scorer == PFLASH_SCORER_MODEL && pflash.model.empty()) {
        return "--pflash-score model needs --pflash-model FILE; give the scorer's GGUF file or use --pflash-score uniform";
    }
    if (pflash.scorer == PFLASH_SCORER_EXTERNAL_HELPER && pflash.drafter.empty()) {
        return "--pflash-score external-helper needs --pflash-drafter PROGRAM; give the helper or use --pflash-score uniform";
    }
    if (pflash.adaptive > 0.0f && pflash.adaptive < pflash.keep_ratio) {
        return "--pflash-adaptive is below --pflash-keep-ratio; it must be above it, or 0";
    }
    if (kvflash.policy != KVFLASH_POLICY_LRU) {
        const std::string policy = std::string("--kvflash-policy ") + kvflash_policy_name(kvflash.policy);
        if (kvflash.budget == 0) {
            return policy + " needs --kvflash; give the tokens that idle slots may hold, or auto";
        }
        if (kvflash.scorer(pflash).empty()) {
            return policy + " needs a model that reads: give --kvflash-drafter FILE or --pflash-model FILE, or use lru";
        }
    }
    if (!kvflash.store.empty() && kvflash.budget == 0) {
        return "--kvflash-store " + kvflash.store + " needs --kvflash; give the tokens that idle slots may hold, or auto";
    }
    if (!kvflash.store.empty() && kvflash.store_mb == 0) {
        return "--kvflash-store " + kvflash.store + " needs --kvflash-store-mb; give the MiB that the folder may hold";
    }
    return "";
}
