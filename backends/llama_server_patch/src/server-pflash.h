#pragma once

#include "chat.h"
#include "json.h"
#include "llama.h"

#include <cstdint>
#include <memory>
#include <string>

struct server_task;

// What PFlash did to one prompt. Shared by the task, its children, its slot and its results.
struct pflash_report {
    std::string mode;
    std::string scorer;
    std::string reason; // "compressed", or why not
    int32_t     original_tokens = 0;
    int32_t     kept_tokens     = 0;
    double      score_ms        = 0.0; // part of the prompt time

    common_json to_json() const;
};

// Reads the request's PFlash fields and compresses `task.tokens` where that is asked for and safe.
// Call it once per task, after task.params is evaluated and before children are made.
// `data` is the request body after the chat template was applied.
// Throws std::invalid_argument for a bad field. Any other failure leaves the prompt as it was.
void server_pflash_apply(
        server_task                      & task,
        const common_json                & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters);

// The sections of /props. Safe while the server sleeps: no llama object is touched.
void flashlane_add_props(common_json & props);
