#pragma once

#include <cstdint>
#include <functional>
#include <string>

struct common_arg;

// version of the fields that /props and the responses carry
constexpr int FLASHLANE_SCHEMA_VERSION = 1;

enum pflash_mode {
    PFLASH_MODE_OFF,
    PFLASH_MODE_AUTO,   // compress what is long enough
    PFLASH_MODE_ALWAYS, // compress whatever is allowed
};

enum pflash_scorer {
    PFLASH_SCORER_UNIFORM,
    PFLASH_SCORER_LEXICAL,
    PFLASH_SCORER_EXTERNAL_HELPER,
    PFLASH_SCORER_MODEL,
};

struct pflash_params {
    pflash_mode   mode             = PFLASH_MODE_OFF;
    pflash_scorer scorer           = PFLASH_SCORER_UNIFORM;
    float         keep_ratio       = 0.5f;  // kept / original tokens of the compressible part, in (0, 1]
    int32_t       min_tokens       = 2048;  // auto: compressible tokens from which on it compresses
    int32_t       min_keep_tokens  = 256;   // tokens of the whole prompt that are kept at least
    int32_t       protected_prefix = 32;    // tokens at the start of the prompt
    int32_t       protected_suffix = 32;    // tokens at the end of the prompt
    int32_t       timeout_ms       = 10000; // scorers that take time
    float         adaptive         = 0.0f;  // share that spread evidence may raise keep_ratio to, 0 = off
    int32_t       recall_tokens    = 128;   // of earlier dropped text that a later turn may say again, 0 = off
    std::string   marker;                   // stands where text was dropped, empty = nothing does
    std::string   debug_dir;                // folder for the kept ranges, empty = off
    std::string   model;                    // GGUF file of the scorer
    std::string   drafter;                  // helper program
};

enum kvflash_policy {
    KVFLASH_POLICY_LRU,
    KVFLASH_POLICY_QK,
    KVFLASH_POLICY_DRAFTER,
};

struct kvflash_params {
    int32_t        budget   = 0; // resident tokens of idle slots, 0 = off, -1 = auto
    kvflash_policy policy   = KVFLASH_POLICY_LRU;
    int32_t        tau      = 64; // tokens of a page
    int32_t        store_mb = 0;
    std::string    drafter; // GGUF file of the scorer
    std::string    store;

    // the scorer's file; empty where there is none
    const std::string & scorer(const pflash_params & pflash) const { return drafter.empty() ? pflash.model : drafter; }
};

struct flashlane_params {
    pflash_params  pflash;
    kvflash_params kvflash;
};

// Options live outside common_params: that header is included everywhere.
flashlane_params & flashlane_params_get();

const char * pflash_mode_name(pflash_mode mode);
const char * pflash_scorer_name(pflash_scorer scorer);
const char * kvflash_policy_name(kvflash_policy policy);

// throws std::invalid_argument naming `field`, the value and what would have worked
pflash_mode pflash_mode_parse(const std::string & field, const std::string & value);

void flashlane_add_args(const std::function<void(common_arg)> & add_opt);

// Checks that hold between flags. Returns an empty string, or one sentence for the operator.
std::string flashlane_check(const flashlane_params & params);
