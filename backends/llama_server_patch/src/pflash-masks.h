#pragma once

#include "pflash-text.h"

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

// Frozen masks: what was kept of a segment of a prompt, to be kept again on every later turn, so
// that a conversation's compressed prefix stays the same and the KV cache still holds it.

// The tokens before a segment, as two chained hashes that share no step.
struct pflash_prefix {
    uint64_t hash  = 0x9E3779B97F4A7C15u;
    uint64_t check = 0xD1B54A32D192ED03u;
    size_t   n     = 0;

    void add(const int32_t * tokens, size_t n_tokens);
};

struct pflash_mask_counters {
    uint64_t hits = 0, misses = 0, evictions = 0;
    size_t   entries = 0, bytes = 0;
};

// Thread safe. Holds the entries used last, in at most `max_bytes`. A prompt is served a mask only if
// both hashes and the length of what is before the segment agree, and its tokens and the fingerprint
// are the same, compared one by one.
class pflash_masks {
public:
    static constexpr size_t DEFAULT_MAX_BYTES = 64u << 20;

    explicit pflash_masks(size_t max_bytes = DEFAULT_MAX_BYTES) : max_bytes(max_bytes) {}

    // What is kept of `n` tokens at `segment`, relative to its start; nothing if it is not known.
    // `fingerprint` names the policy that chose.
    std::optional<std::vector<pflash_range>> find(
            const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint);

    // Replaces an earlier mask of the same segment. False, and nothing is stored, if `keep` is not
    // ascending ranges within the segment or the entry alone exceeds the bound.
    bool put(
            const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint,
            const std::vector<pflash_range> & keep);

    // Ranges of what lies before `prefix.n`, remembered for the prefix itself and found by its hashes.
    std::optional<std::vector<pflash_range>> find_before(const pflash_prefix & prefix, const std::string & fingerprint);
    bool put_before(const pflash_prefix & prefix, const std::string & fingerprint, const std::vector<pflash_range> & ranges);

    pflash_mask_counters counters() const;

private:
    struct entry {
        uint64_t             key;
        pflash_prefix        prefix;
        std::vector<int32_t> segment;
        std::string          fingerprint;
        std::vector<std::pair<uint32_t, uint32_t>> keep;

        size_t bytes() const;
    };
    using entry_list = std::list<entry>;

    const size_t max_bytes;
    mutable std::mutex mutex;
    entry_list entries; // the one used last in front
    std::unordered_multimap<uint64_t, entry_list::iterator> by_key;
    pflash_mask_counters counted;

    bool put(
            const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint,
            const std::vector<pflash_range> & keep, size_t end);
    entry_list::iterator lookup(
            uint64_t key, const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint);
    void remove(entry_list::iterator it);
};
