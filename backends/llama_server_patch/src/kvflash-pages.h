#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

// The page directory of KVFlash: which stored states begin like a prompt. Pure: no llama objects, no
// I/O, no clock, no threads.

// What beside its tokens a state depends on, as two hashes that share no step.
struct kvflash_seed {
    uint64_t hash  = 0x9E3779B97F4A7C15u;
    uint64_t check = 0xD1B54A32D192ED03u;

    void add(const void * bytes, size_t n_bytes);

    bool operator==(const kvflash_seed & other) const { return hash == other.hash && check == other.check; }
    bool operator!=(const kvflash_seed & other) const { return !(*this == other); }
};

// The names of the whole pages of a prompt, each of `tau` tokens: hashes chained over all pages before and
// the seed.
std::vector<uint64_t> kvflash_page_names(const kvflash_seed & seed, const int32_t * tokens, size_t n, size_t tau);

struct kvflash_match {
    uint64_t id = 0;
    size_t n_common = 0; // first tokens that the state and the prompt share
    size_t n_usable = 0; // of these, what the state can be cut back to; 0: no match
};

class kvflash_directory {
public:
    // `tau` tokens make a page.
    explicit kvflash_directory(size_t tau) : tau(tau) {}

    // Files a state under its tokens. False, and nothing is filed, for an id that is there already and
    // for less than a page of tokens.
    bool add(uint64_t id, const kvflash_seed & seed, std::vector<int32_t> tokens);
    void remove(uint64_t id);

    // The state of which a prompt can use most. `usable` tells to how many of its first `n_common` tokens
    // a state can be cut back, at most `n_common`. Every token is compared; the hashes only find.
    kvflash_match find(
            const kvflash_seed & seed, const int32_t * tokens, size_t n,
            const std::function<size_t(uint64_t id, size_t n_common)> & usable) const;

    // The states that begin with all of these tokens, and those whose tokens are all among the first of these.
    std::vector<uint64_t> beyond(const kvflash_seed & seed, const int32_t * tokens, size_t n) const;
    std::vector<uint64_t> within(const kvflash_seed & seed, const int32_t * tokens, size_t n) const;

    // Null for an id that is not there.
    const std::vector<int32_t> * tokens_of(uint64_t id) const;

    size_t n_entries() const { return entries.size(); }
    size_t n_pages() const { return by_page.size(); } // different ones

private:
    struct entry {
        kvflash_seed seed;
        std::vector<int32_t> tokens;
    };

    const size_t tau;
    std::unordered_map<uint64_t, entry> entries;
    std::unordered_map<uint64_t, std::vector<uint64_t>> by_page; // ids of the states that hold it

    size_t n_common(const entry & e, const kvflash_seed & seed, const int32_t * tokens, size_t n) const;
};
