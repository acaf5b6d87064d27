// Ranking and frozen masks: concrete cases and seeded properties. Exits non-zero at the first breach.
// One argument runs one group.

#include "groups.h"
#include "pflash-masks.h"
#include "pflash-rank.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s (seed %d)\n", __FILE__, __LINE__, #condition, seed); std::exit(1); } } while (0)

using indices = std::vector<uint32_t>;

static int seed = -1;

static indices first_of(const indices & order, size_t n) {
    return indices(order.begin(), order.begin() + n);
}

static pflash_rank_input ten_spans() {
    pflash_rank_input input;
    input.sizes  = indices(10, 10);
    input.scores = { 1, 9, 2, 8, 3, 7, 4, 6, 5, 0 };
    input.bm25   = { 0, 0, 5, 0, 4, 0, 3, 0, 0, 0 };
    input.budget = 50;
    input.ends   = false;
    return input;
}

static void test_rank() {
    auto input = ten_spans();
    // two picks by score, one by BM25, until BM25 has no more evidence
    CHECK((pflash_rank(input).order == indices { 1, 3, 2, 5, 7, 4, 8, 6, 0, 9 }));
    input.scorer_turns = 1;
    input.bm25_turns   = 2;
    CHECK((pflash_rank(input).order == indices { 1, 2, 4, 3, 6, 5, 7, 8, 0, 9 }));
    input = ten_spans();
    input.scores.clear();
    const auto lexical = pflash_rank(input).order;
    CHECK((indices(lexical.begin(), lexical.begin() + 3) == indices { 2, 4, 6 }));
    // the ends, then literals: the rarer first; of common ones the best, within half of the budget
    input = ten_spans();
    input.ends     = true;
    input.budget   = 80;
    input.literals = { { 4, 6 }, { 8 }, { 0, 1, 2 }, {} };
    const auto rescued = pflash_rank(input).order;
    CHECK((first_of(rescued, 8) == indices { 0, 9, 8, 4, 6, 2, 1, 3 }));
    input.sizes[8] = 50; // more than half of the budget
    CHECK((first_of(pflash_rank(input).order, 7) == indices { 0, 9, 4, 6, 8, 2, 1 }));
    input = ten_spans();
    input.budget   = 40;
    input.literals = { { 0, 1, 2, 3, 5 } };
    CHECK((first_of(pflash_rank(input).order, 5) == indices { 2, 1, 3, 5, 4 })); // two of it, then turns
    // an end of more than an eighth of the budget waits for its turn
    input = ten_spans();
    input.ends   = true;
    input.budget = 79;
    CHECK(pflash_rank(input).order[0] == 1);
    // a neighbour comes along, once
    input = ten_spans();
    input.leans    = std::vector<uint8_t>(10, 0);
    input.leans[1] = input.leans[3] = 1;
    const auto led = pflash_rank(input).order;
    CHECK((indices(led.begin(), led.begin() + 5) == indices { 1, 0, 3, 2, 4 }));
    // what has no finite score is never taken, whatever else speaks for it
    input = ten_spans();
    input.ends       = true;
    input.scores[0]  = NAN;
    input.scores[3]  = std::numeric_limits<float>::infinity();
    input.scores.resize(9);
    input.bm25[2]    = NAN;
    input.literals   = { { 0 }, { 99 } };
    const auto finite = pflash_rank(input).order;
    CHECK(finite.size() == 7);
    for (uint32_t never : { 0u, 3u, 9u }) {
        CHECK(std::find(finite.begin(), finite.end(), never) == finite.end());
    }
    CHECK(pflash_rank({}).order.empty());
}

// The question shares words with the first paragraph alone; another span has the second score.
static pflash_rank_input four_paragraphs() {
    pflash_rank_input input;
    input.sizes      = indices(12, 10);
    input.scores     = { 1, 10, 2, 0, 0, 0, 1, 1, 1, 1, 4, 1 };
    input.bm25       = { 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    input.paragraphs = { 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3 };
    input.budget     = 60;
    input.ends       = false;
    return input;
}

static void test_paragraphs() {
    auto input = four_paragraphs();
    CHECK((pflash_first_hop(input) == indices { 1, 2, 0 }));
    CHECK((first_of(pflash_rank(input).order, 4) == indices { 1, 2, 0, 10 }));
    input.paragraphs.clear();
    CHECK((first_of(pflash_rank(input).order, 3) == indices { 1, 10, 2 }));
    // a name of the first hop leads to a paragraph that nothing else speaks for; a common one leads nowhere
    input = four_paragraphs();
    input.bridges   = { { 1, { 1, 3 } } };
    const auto over = pflash_rank(input).order;
    CHECK(std::find(over.begin(), over.begin() + 4, 3u) != over.begin() + 4);
    input.bridges = { { 1, { 1, 3, 7, 9 } } };
    CHECK(pflash_rank(input).order == pflash_rank(four_paragraphs()).order);
    // within it the span that the question needs comes before the others
    input.scores[5] = 4;
    input.bridges   = { { 1, { 1, 3 } } };
    const auto needed = pflash_rank(input).order;
    CHECK(std::find(needed.begin(), needed.end(), 5u) < std::find(needed.begin(), needed.end(), 4u));
    // what is never taken is no first hop, and numbers out of range do no harm
    input.scores[1]  = NAN;
    input.bridges    = { { 99, { 3, 99 } } };
    input.paragraphs = indices(3, 77);
    CHECK(pflash_rank(input).order.size() == 11 && pflash_first_hop(input)[0] != 1);
    CHECK(pflash_first_hop({}).empty());
}

static void test_adaptive() {
    std::mt19937 random(1);
    std::normal_distribution<float> noise(0.0f, 0.3f);
    pflash_rank_input input;
    input.sizes      = indices(200, 10);
    input.budget     = 100;
    input.max_budget = 400;
    for (int s = 0; s < 200; s++) {
        input.scores.push_back(noise(random));
    }
    // one span that stands out needs no more
    auto peak = input;
    peak.scores[77] = 20.0f;
    const auto calm = pflash_rank(peak);
    CHECK(!calm.raised && calm.budget == 100 && calm.spread > 0.9f && calm.spread < 3.0f);
    // thirty that do need thrice as much
    auto many = input;
    for (int s = 0; s < 30; s++) {
        many.scores[6 * s + 3] = 20.0f;
    }
    const auto spread = pflash_rank(many);
    CHECK(spread.raised && spread.budget > 250 && spread.budget <= 320);
    CHECK(std::fabs(spread.spread - 30.0f) < 2.0f);
    many.max_budget = 150;
    CHECK(pflash_rank(many).raised && pflash_rank(many).budget == 150);
    // nothing stands out
    auto flat = input;
    flat.scores.assign(200, 1.0f);
    CHECK(pflash_rank(flat).raised && pflash_rank(flat).budget == 400);
    flat.max_budget = 100;
    CHECK(!pflash_rank(flat).raised && pflash_rank(flat).budget == 100);
    CHECK(pflash_spread({}) == 0.0f && pflash_spread({ NAN }) == 0.0f);
    // the measure does not depend on the scores' unit or zero
    auto scaled = many.scores;
    for (auto & score : scaled) {
        score = score * 1000.0f - 5.0f;
    }
    CHECK(std::fabs(pflash_spread(scaled) - pflash_spread(many.scores)) < 0.1f);
}

static void test_take() {
    CHECK((pflash_take({ 2, 0, 1 }, { 5, 3, 4 }, 7) == std::vector<uint8_t> { 0, 1, 1 })); // 0 does not fit
    CHECK((pflash_take({ 2, 2, 9 }, { 5, 3, 4 }, 8) == std::vector<uint8_t> { 0, 0, 1 }));
    CHECK((pflash_take({ 0, 1 }, { 5, 3, 4 }, 5, { 0, 1, 0 }) == std::vector<uint8_t> { 1, 1, 0 }));

    for (seed = 0; seed < 4000; seed++) {
        std::mt19937 random(seed);
        const size_t n = random() % 60;
        pflash_rank_input input;
        for (size_t s = 0; s < n; s++) {
            input.sizes.push_back(random() % 30);
            input.scores.push_back(random() % 8 == 0 ? NAN : (float) (random() % 50));
            input.bm25.push_back((float) (random() % 3));
            input.leans.push_back(random() % 3 == 0);
        }
        if (seed % 4 == 0) {
            input.scores.clear();
        }
        for (size_t l = random() % 4; l > 0; l--) {
            input.literals.emplace_back();
            for (size_t k = random() % 4; k > 0; k--) {
                input.literals.back().push_back(random() % (n + 3));
            }
        }
        input.budget     = random() % 400;
        input.max_budget = random() % 800;
        input.ends       = random() % 2;
        input.scorer_turns = random() % 4;
        input.bm25_turns   = random() % 4;
        const auto ranking = pflash_rank(input);
        auto order = ranking.order;
        std::sort(order.begin(), order.end());
        indices expected;
        for (uint32_t s = 0; s < n; s++) {
            if (input.scores.empty() || std::isfinite(input.scores[s])) {
                expected.push_back(s);
            }
        }
        CHECK(order == expected);
        CHECK(ranking.budget >= input.budget && ranking.budget <= std::max(input.budget, input.max_budget));
        CHECK(ranking.raised == (ranking.budget > input.budget));
        const auto kept = pflash_take(ranking.order, input.sizes, ranking.budget);
        size_t tokens = 0;
        for (size_t s = 0; s < n; s++) {
            tokens += kept[s] ? input.sizes[s] : 0;
        }
        CHECK(tokens <= ranking.budget);
        for (uint32_t s : ranking.order) {
            CHECK(kept[s] || input.sizes[s] + tokens > ranking.budget); // no room is left unused
        }
    }
    seed = -1;
}

static std::vector<int32_t> tokens_of(int from, size_t n) {
    std::vector<int32_t> tokens(n);
    std::iota(tokens.begin(), tokens.end(), from);
    return tokens;
}

static bool same(const std::optional<std::vector<pflash_range>> & a, const std::vector<pflash_range> & b) {
    return a && std::equal(a->begin(), a->end(), b.begin(), b.end(), [](const auto & x, const auto & y) { return x.begin == y.begin && x.end == y.end; });
}

static pflash_prefix before(const int32_t * tokens, size_t n) {
    pflash_prefix prefix;
    prefix.add(tokens, n);
    return prefix;
}

static std::optional<std::vector<pflash_range>> find_in(
        pflash_masks & masks, const int32_t * tokens, size_t begin, size_t end, const std::string & fingerprint) {
    return masks.find(before(tokens, begin), tokens + begin, end - begin, fingerprint);
}

static bool put_in(
        pflash_masks & masks, const int32_t * tokens, size_t begin, size_t end, const std::string & fingerprint,
        const std::vector<pflash_range> & keep) {
    return masks.put(before(tokens, begin), tokens + begin, end - begin, fingerprint, keep);
}

static void test_masks() {
    pflash_masks masks;
    auto prompt = tokens_of(0, 100);
    const std::vector<pflash_range> keep = { { 0, 3 }, { 10, 20 } };
    CHECK(!find_in(masks, prompt.data(), 40, 90, "p"));
    CHECK(put_in(masks, prompt.data(), 40, 90, "p", keep));
    CHECK(same(find_in(masks, prompt.data(), 40, 90, "p"), keep));
    CHECK(!find_in(masks, prompt.data(), 40, 90, "q") && !find_in(masks, prompt.data(), 40, 89, "p") && !find_in(masks, prompt.data(), 39, 90, "p"));
    for (size_t i = 0; i < 90; i++) {
        auto other = prompt;
        other[i]++;
        CHECK(!find_in(masks, other.data(), 40, 90, "p"));
    }
    prompt[95]++; // behind the segment
    CHECK(same(find_in(masks, prompt.data(), 40, 90, "p"), keep));
    // a later choice replaces the earlier one; a segment may be whole or empty
    CHECK(put_in(masks, prompt.data(), 40, 90, "p", { { 0, 50 } }) && same(find_in(masks, prompt.data(), 40, 90, "p"), { { 0, 50 } }));
    CHECK(put_in(masks, prompt.data(), 0, 0, "p", {}) && same(find_in(masks, prompt.data(), 0, 0, "p"), {}));
    CHECK(masks.counters().entries == 2 && masks.counters().hits == 4 && masks.counters().misses == 94);
    const std::vector<std::vector<pflash_range>> bad = { { { 0, 51 } }, { { 5, 5 } }, { { 5, 9 }, { 8, 12 } }, { { 20, 30 }, { 1, 2 } } };
    for (const auto & ranges : bad) {
        CHECK(!put_in(masks, prompt.data(), 40, 90, "bad", ranges) && !find_in(masks, prompt.data(), 40, 90, "bad"));
    }
    // two prompts that one hash takes for the same
    pflash_prefix prefix;
    prefix.add(prompt.data(), 40);
    for (int part = 0; part < 3; part++) {
        auto forged = prefix;
        (part == 0 ? forged.hash : forged.check) += part < 2;
        forged.n += part == 2;
        CHECK(!masks.find(forged, prompt.data() + 40, 50, "p"));
    }
    CHECK(masks.find(prefix, prompt.data() + 40, 50, "p"));

    // what is remembered for a prefix itself reaches back into it, and no mask is taken for it
    CHECK(!masks.find_before(prefix, "p") && masks.put_before(prefix, "p", { { 0, 40 } }));
    CHECK(same(masks.find_before(prefix, "p"), { { 0, 40 } }) && !masks.find_before(before(prompt.data(), 39), "p"));
    CHECK(!masks.put_before(prefix, "q", { { 0, 41 } }));
    // chained: in pieces or at once
    pflash_prefix pieces;
    pieces.add(prompt.data(), 7);
    pieces.add(prompt.data() + 7, 33);
    CHECK(pieces.hash == prefix.hash && pieces.check == prefix.check && pieces.n == 40);
}

static void test_lru() {
    pflash_masks masks(20000);
    const auto prompt = tokens_of(0, 2000);
    CHECK(!put_in(masks, tokens_of(0, 6000).data(), 0, 6000, "p", { { 0, 1 } }) && masks.counters().bytes == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(put_in(masks, prompt.data() + i, 0, 1000, "p", { { 0, 10 } }));
        CHECK(find_in(masks, prompt.data(), 0, 1000, "p")); // kept by its use
        CHECK(masks.counters().bytes <= 20000);
    }
    const auto counters = masks.counters();
    CHECK(counters.entries == 4 && counters.evictions == 6);
    CHECK(!find_in(masks, prompt.data() + 1, 0, 1000, "p") && find_in(masks, prompt.data() + 9, 0, 1000, "p"));
    // one mask of a 1,000-token segment costs little more than its tokens
    CHECK(counters.bytes / counters.entries < 4000 + 400);
    for (int i = 0; i < 100; i++) {
        CHECK(put_in(masks, prompt.data(), 0, 1000, "p", { { (size_t) i, 500 } }));
    }
    CHECK(masks.counters().entries == 4 && masks.counters().bytes == counters.bytes);
}

static void test_threads() {
    pflash_masks masks(200000);
    const auto prompt = tokens_of(0, 4000);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            for (int i = 0; i < 3000; i++) {
                const size_t begin = random() % 200, end = begin + 1 + random() % 300;
                const std::vector<pflash_range> keep = { { (begin + end) % (end - begin), end - begin } };
                if (random() % 2) {
                    put_in(masks, prompt.data(), begin, end, "p", keep);
                } else {
                    const auto found = find_in(masks, prompt.data(), begin, end, "p");
                    CHECK(!found || same(found, keep));
                }
                CHECK(masks.counters().bytes <= 200000);
            }
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    const auto counters = masks.counters();
    CHECK(counters.entries > 0 && counters.hits > 0 && counters.evictions > 0);
}

int main(int argc, char ** argv) {
    return run_groups(argc, argv, {
        { "rank", test_rank }, { "paragraphs", test_paragraphs }, { "adaptive", test_adaptive },
        { "take", test_take }, { "masks", test_masks }, { "lru", test_lru }, { "threads", test_threads } });
}
