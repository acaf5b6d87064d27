#pragma once

#include "kvflash-record.h"

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

// Records in a folder, which other servers may share. Damage, loss and a full disk are misses, never
// errors. Not thread safe.

struct kvflash_store_counters {
    uint64_t written  = 0;
    uint64_t failed   = 0; // to write
    uint64_t damaged  = 0; // files that were refused, and removed
    uint64_t removed  = 0; // to stay within the bound
};

// A record in memory of its own: in a mapped file, bytes could change after they were checked.
struct kvflash_loaded {
    std::shared_ptr<const kvflash_memory> bytes;
    kvflash_view view;
};

class kvflash_store {
public:
    // Records of `base` (model, build, parameters) lie in a folder of their own below `folder`, open to this user
    // alone. All the folders together hold at most `max_bytes`; what was used last stays.
    kvflash_store(std::string folder, const kvflash_seed & base, uint64_t max_bytes);

    struct found {
        uint64_t id;
        kvflash_seed seed;
        std::vector<int32_t> tokens;
        kvflash_view view; // without tokens and bytes
        uint64_t bytes;
    };

    // What was added to the folder since the last call, by this server or another, and the ids of what is gone.
    void refresh(std::vector<found> & added, std::vector<uint64_t> & gone);

    // Gets the memory for reading the largest file that is there, so that the first request need not wait for it.
    void prepare();

    // Null where the file is gone, or damaged, which removes it, or where there is no memory for it. The memory
    // stays for the next one.
    std::unique_ptr<kvflash_loaded> read(uint64_t id, const kvflash_seed & seed);

    // Writes a sealed record whole or not at all; a crash leaves nothing that is taken for one. The file is named
    // after seed and tokens, so the same state has one. Returns false, and counts, on failure.
    bool write(const kvflash_record & record, const kvflash_seed & seed);

    uint64_t bytes() const; // of this base's files, as last seen
    const kvflash_store_counters & counters() const { return counted; }

private:
    struct file {
        std::string name;
        uint64_t    bytes;
    };

    const std::string folder;
    const std::string own; // below it
    const uint64_t    max_bytes;
    uint64_t next_id = 1;
    std::unordered_map<uint64_t, file>        files;
    std::unordered_map<std::string, uint64_t> by_name;
    std::shared_ptr<kvflash_memory> memory; // of the last record that was read
    std::unordered_set<std::string> refused; // damaged, and could not be removed
    kvflash_store_counters counted;

    std::shared_ptr<kvflash_memory> memory_of(uint64_t size);
    bool read_head(const std::string & name, found & record);
    void remove_damaged(const std::string & name);
    void forget(uint64_t id);
    void make_room(uint64_t wanted, const std::string & except);
};
