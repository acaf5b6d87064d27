#pragma once

#include "flashlane-args.h"
#include "kvflash-cut.h"
#include "kvflash-evict.h"
#include "kvflash-record.h"
#include "kvflash-store.h"

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include <condition_variable>

// The states that are held outside of the slots: in memory, and in a folder that outlives the server.
// No llama objects: what is stored are bytes.

enum kvflash_tier {
    KVFLASH_TIER_NONE,
    KVFLASH_TIER_SLOT,    // the chosen slot held it
    KVFLASH_TIER_SIBLING, // another slot did
    KVFLASH_TIER_RAM,
    KVFLASH_TIER_DISK,
};

const char * kvflash_tier_name(kvflash_tier tier);

struct kvflash_pool_counters {
    size_t   ram_entries = 0, disk_entries = 0, pages = 0;
    uint64_t ram_bytes = 0, disk_bytes = 0;
    uint64_t saved = 0;      // states taken into memory
    uint64_t superseded = 0; // by a longer state that holds them
    uint64_t dropped = 0;    // from memory, to stay within its bound
    kvflash_store_counters disk;
};

// A state that a prompt can go on from. What it points to stays as long as it does.
struct kvflash_hit {
    kvflash_tier tier = KVFLASH_TIER_NONE;
    size_t n_common = 0; // tokens that the state and the prompt share
    size_t n_usable = 0; // of these, what the state can be cut back to
    kvflash_view view;
    std::shared_ptr<const void> owner;
};

// Calls of one thread; the writer of the disk tier is another one, within.
class kvflash_pool {
public:
    struct limits {
        size_t   tau = 64;
        uint64_t ram_bytes  = 0;
        uint64_t disk_bytes = 0;
        std::string folder; // empty: no disk tier
        int64_t  settle_ms  = 5000; // a state that is superseded within this time is never written
    };

    kvflash_pool(const limits & limits, const kvflash_seed & base, const kvflash_cutting & cutting);
    ~kvflash_pool(); // writes what waits to be written

    // Whether a state in memory already holds that of these tokens, but for less than a page.
    bool holds(const kvflash_seed & seed, const int32_t * tokens, size_t n) const;

    // Takes a record into memory, and towards the disk. It is sealed where it is written: a state that never
    // leaves memory needs no checksum.
    void put(const kvflash_seed & seed, std::shared_ptr<kvflash_record> record);

    // The state of which the prompt can use most, if that is more than `more_than` tokens. Memory is
    // preferred where the disk has less than a page more.
    std::optional<kvflash_hit> find(const kvflash_seed & seed, const int32_t * tokens, size_t n, size_t more_than);

    // Everything in memory is written, as far as the disk tier has room.
    void flush();

    kvflash_pool_counters counters() const;

private:
    struct entry {
        uint64_t id;
        kvflash_seed seed;
        std::shared_ptr<kvflash_record> record;
    };
    struct waiting {
        int64_t due_us;
        kvflash_seed seed;
        std::weak_ptr<kvflash_record> record;
        std::shared_ptr<kvflash_record> held; // of one that left memory
    };

    const limits limit;
    const kvflash_cutting cutting;
    uint64_t next_id = 1;
    kvflash_directory in_ram, on_disk;
    std::unordered_map<uint64_t, kvflash_view> views_on_disk; // checkpoints, without their bytes
    std::list<entry> entries; // the one used last in front
    std::unordered_map<uint64_t, std::list<entry>::iterator> by_id;
    std::unique_ptr<kvflash_store> reader;
    int64_t next_refresh_us = 0;
    kvflash_pool_counters counted;

    // shared with the writer
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<waiting> queue;
    kvflash_store_counters written;
    bool stopping = false, flushing = false, busy = false;
    std::unique_ptr<kvflash_store> writer;
    std::thread thread;

    // What of `n_common` first tokens a state that is restored can be cut back to.
    size_t usable(const kvflash_view & view, size_t n_common) const;
    bool covers(const kvflash_view & view, size_t n) const;
    void remove(std::list<entry>::iterator it, bool to_disk);
    void enqueue(const entry & e, bool at_once);
    void refresh();
    void forget(uint64_t id); // of the disk
    void write_queue();
};
