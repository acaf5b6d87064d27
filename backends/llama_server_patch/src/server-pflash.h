#pragma once

#include "chat.h"
#include "json.h"
#include "llama.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

struct server_task;
struct server_tokens;

// What PFlash did to one prompt. Shared by the task, its children, its slot and its results.
struct pflash_report {
    std::string mode;
    std::string scorer;
    std::string reason; // "compressed", or why not
    int32_t     original_tokens = 0;
    int32_t     kept_tokens     = 0;
    int32_t     recalled_tokens = 0;     // of earlier turns, said again in a later message
    int32_t     mask_hits       = 0;     // segments whose earlier choice was used again
    std::string failure;                 // of the scorer, one word
    bool        raised          = false; // more was kept than asked for: see adaptive
    double      score_ms        = 0.0;   // part of the prompt time

    common_json to_json() const;
};

// Loads the scorer. Returns an empty string, or one sentence for the operator.
std::string server_pflash_start(int32_t n_threads);

// Ends the helper and frees the scorer. No request may be running.
void server_pflash_stop();

// Reads the request's PFlash fields and compresses `task.tokens` where that is asked for and safe.
// Call it once per task, after task.params is evaluated and before children are made.
// `data` is the request body after the chat template was applied; `should_stop` tells that the client
// has left. Throws std::invalid_argument for a bad field. Any other failure leaves the prompt whole.
void server_pflash_apply(
        server_task                      & task,
        const common_json                & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters,
        const std::function<bool()>      & should_stop);

// The answer to POST /pflash/compress; docs/pflash.md describes it. Throws std::invalid_argument for a
// bad body.
common_json server_pflash_compress(
        const common_json           & body,
        const llama_vocab           * vocab,
        const std::function<bool()> & should_stop);

// The target's own prefill, from which `auto` learns its speed.
void server_pflash_saw_prefill(uint64_t n_tokens, int64_t time_us);

// A prompt that the target begins to read, of which the cache held the first `n_cached` tokens: `auto` weighs
// what a later prompt would lose.
void server_pflash_saw_prompt(const server_tokens & tokens, int32_t n_cached);

// The sections of /props and the lines of /metrics. Safe while the server sleeps: no llama object is
// touched.
void flashlane_add_props(common_json & props);
std::string flashlane_metrics();
