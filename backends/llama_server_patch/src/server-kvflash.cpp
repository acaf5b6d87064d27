#include "server-kvflash.h"

#include "common.h"
#include "flashlane-args.h"
#include "flashlane-tokens.h"
#include "kvflash-boundaries.h"
#include "kvflash-pool.h"
#include "log.h"
#include "server-common.h"
#include "server-kvflash-ranker.h"
#include "server-kvflash-seed.h"
#include "server-task.h"
#include "speculative.h"

#include "ggml.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

using json = common_json;

static constexpr size_t MIB = 1u << 20;
static constexpr uint64_t RESERVE_SHARE = 8, MAX_RESERVE = 512 * MIB; // one part of this many of the memory waits for the next states
static constexpr double AUTO_FREE_SHARE = 0.5;        // `auto`: of the free memory, for states outside of the slots
static constexpr size_t HISTORY_PROMPTS = 16, HISTORY_TOKENS = 1u << 20; // that boundaries are learned from
static constexpr uint64_t BOUNDARY_SHARE = 8; // one part of this many of the memory is for the states at one prompt's boundaries

namespace {

struct kvflash_counters {
    uint64_t admitted = 0, deferred = 0, evicted = 0, misses = 0;
    uint64_t hits[KVFLASH_TIER_DISK + 1] = {};
    uint64_t restored_tokens = 0;
    double   restore_ms      = 0.0;
    uint64_t boundaries      = 0;
    size_t   resident_tokens = 0, resident_prefixes = 0, active_tokens = 0, active_slots = 0;
};

struct started {
    kvflash_tier tier = KVFLASH_TIER_NONE;
    double       ms   = 0.0;
    std::vector<size_t> boundaries;
};

// What lives from the model's loading to its end.
struct kvflash_server {
    const kvflash_params params;
    const kvflash_setup  setup;
    const bool   unified;
    const size_t capacity;
    const size_t budget;
    const bool   restores; // LLAMA_KVFLASH_HIDDEN_STATE_RESTORE
    const kvflash_fingerprint fingerprint;
    kvflash_pool pool;
    const uint64_t boundary_bytes;
    kvflash_history history;
    std::map<int, started> slots; // what their newest task goes on from
    std::set<int> foreign; // slots that hold a state of a client's file: nobody knows what it depends on
    kvflash_counters counted;

    kvflash_server(
            const kvflash_params & params, const kvflash_setup & setup, bool unified, size_t capacity, size_t budget, bool restores,
            const kvflash_fingerprint & fingerprint, const kvflash_pool::limits & limits) :
        params(params), setup(setup), unified(unified), capacity(capacity), budget(budget), restores(restores), fingerprint(fingerprint),
        pool(limits, fingerprint.base, setup.cutting), boundary_bytes(limits.ram_bytes / BOUNDARY_SHARE),
        history(limits.tau, HISTORY_PROMPTS, HISTORY_TOKENS) {}
};

} // namespace

// Guards what follows: /props and /metrics read it from other threads.
static std::mutex & guard() {
    static std::mutex mutex;
    return mutex;
}

static std::unique_ptr<kvflash_server> & instance() {
    static std::unique_ptr<kvflash_server> server;
    return server;
}

json kvflash_report::to_json() const {
    return json { { "restored_tokens", restored_tokens }, { "tier", tier }, { "restore_ms", restore_ms } };
}

bool kvflash_report::captures_at(size_t n_tokens) const {
    return std::binary_search(boundaries.begin(), boundaries.end(), n_tokens);
}

bool server_kvflash_wanted() {
    return flashlane_params_get().kvflash.budget != 0;
}

static uint64_t free_memory() {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    uint64_t kib = 0;
    while (file >> name >> kib) {
        std::getline(file, unit);
        if (name == "MemAvailable:") {
            return kib << 10;
        }
    }
    return 0;
}

//
// Start and end
//

std::string server_kvflash_start(const common_params & common, const kvflash_setup & setup) {
    if (!server_kvflash_wanted()) {
        return "";
    }
    const auto & params = flashlane_params_get().kvflash;
    kvflash_pool::limits limits;
    limits.tau        = params.tau;
    limits.ram_bytes  = common.cache_ram_mib < 0 ? UINT64_MAX / 2 : common.cache_ram_mib * (uint64_t) MIB;
    limits.folder     = params.store;
    limits.disk_bytes = params.store_mb * (uint64_t) MIB;

    const size_t capacity = llama_n_ctx(setup.target);
    size_t budget = params.budget > 0 ? (size_t) params.budget : capacity;
    if (params.budget < 0) {
        const uint64_t free = free_memory();
        if (free > 0) {
            limits.ram_bytes = std::min(limits.ram_bytes, (uint64_t) (AUTO_FREE_SHARE * free));
        }
        SRV_INF("kvflash: auto: idle slots may hold all %zu cells while nothing else needs them; %" PRIu64 " MiB for states outside of them\n",
                budget, limits.ram_bytes / MIB);
    }

    kvflash_fingerprint fingerprint;
    const std::string unread = kvflash_fingerprint_of(common, setup.target, setup.draft, !limits.folder.empty(), fingerprint);
    if (!unread.empty()) {
        return "--kvflash-store " + limits.folder + " needs to read the model's files to tell its states from another's: cannot read " + unread;
    }
    const std::string error = server_kvflash_ranker_start(common, llama_model_get_vocab(llama_get_model(setup.target)));
    if (!error.empty()) {
        return error;
    }
    const char * restore = getenv("LLAMA_KVFLASH_HIDDEN_STATE_RESTORE");
    kvflash_reserve_start(std::min(limits.ram_bytes / RESERVE_SHARE, MAX_RESERVE));
    std::lock_guard<std::mutex> lock(guard());
    instance() = std::make_unique<kvflash_server>(
        params, setup, common.kv_unified, capacity, budget, !(restore && strcmp(restore, "0") == 0), fingerprint, limits);
    return "";
}

//
// States of slots
//

// Text alone, of at least `n` tokens.
static bool is_plain(const server_tokens & tokens, size_t n) {
    return tokens.size() >= n && !flashlane_has_media(tokens);
}

static bool capture(llama_context * ctx, int id, kvflash_record & record, const kvflash_bytes & part) {
    return part.size == 0 || llama_state_seq_get_data_ext(ctx, record.room(part), part.size, id, LLAMA_STATE_SEQ_FLAGS_NONE) == part.size;
}

static void save(kvflash_server & server, const kvflash_slot & slot) {
    const auto & prompt = *slot.prompt;
    if (!is_plain(prompt.tokens, server.params.tau) || server.foreign.count(slot.id)) {
        return;
    }
    const llama_tokens tokens = flashlane_tokens(prompt.tokens);
    const kvflash_seed seed = server.fingerprint.with(*slot.lora);
    if (server.pool.holds(seed, tokens.data(), tokens.size())) {
        return;
    }
    const auto & setup = server.setup;
    std::vector<uint8_t> speculator;
    if (setup.speculator) {
        common_speculative_get_state(setup.speculator, slot.id, speculator);
    }
    kvflash_view wanted;
    wanted.tokens   = tokens.data();
    wanted.n_tokens = tokens.size();
    wanted.target   = { nullptr, llama_state_seq_get_size_ext(setup.target, slot.id, LLAMA_STATE_SEQ_FLAGS_NONE) };
    wanted.draft    = { nullptr, setup.draft ? llama_state_seq_get_size_ext(setup.draft, slot.id, LLAMA_STATE_SEQ_FLAGS_NONE) : 0 };
    wanted.speculator = { nullptr, speculator.size() };
    std::vector<const common_prompt_checkpoint *> checkpoints;
    for (const auto & c : prompt.checkpoints) {
        checkpoints.push_back(&c);
    }
    std::stable_sort(checkpoints.begin(), checkpoints.end(), [](const auto * a, const auto * b) { return a->n_tokens < b->n_tokens; });
    for (const auto * c : checkpoints) {
        wanted.checkpoints.push_back({ c->n_tokens, c->pos_min, c->pos_max, { nullptr, c->data_tgt.size() }, { nullptr, c->data_dft.size() },
            { nullptr, c->data_spec.size() } });
    }
    std::shared_ptr<kvflash_record> record;
    try {
        record = std::make_shared<kvflash_record>(wanted);
    } catch (const std::bad_alloc &) {
        SRV_WRN("kvflash: no memory for a state of %zu tokens, it is not kept\n", tokens.size());
        return;
    }
    const auto & view = record->view();
    if (!capture(setup.target, slot.id, *record, view.target) || !capture(setup.draft, slot.id, *record, view.draft)) {
        SRV_WRN("kvflash: the state of slot %d cannot be read, it is not kept\n", slot.id);
        return;
    }
    std::copy(speculator.begin(), speculator.end(), record->room(view.speculator));
    for (size_t i = 0; i < checkpoints.size(); i++) {
        const auto & from = *checkpoints[i];
        const auto & to   = view.checkpoints[i];
        std::copy(from.data_tgt.begin(), from.data_tgt.end(), record->room(to.target));
        std::copy(from.data_dft.begin(), from.data_dft.end(), record->room(to.draft));
        std::copy(from.data_spec.begin(), from.data_spec.end(), record->room(to.speculator));
    }
    server.pool.put(seed, std::move(record));
}

static void clear(kvflash_server & server, const kvflash_slot & slot) {
    for (llama_context * ctx : { server.setup.target, server.setup.draft }) {
        if (ctx) {
            llama_memory_seq_rm(llama_get_memory(ctx), slot.id, -1, -1);
        }
    }
    slot.prompt->clear();
    server.foreign.erase(slot.id);
}

static std::vector<uint8_t> copy_of(const kvflash_bytes & bytes) {
    return { bytes.data, bytes.data + bytes.size };
}

// False, and the slot is empty, where llama.cpp does not take the state.
static bool restore(kvflash_server & server, const kvflash_slot & slot, const kvflash_view & view) {
    const auto & setup = server.setup;
    clear(server, slot);
    const bool fits = setup.draft ? view.draft.size > 0 : view.draft.size == 0;
    if (!fits || llama_state_seq_set_data_ext(setup.target, view.target.data, view.target.size, slot.id, 0) != view.target.size ||
            (setup.draft && llama_state_seq_set_data_ext(setup.draft, view.draft.data, view.draft.size, slot.id, 0) != view.draft.size)) {
        SRV_WRN("kvflash: a state of %zu tokens does not fit slot %d\n", view.n_tokens, slot.id);
        clear(server, slot);
        return false;
    }
    if (setup.speculator) {
        common_speculative_set_state(setup.speculator, slot.id, copy_of(view.speculator));
    }
    slot.prompt->tokens = server_tokens(llama_tokens(view.tokens, view.tokens + view.n_tokens), setup.has_mtmd);
    for (const auto & c : view.checkpoints) {
        auto & checkpoint = slot.prompt->checkpoints.emplace_back();
        checkpoint.n_tokens  = c.n_tokens;
        checkpoint.pos_min   = c.pos_min;
        checkpoint.pos_max   = c.pos_max;
        checkpoint.data_tgt  = copy_of(c.target);
        checkpoint.data_dft  = copy_of(c.draft);
        checkpoint.data_spec = copy_of(c.speculator);
    }
    return true;
}

//
// Slots
//

bool server_kvflash_handles(const server_task & task) {
    return instance() && task.type == SERVER_TASK_TYPE_COMPLETION && is_plain(task.tokens, 1);
}

// Tokens that the slot's state shares with the task's prompt and can be cut back to.
static size_t shared(
        const kvflash_server & server, const kvflash_slot & slot, const server_task & task, const std::vector<common_adapter_lora_info> & lora) {
    if (!task.params.cache_prompt || slot.prompt->tokens.empty() || !are_lora_equal(*slot.lora, lora)) {
        return 0;
    }
    kvflash_view view;
    view.n_tokens = slot.prompt->tokens.size();
    for (const auto & c : slot.prompt->checkpoints) {
        view.checkpoints.push_back({ c.n_tokens, c.pos_min, c.pos_max, {}, {}, {} });
    }
    const llama_pos pos_min = llama_memory_seq_pos_min(llama_get_memory(server.setup.target), slot.id);
    const size_t n_common = std::min(slot.prompt->tokens.get_common_prefix(task.tokens), task.tokens.size() - 1);
    return kvflash_cut(server.setup.cutting, view, pos_min, n_common);
}

static std::vector<kvflash_idle> idle_of(const std::vector<const kvflash_slot *> & slots) {
    const auto ranker = server_kvflash_ranker();
    std::vector<kvflash_idle> idle;
    for (const auto * slot : slots) {
        idle.push_back({ slot->prompt->tokens.size(), slot->last_used, ranker ? ranker->score(slot->id) : 0.0f });
    }
    return idle;
}

static kvflash_load load_of(const kvflash_server & server, const std::vector<kvflash_slot> & slots) {
    kvflash_load load { server.capacity, server.budget, 0 };
    for (const auto & slot : slots) {
        load.active += slot.busy ? slot.n_needed : 0;
    }
    return load;
}

static void evict(kvflash_server & server, const kvflash_slot & slot) {
    save(server, slot);
    clear(server, slot);
    server.counted.evicted++;
    server_kvflash_holds(slot.id, {});
}

// Idle slots give up what is over `budget` tokens.
static void evict_over(kvflash_server & server, const std::vector<const kvflash_slot *> & idle, size_t budget) {
    for (const uint32_t i : kvflash_victims(server.params.policy, idle_of(idle), budget)) {
        evict(server, *idle[i]);
    }
}

// Where the state of the task's prompt is to be captured on the way.
static std::vector<size_t> learn(kvflash_server & server, const kvflash_seed & seed, const llama_tokens & tokens, const std::vector<kvflash_slot> & slots) {
    if (server.setup.cutting.anywhere() || !server.restores) {
        return {};
    }
    size_t n_bytes = 1; // of one such state
    for (const auto & slot : slots) {
        for (const auto & c : slot.prompt->checkpoints) {
            n_bytes = std::max(n_bytes, c.size());
        }
    }
    auto boundaries = server.history.boundaries(seed, tokens.data(), tokens.size(), server.boundary_bytes / n_bytes);
    server.history.add(seed, tokens);
    return boundaries;
}

int server_kvflash_pick(
        const server_task & task, const std::vector<common_adapter_lora_info> & lora, const std::vector<kvflash_slot> & slots,
        bool others_wait) {
    std::lock_guard<std::mutex> lock(guard());
    auto & server = *instance();
    const llama_tokens tokens = flashlane_tokens(task.tokens);

    std::vector<const kvflash_slot *> free;
    for (const auto & slot : slots) {
        if (!slot.busy && (task.id_slot < 0 || slot.id == task.id_slot)) {
            free.push_back(&slot);
        }
    }
    if (free.empty()) {
        return -1;
    }
    const size_t n_answer = task.params.n_predict >= 0 ? (size_t) task.params.n_predict : KVFLASH_ANSWER_TOKENS;
    const auto load = load_of(server, slots);
    const auto admission = kvflash_admit(load, std::min(tokens.size() + n_answer, server.capacity));
    const bool overtakes = others_wait && !task.was_deferred && load.active > 0;
    if (server.unified && (overtakes || !admission.admitted)) {
        server.counted.deferred += !task.was_deferred;
        return -1;
    }
    server.counted.admitted++;

    // who has most of it: the slots themselves, a copy from another slot, or a state outside
    const kvflash_slot * best = nullptr;
    size_t n_own = 0;
    for (const auto * slot : free) {
        const size_t n = shared(server, *slot, task, lora);
        if (n > n_own) {
            best  = slot;
            n_own = n;
        }
    }
    const size_t tau = server.params.tau;
    const bool copies = server.unified && server.setup.cutting.anywhere() && !server.setup.speculator; // between slots, without cost
    const kvflash_seed seed = server.fingerprint.with(lora);
    auto boundaries = learn(server, seed, tokens, slots);
    if (best && n_own < tau && best->prompt->tokens.size() >= n_own + tau) {
        best  = nullptr; // a few tokens are not worth the rest of what it holds
        n_own = 0;
    }
    const kvflash_slot * sibling = nullptr;
    size_t n_sibling = 0;
    if (server.restores && copies) {
        for (const auto & slot : slots) {
            const size_t n = &slot == best || server.foreign.count(slot.id) ? 0 : shared(server, slot, task, lora);
            if (n >= tau && n > n_sibling) {
                sibling   = &slot;
                n_sibling = n;
            }
        }
    }
    const int64_t t_start = ggml_time_us(); // a state on disk is read and checked while it is looked for
    auto hit = server.restores && task.params.cache_prompt ?
        server.pool.find(seed, tokens.data(), tokens.size() - 1, std::max(n_own + tau - 1, n_sibling)) :
        std::nullopt;

    // going on in a slot costs nothing, unless that would lose what it holds beyond
    const bool forks = server.restores && best && !server.foreign.count(best->id) && best->prompt->tokens.size() >= n_own + tau && free.size() > 1;
    if (!hit && best && n_own + tau > n_sibling && !forks) {
        if (best->prompt->tokens.size() >= n_own + tau) {
            save(server, *best);
        }
        server.slots[best->id] = { KVFLASH_TIER_SLOT, 0.0, std::move(boundaries) };
        server_kvflash_holds(best->id, task.tokens);
        return best->id;
    }

    // another slot, then: an empty one, or the one that is missed least
    std::vector<const kvflash_slot *> others;
    for (const auto * slot : free) {
        if (slot != best && slot != sibling) {
            others.push_back(slot);
        }
    }
    if (others.empty()) {
        others = free;
    }
    const auto idle = idle_of(others);
    const kvflash_slot * target = nullptr;
    size_t held = 0;
    for (size_t i = 0; i < others.size(); i++) {
        held += idle[i].n_tokens;
        if (idle[i].n_tokens == 0 && (!target || idle[i].last_used < target->last_used)) {
            target = others[i];
        }
    }
    if (!target) {
        target = others[kvflash_victims(server.params.policy, idle, held - 1).at(0)];
        evict(server, *target);
    }

    const kvflash_slot * source = n_own >= n_sibling ? best : sibling;
    const size_t n_source = std::max(n_own, n_sibling);
    kvflash_tier tier = KVFLASH_TIER_NONE;
    if (server.unified) { // now, for what is restored needs the cells
        std::vector<const kvflash_slot *> idle;
        for (const auto & slot : slots) {
            if (!slot.busy && &slot != target && &slot != source) {
                idle.push_back(&slot);
            }
        }
        evict_over(server, idle, admission.idle_left - std::min(admission.idle_left, source ? source->prompt->tokens.size() : 0));
    }
    if (hit && restore(server, *target, hit->view)) { // it holds more than any source
        tier = hit->tier;
    } else if (source && source != target && n_source >= tau && server.restores) {
        if (copies) {
            for (llama_context * ctx : { server.setup.target, server.setup.draft }) {
                if (ctx) {
                    llama_memory_seq_cp(llama_get_memory(ctx), source->id, target->id, 0, (llama_pos) n_source);
                }
            }
            target->prompt->tokens = server_tokens(llama_tokens(tokens.begin(), tokens.begin() + n_source), server.setup.has_mtmd);
            tier = KVFLASH_TIER_SIBLING;
        } else {
            // no zero-copy in this memory: by way of a state
            save(server, *source);
            hit = server.pool.find(seed, tokens.data(), tokens.size() - 1, tau - 1);
            if (hit && restore(server, *target, hit->view)) {
                tier = KVFLASH_TIER_SIBLING;
            }
        }
    }
    if (tier != KVFLASH_TIER_NONE) {
        *target->lora = lora; // whose state it is now
    }
    server.slots[target->id] = { tier, tier == KVFLASH_TIER_NONE ? 0.0 : (ggml_time_us() - t_start) / 1000.0, std::move(boundaries) };
    server_kvflash_holds(target->id, task.tokens);
    return target->id;
}

static void count(kvflash_server & server, const std::vector<kvflash_slot> & slots) {
    auto & counted = server.counted;
    counted.active_tokens   = load_of(server, slots).active;
    counted.active_slots    = counted.resident_tokens = counted.resident_prefixes = 0;
    for (const auto & slot : slots) {
        if (slot.busy) {
            counted.active_slots++;
            continue;
        }
        server_kvflash_holds(slot.id, slot.prompt->tokens);
        counted.resident_tokens   += slot.prompt->tokens.size();
        counted.resident_prefixes += !slot.prompt->tokens.empty();
    }
}

void server_kvflash_count(const std::vector<kvflash_slot> & slots) {
    std::lock_guard<std::mutex> lock(guard());
    if (instance()) {
        count(*instance(), slots);
    }
}

void server_kvflash_trim(const std::vector<kvflash_slot> & slots) {
    std::lock_guard<std::mutex> lock(guard());
    auto & server = *instance();
    std::vector<const kvflash_slot *> idle;
    for (const auto & slot : slots) {
        if (!slot.busy && !slot.prompt->tokens.empty()) {
            idle.push_back(&slot);
        }
    }
    evict_over(server, idle, server.unified ? kvflash_admit(load_of(server, slots), 0).idle_left : server.budget);
    count(server, slots);
}

void server_kvflash_save(const kvflash_slot & slot) {
    std::lock_guard<std::mutex> lock(guard());
    if (instance()) {
        save(*instance(), slot);
        server_kvflash_holds(slot.id, {});
    }
}

void server_kvflash_before_load(const std::vector<kvflash_slot> & slots, int id_slot) {
    std::lock_guard<std::mutex> lock(guard());
    if (!instance()) {
        return;
    }
    auto & server = *instance();
    for (const auto & slot : slots) {
        if (!slot.busy && !slot.prompt->tokens.empty() && (server.unified || slot.id == id_slot)) {
            evict(server, slot);
        }
    }
    server.foreign.insert(id_slot);
}

void server_kvflash_stop(const std::vector<kvflash_slot> & slots) {
    server_kvflash_ranker_stop();
    std::unique_ptr<kvflash_server> server;
    {
        std::lock_guard<std::mutex> lock(guard());
        if (!instance()) {
            return;
        }
        if (!instance()->params.store.empty()) {
            for (const auto & slot : slots) {
                save(*instance(), slot);
            }
        }
        server = std::move(instance());
    }
    server.reset(); // its pool writes what waits, which /props need not wait for
    kvflash_reserve_stop();
}

std::shared_ptr<const kvflash_report> server_kvflash_began(const kvflash_slot & slot, int32_t n_past, int32_t n_prompt) {
    std::lock_guard<std::mutex> lock(guard());
    if (!instance()) {
        return nullptr;
    }
    auto & server  = *instance();
    auto & counted = server.counted;
    started began = server.slots[slot.id];
    server.slots.erase(slot.id);
    if (n_past == 0) {
        server.foreign.erase(slot.id);
    }
    auto report = std::make_shared<kvflash_report>();
    const kvflash_tier tier = n_past > 0 ? began.tier : KVFLASH_TIER_NONE;
    report->tier            = kvflash_tier_name(tier);
    report->restored_tokens = tier == KVFLASH_TIER_NONE ? 0 : n_past;
    report->restore_ms      = began.ms;
    for (const size_t at : began.boundaries) {
        const auto & held = slot.prompt->checkpoints;
        if (at > (size_t) n_past && std::none_of(held.begin(), held.end(), [&](const auto & c) { return c.n_tokens == (int64_t) at; })) {
            report->boundaries.push_back(at);
        }
    }
    counted.boundaries += report->boundaries.size();
    if (tier == KVFLASH_TIER_NONE) {
        counted.misses++;
    } else {
        counted.hits[tier]++;
    }
    if (tier > KVFLASH_TIER_SLOT) {
        counted.restored_tokens += n_past;
        counted.restore_ms      += began.ms;
    }
    SRV_INF("kvflash: slot %d, %d of %d tokens from %s in %.2f ms\n", slot.id, report->restored_tokens, n_prompt, report->tier.c_str(), began.ms);
    return report;
}

//
// /props and /metrics
//

json server_kvflash_props() {
    const auto & params = flashlane_params_get().kvflash;
    json section = {
        { "configured", params.budget != 0 },
        { "policy",     kvflash_policy_name(params.policy) },
        { "tau",        params.tau },
    };
    std::lock_guard<std::mutex> lock(guard());
    section["active"] = instance() != nullptr;
    if (!instance()) {
        return section;
    }
    const auto & server  = *instance();
    const auto & counted = server.counted;
    const auto   pool    = server.pool.counters();
    json hits = json::object();
    for (const auto tier : { KVFLASH_TIER_SLOT, KVFLASH_TIER_SIBLING, KVFLASH_TIER_RAM, KVFLASH_TIER_DISK }) {
        hits[kvflash_tier_name(tier)] = counted.hits[tier];
    }
    section["restores"] = server.restores;
    server_kvflash_ranker_props(section);
    section["resident_pool"] = json {
        { "budget_tokens",   server.budget },
        { "capacity_tokens", server.capacity },
        { "resident_tokens", counted.resident_tokens },
        { "prefixes",        counted.resident_prefixes },
        { "active_tokens",   counted.active_tokens },
        { "active_slots",    counted.active_slots },
        { "page_tokens",     server.params.tau },
        { "pages",           pool.pages },
        { "hits",            hits },
        { "misses",          counted.misses },
        { "admitted",        counted.admitted },
        { "deferred",        counted.deferred },
        { "evicted",         counted.evicted },
        { "restored_tokens", counted.restored_tokens },
        { "restore_ms",      counted.restore_ms },
        { "boundaries",      counted.boundaries },
        { "saved",           pool.saved },
        { "superseded",      pool.superseded },
        { "ram_entries",     pool.ram_entries },
        { "ram_bytes",       pool.ram_bytes },
        { "ram_dropped",     pool.dropped },
        { "disk_entries",    pool.disk_entries },
        { "disk_bytes",      pool.disk_bytes },
        { "disk_written",    pool.disk.written },
        { "disk_failed",     pool.disk.failed },
        { "disk_removed",    pool.disk.removed },
        { "damaged",         pool.disk.damaged },
    };
    return section;
}

std::string server_kvflash_metrics() {
    const json props = server_kvflash_props();
    if (!props.contains("resident_pool")) {
        return "";
    }
    std::ostringstream out;
    const auto add = [&](const std::string & name, const char * kind, const char * help, const std::string & lines) {
        out << "# HELP llamacpp:kvflash_" << name << " " << help << "\n# TYPE llamacpp:kvflash_" << name << " " << kind << "\n" << lines;
    };
    const json & pool = props.at("resident_pool");
    const auto line = [&](const std::string & name, const std::string & field) {
        return "llamacpp:kvflash_" + name + " " + pool.at(field).dump() + "\n";
    };
    for (const auto & [name, help] : std::vector<std::pair<std::string, const char *>> {
            { "budget_tokens", "Tokens that idle slots may hold" }, { "resident_tokens", "Tokens that idle slots hold" },
            { "prefixes", "Idle slots that hold a prefix" }, { "active_tokens", "Tokens of running requests" },
            { "ram_entries", "States in memory" }, { "ram_bytes", "Bytes of states in memory" },
            { "disk_entries", "States on disk, as last seen" }, { "disk_bytes", "Bytes of states on disk, as last seen" } }) {
        add(name, "gauge", help, line(name, name));
    }
    std::string hits;
    for (const auto & [tier, n] : pool.at("hits").items()) {
        hits += "llamacpp:kvflash_hits_total{tier=\"" + tier + "\"} " + n.dump() + "\n";
    }
    add("hits_total", "counter", "Prompts that went on from a known beginning", hits);
    for (const auto & [field, help] : std::vector<std::pair<std::string, const char *>> {
            { "misses", "Prompts without a known beginning" }, { "admitted", "Requests that were given a slot" },
            { "deferred", "Requests that had to wait for room" }, { "evicted", "Idle prefixes that left their slot" },
            { "restored_tokens", "Prompt tokens restored from outside of the slot" }, { "restore_ms", "Milliseconds that restoring took" },
            { "boundaries", "States captured where earlier prompts went another way" },
            { "saved", "States taken into memory" }, { "disk_written", "States written to disk" },
            { "disk_failed", "States that could not be written" }, { "damaged", "Damaged files that were refused" } }) {
        add(field + "_total", "counter", help, line(field + "_total", field));
    }
    return out.str() + server_kvflash_ranker_metrics();
}
