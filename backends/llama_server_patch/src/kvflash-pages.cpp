#include "kvflash-pages.h"

#include "flashlane-hash.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

void kvflash_seed::add(const void * bytes, size_t n_bytes) {
    const auto * at = (const uint8_t *) bytes;
    for (size_t i = 0; i <= n_bytes; i += sizeof(uint64_t)) {
        // the last word, which may be empty, holds the length: "ab" + "c" is not "a" + "bc"
        const size_t left = std::min(n_bytes - i, sizeof(uint64_t));
        uint64_t word = left < sizeof(uint64_t) ? (uint64_t) n_bytes << 56 : 0;
        memcpy(&word, at + i, left);
        hash  = flashlane_mix(hash + word + 1);
        check = flashlane_step(check, word + 1);
    }
}

std::vector<uint64_t> kvflash_page_names(const kvflash_seed & seed, const int32_t * tokens, size_t n, size_t tau) {
    std::vector<uint64_t> names;
    names.reserve(n / tau);
    uint64_t name = flashlane_mix(seed.hash ^ seed.check);
    for (size_t i = 0; i + tau <= n; i += tau) {
        for (size_t j = i; j < i + tau; j++) {
            name = flashlane_mix(name + (uint32_t) tokens[j] + 1);
        }
        names.push_back(name);
    }
    return names;
}

bool kvflash_directory::add(uint64_t id, const kvflash_seed & seed, std::vector<int32_t> tokens) {
    const auto names = kvflash_page_names(seed, tokens.data(), tokens.size(), tau);
    if (names.empty() || !entries.emplace(id, entry { seed, std::move(tokens) }).second) {
        return false;
    }
    for (uint64_t name : names) {
        by_page[name].push_back(id);
    }
    return true;
}

void kvflash_directory::remove(uint64_t id) {
    const auto found = entries.find(id);
    if (found == entries.end()) {
        return;
    }
    const auto & tokens = found->second.tokens;
    for (uint64_t name : kvflash_page_names(found->second.seed, tokens.data(), tokens.size(), tau)) {
        const auto page = by_page.find(name);
        auto & ids = page->second;
        ids.erase(std::remove(ids.begin(), ids.end(), id), ids.end());
        if (ids.empty()) {
            by_page.erase(page);
        }
    }
    entries.erase(found);
}

size_t kvflash_directory::n_common(const entry & e, const kvflash_seed & seed, const int32_t * tokens, size_t n) const {
    if (e.seed != seed) {
        return 0;
    }
    const size_t most = std::min(n, e.tokens.size());
    return std::mismatch(tokens, tokens + most, e.tokens.begin()).first - tokens;
}

kvflash_match kvflash_directory::find(
        const kvflash_seed & seed, const int32_t * tokens, size_t n,
        const std::function<size_t(uint64_t id, size_t n_common)> & usable) const {
    const auto names = kvflash_page_names(seed, tokens, n, tau);
    std::unordered_set<uint64_t> seen;
    kvflash_match best;
    for (size_t page = names.size(); page-- > 0;) {
        if (best.n_usable >= (page + 2) * tau) {
            break; // what was not seen yet shares less
        }
        const auto found = by_page.find(names[page]);
        if (found == by_page.end()) {
            continue;
        }
        for (uint64_t id : found->second) {
            if (!seen.insert(id).second) {
                continue;
            }
            const size_t common = n_common(entries.at(id), seed, tokens, n);
            const size_t used   = common > 0 ? std::min(common, usable(id, common)) : 0;
            if (used > best.n_usable) {
                best = { id, common, used };
            }
        }
    }
    return best;
}

std::vector<uint64_t> kvflash_directory::beyond(const kvflash_seed & seed, const int32_t * tokens, size_t n) const {
    std::vector<uint64_t> ids;
    const auto names = kvflash_page_names(seed, tokens, n, tau);
    const auto found = names.empty() ? by_page.end() : by_page.find(names.back());
    if (found != by_page.end()) {
        for (uint64_t id : found->second) {
            if (n_common(entries.at(id), seed, tokens, n) == n) {
                ids.push_back(id);
            }
        }
    }
    return ids;
}

std::vector<uint64_t> kvflash_directory::within(const kvflash_seed & seed, const int32_t * tokens, size_t n) const {
    std::vector<uint64_t> ids;
    const auto names = kvflash_page_names(seed, tokens, n, tau);
    for (size_t page = 0; page < names.size(); page++) {
        const auto found = by_page.find(names[page]);
        if (found == by_page.end()) {
            break;
        }
        for (uint64_t id : found->second) {
            const auto & e = entries.at(id);
            if (e.tokens.size() / tau == page + 1 && n_common(e, seed, tokens, n) == e.tokens.size()) {
                ids.push_back(id);
            }
        }
    }
    return ids;
}

const std::vector<int32_t> * kvflash_directory::tokens_of(uint64_t id) const {
    const auto found = entries.find(id);
    return found == entries.end() ? nullptr : &found->second.tokens;
}
