#pragma once

#include "json.h"

#include <cstdint>
#include <string>

struct common_params_speculative;
struct common_speculative;
struct llama_context;

// Before the drafter is loaded: whether it and the target would end the server, then or at the first request.
// Returns an empty string, or one sentence for the operator.
std::string server_gears_check(const common_params_speculative & params, llama_context * target);

// A request's gear: tokens that a draft may have, 0 = no drafts. Throws std::invalid_argument for another value.
int32_t server_gears_read(const common_json & value);

// After a load, also one after a sleep: what /props says. `speculator` is null where nothing drafts.
void server_gears_started(const common_params_speculative & params, const common_speculative * speculator);

// {"types": [...], "n_max": tokens that a draft has at most}; empty types and 0 where nothing drafts. Any thread.
common_json server_gears_props();
