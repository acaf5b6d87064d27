#include "kvflash-boundaries.h"

#include <algorithm>

std::vector<size_t> kvflash_history::boundaries(const kvflash_seed & seed, const int32_t * tokens, size_t n, size_t max_states) const {
    std::vector<size_t> shared; // with each prompt that went another way
    for (const auto & old : prompts) {
        if (old.seed == seed) {
            const size_t most = std::min(n, old.tokens.size());
            const size_t same = std::mismatch(tokens, tokens + most, old.tokens.begin()).first - tokens;
            if (same >= floor && same < n) {
                shared.push_back(same);
            }
        }
    }
    std::vector<size_t> chosen;
    std::vector<size_t> saved(shared.size(), 0); // by what is chosen
    while (chosen.size() < max_states) {
        size_t best = 0, best_gain = 0;
        for (size_t at : shared) {
            size_t gain = 0;
            for (size_t i = 0; i < shared.size(); i++) {
                gain += at <= shared[i] && at > saved[i] ? at - saved[i] : 0;
            }
            if (gain > best_gain || (gain == best_gain && at < best)) {
                best      = at;
                best_gain = gain;
            }
        }
        if (best_gain < std::max<size_t>(floor, 1)) {
            break;
        }
        chosen.push_back(best);
        for (size_t i = 0; i < shared.size(); i++) {
            saved[i] = best <= shared[i] ? std::max(saved[i], best) : saved[i];
        }
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
}

void kvflash_history::add(const kvflash_seed & seed, std::vector<int32_t> tokens) {
    n_tokens += tokens.size();
    prompts.push_back({ seed, std::move(tokens) });
    while (prompts.size() > max_prompts || n_tokens > max_tokens) {
        n_tokens -= prompts.front().tokens.size();
        prompts.pop_front();
    }
}
