#include "pflash-held.h"

#include <algorithm>

static constexpr size_t SLACK_TOKENS = 64; // a cache may stop short of what it holds, at a page or a checkpoint

static size_t common_prefix(const std::vector<int32_t> & a, const std::vector<int32_t> & b) {
    const size_t n = std::min(a.size(), b.size());
    return std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin();
}

std::list<std::vector<int32_t>>::iterator pflash_held::remove(std::list<std::vector<int32_t>>::iterator it) {
    n_tokens -= it->size();
    return prompts.erase(it);
}

void pflash_held::began(std::vector<int32_t> tokens, size_t n_cached) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto it = prompts.begin(); it != prompts.end();) {
        const size_t n = common_prefix(*it, tokens);
        it = n == it->size() || n > n_cached + SLACK_TOKENS ? remove(it) : std::next(it);
    }
    n_tokens += tokens.size();
    prompts.push_front(std::move(tokens));
    while (prompts.size() > MAX_PROMPTS || (n_tokens > MAX_TOKENS && prompts.size() > 1)) {
        remove(std::prev(prompts.end()));
    }
}

size_t pflash_held::prefix(const std::vector<int32_t> & tokens) const {
    std::lock_guard<std::mutex> lock(mutex);
    size_t longest = 0;
    for (const auto & prompt : prompts) {
        longest = std::max(longest, common_prefix(prompt, tokens));
    }
    return longest;
}
