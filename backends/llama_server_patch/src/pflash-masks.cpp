#include "pflash-masks.h"

#include "flashlane-hash.h"

#include <algorithm>

static uint64_t key_of(const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint) {
    uint64_t key = prefix.hash;
    for (size_t i = 0; i < n; i++) {
        key = flashlane_mix(key + (uint32_t) segment[i] + 1);
    }
    for (char c : fingerprint) {
        key = flashlane_mix(key + (uint8_t) c + 1);
    }
    return key;
}

void pflash_prefix::add(const int32_t * tokens, size_t n_tokens) {
    for (size_t i = 0; i < n_tokens; i++) {
        hash  = flashlane_mix(hash + (uint32_t) tokens[i] + 1);
        check = flashlane_step(check, (uint32_t) tokens[i] + 1);
    }
    n += n_tokens;
}

size_t pflash_masks::entry::bytes() const {
    constexpr size_t NODES = 8 * sizeof(void *); // of the list and of the map
    return sizeof(entry) + NODES + segment.capacity() * sizeof(int32_t) + fingerprint.capacity() + keep.capacity() * sizeof(keep[0]);
}

pflash_masks::entry_list::iterator pflash_masks::lookup(
        uint64_t key, const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint) {
    const auto [first, last] = by_key.equal_range(key);
    for (auto it = first; it != last; ++it) {
        const entry & e = *it->second;
        if (e.prefix.hash == prefix.hash && e.prefix.check == prefix.check && e.prefix.n == prefix.n && e.segment.size() == n &&
                e.fingerprint == fingerprint && std::equal(e.segment.begin(), e.segment.end(), segment)) {
            return it->second;
        }
    }
    return entries.end();
}

void pflash_masks::remove(entry_list::iterator it) {
    const auto [first, last] = by_key.equal_range(it->key);
    by_key.erase(std::find_if(first, last, [&](const auto & item) { return item.second == it; }));
    counted.bytes -= it->bytes();
    entries.erase(it);
}

std::optional<std::vector<pflash_range>> pflash_masks::find(
        const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint) {
    const uint64_t key = key_of(prefix, segment, n, fingerprint);
    std::lock_guard<std::mutex> lock(mutex);
    const auto it = lookup(key, prefix, segment, n, fingerprint);
    if (it == entries.end()) {
        counted.misses++;
        return std::nullopt;
    }
    counted.hits++;
    entries.splice(entries.begin(), entries, it);
    std::vector<pflash_range> keep;
    keep.reserve(it->keep.size());
    for (const auto & [begin, end] : it->keep) {
        keep.push_back({ begin, end });
    }
    return keep;
}

bool pflash_masks::put(
        const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint,
        const std::vector<pflash_range> & keep) {
    return put(prefix, segment, n, fingerprint, keep, n);
}

bool pflash_masks::put(
        const pflash_prefix & prefix, const int32_t * segment, size_t n, const std::string & fingerprint,
        const std::vector<pflash_range> & keep, size_t end) {
    entry made { key_of(prefix, segment, n, fingerprint), prefix, { segment, segment + n }, fingerprint, {} };
    made.keep.reserve(keep.size());
    size_t last = 0;
    for (const auto & range : keep) {
        if (range.begin < last || range.end <= range.begin || range.end > end || end > UINT32_MAX) {
            return false;
        }
        made.keep.emplace_back((uint32_t) range.begin, (uint32_t) range.end);
        last = range.end;
    }
    if (made.bytes() > max_bytes) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex);
    const auto earlier = lookup(made.key, prefix, segment, n, fingerprint);
    if (earlier != entries.end()) {
        remove(earlier);
    }
    counted.bytes += made.bytes();
    entries.push_front(std::move(made));
    by_key.emplace(entries.front().key, entries.begin());
    while (counted.bytes > max_bytes) {
        remove(std::prev(entries.end()));
        counted.evictions++;
    }
    return true;
}

std::optional<std::vector<pflash_range>> pflash_masks::find_before(const pflash_prefix & prefix, const std::string & fingerprint) {
    return find(prefix, nullptr, 0, fingerprint);
}

bool pflash_masks::put_before(const pflash_prefix & prefix, const std::string & fingerprint, const std::vector<pflash_range> & ranges) {
    return put(prefix, nullptr, 0, fingerprint, ranges, prefix.n);
}

pflash_mask_counters pflash_masks::counters() const {
    std::lock_guard<std::mutex> lock(mutex);
    auto result = counted;
    result.entries = entries.size();
    return result;
}
