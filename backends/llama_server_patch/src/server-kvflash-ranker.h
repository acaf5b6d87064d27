#pragma once

#include "json.h"
#include "kvflash-ranker.h"
#include "llama.h"

#include <cstdint>
#include <memory>
#include <string>

struct common_params;
struct server_tokens;

// The ranker of the policies `qk` and `drafter`; lives from the target's loading to its end.

// Returns an empty string, or one sentence for the operator. Pages' tokens are those of `vocab`.
std::string server_kvflash_ranker_start(const common_params & params, const llama_vocab * vocab);

// Before the target goes.
void server_kvflash_ranker_stop();

// Null for other policies, and while there is none. Any thread; whoever asks may keep it.
std::shared_ptr<kvflash_ranker> server_kvflash_ranker();

// What a slot holds from now on; it holds nothing where `tokens` is empty.
void server_kvflash_holds(int slot, const server_tokens & tokens);

// The section `ranker` of /props.kvflash and its lines of /metrics; any thread.
void server_kvflash_ranker_props(common_json & kvflash);
std::string server_kvflash_ranker_metrics();
