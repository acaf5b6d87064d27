#include "kvflash-pool.h"

#include <algorithm>
#include <chrono>

static constexpr int64_t REFRESH_US = 1000000; // how often the folder is looked at for what others wrote

static int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char * kvflash_tier_name(kvflash_tier tier) {
    switch (tier) {
        case KVFLASH_TIER_NONE:    return "none";
        case KVFLASH_TIER_SLOT:    return "slot";
        case KVFLASH_TIER_SIBLING: return "sibling";
        case KVFLASH_TIER_RAM:     return "ram";
        case KVFLASH_TIER_DISK:    return "disk";
    }
    return "none";
}

kvflash_pool::kvflash_pool(const limits & limits, const kvflash_seed & base, const kvflash_cutting & cutting) :
    limit(limits), cutting(cutting), in_ram(limits.tau), on_disk(limits.tau) {
    if (limit.folder.empty()) {
        return;
    }
    // one for each thread: the folder is what they share
    reader = std::make_unique<kvflash_store>(limit.folder, base, limit.disk_bytes);
    reader->prepare();
    writer = std::make_unique<kvflash_store>(limit.folder, base, limit.disk_bytes);
    thread = std::thread([this] { write_queue(); });
}

kvflash_pool::~kvflash_pool() {
    if (!thread.joinable()) {
        return;
    }
    flush();
    {
        std::lock_guard<std::mutex> lock(mutex);
        stopping = true;
    }
    changed.notify_all();
    thread.join();
}

size_t kvflash_pool::usable(const kvflash_view & view, size_t n_common) const {
    return kvflash_cut(cutting, view, kvflash_pos_min(cutting, view.n_tokens), n_common);
}

bool kvflash_pool::covers(const kvflash_view & view, size_t n) const {
    return usable(view, n) + limit.tau > n;
}

bool kvflash_pool::holds(const kvflash_seed & seed, const int32_t * tokens, size_t n) const {
    const auto ids = in_ram.beyond(seed, tokens, n);
    return std::any_of(ids.begin(), ids.end(), [&](uint64_t id) { return covers(by_id.at(id)->record->view(), n); });
}

void kvflash_pool::put(const kvflash_seed & seed, std::shared_ptr<kvflash_record> record) {
    const auto & view = record->view();
    if (record->size() > limit.ram_bytes) {
        if (writer) {
            enqueue({ 0, seed, std::move(record) }, true); // too large for memory, not for the disk
        }
        return;
    }
    // those that the new one holds, and can be cut back to, say nothing that it does not
    for (uint64_t id : in_ram.within(seed, view.tokens, view.n_tokens)) {
        const auto old = by_id.at(id);
        if (covers(view, old->record->view().n_tokens)) {
            remove(old, false);
            counted.superseded++;
        }
    }
    counted.ram_bytes += record->size();
    while (counted.ram_bytes > limit.ram_bytes && !entries.empty()) {
        remove(std::prev(entries.end()), true);
        counted.dropped++;
    }
    const uint64_t id = next_id++;
    if (!in_ram.add(id, seed, { view.tokens, view.tokens + view.n_tokens })) {
        counted.ram_bytes -= record->size();
        return; // less than a page
    }
    entries.push_front({ id, seed, std::move(record) });
    by_id[id] = entries.begin();
    counted.saved++;
    if (writer) {
        enqueue(entries.front(), false);
    }
}

void kvflash_pool::remove(std::list<entry>::iterator it, bool to_disk) {
    if (to_disk && writer) {
        enqueue(*it, true);
    }
    counted.ram_bytes -= it->record->size();
    in_ram.remove(it->id);
    by_id.erase(it->id);
    entries.erase(it);
}

std::optional<kvflash_hit> kvflash_pool::find(const kvflash_seed & seed, const int32_t * tokens, size_t n, size_t more_than) {
    const auto of_memory = [&](uint64_t id, size_t n_common) { return usable(by_id.at(id)->record->view(), n_common); };
    const auto match = in_ram.find(seed, tokens, n, of_memory);
    const size_t in_memory = std::max(match.n_usable, more_than);
    if (reader) {
        refresh();
        const auto of_disk = [&](uint64_t id, size_t n_common) { return usable(views_on_disk.at(id), n_common); };
        for (auto on = on_disk.find(seed, tokens, n, of_disk); on.n_usable >= in_memory + limit.tau; on = on_disk.find(seed, tokens, n, of_disk)) {
            if (std::shared_ptr<kvflash_loaded> loaded = reader->read(on.id, seed)) {
                return kvflash_hit { KVFLASH_TIER_DISK, on.n_common, on.n_usable, loaded->view, loaded };
            }
            forget(on.id); // gone, or damaged
        }
    }
    if (match.n_usable <= more_than) {
        return std::nullopt;
    }
    const auto it = by_id.at(match.id);
    entries.splice(entries.begin(), entries, it);
    return kvflash_hit { KVFLASH_TIER_RAM, match.n_common, match.n_usable, it->record->view(), it->record };
}

void kvflash_pool::refresh() {
    if (now_us() < next_refresh_us) {
        return;
    }
    std::vector<kvflash_store::found> added;
    std::vector<uint64_t> gone;
    reader->refresh(added, gone);
    for (uint64_t id : gone) {
        forget(id);
    }
    for (auto & record : added) {
        views_on_disk[record.id] = record.view;
        on_disk.add(record.id, record.seed, std::move(record.tokens));
    }
    next_refresh_us = now_us() + REFRESH_US;
}

void kvflash_pool::forget(uint64_t id) {
    on_disk.remove(id);
    views_on_disk.erase(id);
}

void kvflash_pool::enqueue(const entry & e, bool at_once) {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back({ now_us() + (at_once ? 0 : 1000 * limit.settle_ms), e.seed, e.record, at_once ? e.record : nullptr });
    changed.notify_all();
}

void kvflash_pool::flush() {
    std::unique_lock<std::mutex> lock(mutex);
    flushing = true;
    changed.notify_all();
    changed.wait(lock, [&] { return queue.empty() && !busy; });
    flushing = false;
}

void kvflash_pool::write_queue() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
        const auto next = std::min_element(queue.begin(), queue.end(), [](const waiting & a, const waiting & b) { return a.due_us < b.due_us; });
        if (next == queue.end()) {
            if (stopping) {
                return;
            }
            changed.wait(lock);
            continue;
        }
        const int64_t wait_us = next->due_us - now_us();
        if (wait_us > 0 && !stopping && !flushing) {
            changed.wait_for(lock, std::chrono::microseconds(wait_us));
            continue;
        }
        const waiting job = std::move(*next);
        queue.erase(next);
        const auto record = job.held ? job.held : job.record.lock();
        if (record) { // else it was superseded
            busy = true;
            lock.unlock();
            record->seal(job.seed);
            writer->write(*record, job.seed);
            lock.lock();
            busy = false;
            written = writer->counters();
        }
        changed.notify_all();
    }
}

kvflash_pool_counters kvflash_pool::counters() const {
    kvflash_pool_counters now = counted;
    now.ram_entries  = in_ram.n_entries();
    now.disk_entries = on_disk.n_entries();
    now.pages        = in_ram.n_pages();
    if (reader) {
        now.disk_bytes = reader->bytes();
        now.disk       = reader->counters();
        std::lock_guard<std::mutex> lock(mutex);
        now.disk.written  = written.written;
        now.disk.failed   = written.failed;
        now.disk.removed += written.removed;
    }
    return now;
}
