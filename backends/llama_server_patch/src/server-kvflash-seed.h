#pragma once

#include "kvflash-pages.h"

#include <string>
#include <vector>

struct common_adapter_lora_info;
struct common_params;
struct llama_context;

// What the states of a loaded model depend on beside their tokens.
struct kvflash_fingerprint {
    kvflash_seed base; // build, model, draft model and parameters
    std::vector<kvflash_seed> adapters;

    // With these adapters, which are in the order of those that were loaded.
    kvflash_seed with(const std::vector<common_adapter_lora_info> & lora) const;
};

// `draft` may be null. With `files`, whose contents outlive the process: every byte of them counts. Returns an
// empty string, or the file that cannot be read.
std::string kvflash_fingerprint_of(
        const common_params & params, const llama_context * target, const llama_context * draft, bool files,
        kvflash_fingerprint & fingerprint);
