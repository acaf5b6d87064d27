// Properties of the pure selection over seeded random prompts. Exits non-zero at the first breach.

#include "pflash-select.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s (seed %d)\n", __FILE__, __LINE__, #condition, seed); std::exit(1); } } while (0)

int main() {
    for (int seed = 0; seed < 5000; seed++) {
        std::mt19937 random(seed);
        const size_t n = 1 + random() % 600;
        std::vector<uint8_t> protect(n), starts(n);
        size_t n_open = 0;
        for (size_t i = 0; i < n; i++) {
            protect[i] = random() % 4 == 0;
            starts[i]  = random() % 3 != 0;
            n_open += !protect[i];
        }
        const auto blocks = pflash_blocks(protect, starts, 1 + random() % 40);
        size_t covered = 0;
        for (const auto & block : blocks) {
            CHECK(block.begin < block.end && block.end <= n);
            for (size_t i = block.begin; i < block.end; i++) {
                CHECK(!protect[i]);
            }
            const bool run_start = block.begin == 0 || protect[block.begin - 1];
            CHECK(run_start || starts[block.begin]);
            covered += block.end - block.begin;
        }
        CHECK(covered == n_open);

        const float ratio = (1 + random() % 100) / 100.0f;
        const size_t budget = pflash_budget(n, n_open, ratio, random() % (n + 1));
        CHECK(budget <= n_open);
        CHECK((double) budget >= std::floor(ratio * n_open));
        auto scores = pflash_uniform_scores(blocks.size());
        if (!scores.empty() && seed % 5 == 0) {
            scores[random() % scores.size()] = NAN;
        }
        const auto keep = pflash_select(scores, blocks, protect, budget);
        if (keep.size() < n) {
            CHECK(pflash_validate(keep, protect, budget).empty());
        }
        // a breach of each rule is seen
        if (!keep.empty() && keep.size() < n) {
            auto bad = keep;
            bad.push_back(keep.front());
            CHECK(!pflash_validate(bad, protect, budget).empty() || bad.size() >= n);
            if (protect[keep.front()]) {
                CHECK(!pflash_validate({ keep.begin() + 1, keep.end() }, protect, budget).empty());
            }
            bad = { -1 };
            CHECK(!pflash_validate(bad, protect, budget).empty());
        }
    }
    // an even spread: of 100 blocks the best 20 leave no gap of more than a tenth
    const int seed = -1;
    std::vector<pflash_block> blocks;
    for (size_t b = 0; b < 100; b++) {
        blocks.push_back({ b, b + 1 });
    }
    const auto keep = pflash_select(pflash_uniform_scores(100), blocks, std::vector<uint8_t>(100, 0), 20);
    CHECK(keep.size() == 20 && keep.front() == 0 && keep.back() == 99);
    for (size_t i = 1; i < keep.size(); i++) {
        CHECK(keep[i] - keep[i - 1] <= 10);
    }
    return 0;
}
