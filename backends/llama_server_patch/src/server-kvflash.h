#pragma once

#include "json.h"
#include "kvflash-cut.h"
#include "llama.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct common_adapter_lora_info;
struct common_params;
struct common_speculative;
struct server_prompt;
struct server_task;

// What KVFlash did for one request.
struct kvflash_report {
    std::string tier = "none"; // where the prompt's beginning came from
    int32_t restored_tokens = 0;
    double  restore_ms      = 0.0; // part of the prompt time
    std::vector<size_t> boundaries; // where a state that cannot be cut back is to be captured, ascending

    bool captures_at(size_t n_tokens) const;
    common_json to_json() const;
};

// A slot as KVFlash sees it. All of it is called on the main loop's thread.
struct kvflash_slot {
    int     id        = -1;
    bool    busy      = false;
    int64_t last_used = 0;
    size_t  n_needed  = 0; // busy: cells that it holds or may still take
    server_prompt * prompt = nullptr;
    std::vector<common_adapter_lora_info> * lora = nullptr;
};

// Cells that are kept free for an answer of a request that sets no limit.
constexpr size_t KVFLASH_ANSWER_TOKENS = 256;

struct kvflash_setup {
    llama_context      * target     = nullptr;
    llama_context      * draft      = nullptr; // may be null
    common_speculative * speculator = nullptr; // may be null
    kvflash_cutting cutting;
    bool has_mtmd = false;
};

// Whether the operator wants it: upstream's prompt cache and idle slots are then left to KVFlash.
bool server_kvflash_wanted();

// After the model is loaded, also when it is loaded again after a sleep. Returns an empty string, or one
// sentence for the operator.
std::string server_kvflash_start(const common_params & params, const kvflash_setup & setup);

// Before the contexts go: what the slots hold is saved.
void server_kvflash_stop(const std::vector<kvflash_slot> & slots);

// Whether the task's slot is KVFlash's to choose.
bool server_kvflash_handles(const server_task & task);

// The slot that the task runs in, with the longest known beginning of its prompt in it; -1 where it must
// wait. `lora` are the adapters that the task runs with; with `others_wait` a task that has not waited yet
// does not overtake them.
int server_kvflash_pick(
        const server_task & task, const std::vector<common_adapter_lora_info> & lora, const std::vector<kvflash_slot> & slots,
        bool others_wait);

// After a task was launched: idle slots give back what is over the budget.
void server_kvflash_trim(const std::vector<kvflash_slot> & slots);

// When slots have changed otherwise: what /props says of them, and what the ranker reads.
void server_kvflash_count(const std::vector<kvflash_slot> & slots);

// Before an idle slot is cleared for want of cells.
void server_kvflash_save(const kvflash_slot & slot);

// Before a client's file is loaded into a slot: it finds room, and its state is never taken for one of ours.
void server_kvflash_before_load(const std::vector<kvflash_slot> & slots, int id_slot);

// When a slot begins its prompt: `n_past` tokens of it need no processing.
std::shared_ptr<const kvflash_report> server_kvflash_began(const kvflash_slot & slot, int32_t n_past, int32_t n_prompt);

// The section `kvflash` of /props and the lines of /metrics; any thread.
common_json server_kvflash_props();
std::string server_kvflash_metrics();
