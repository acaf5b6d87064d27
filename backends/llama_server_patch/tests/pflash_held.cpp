// Which prompts' beginnings are taken for held. Exits non-zero at the first breach.

#include "pflash-held.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

using tokens = std::vector<int32_t>;

static tokens prompt_of(size_t n, int32_t first = 0) {
    tokens prompt(n);
    std::iota(prompt.begin(), prompt.end(), first);
    return prompt;
}

static void test_prefixes() {
    pflash_held held;
    CHECK(held.prefix(prompt_of(100)) == 0);
    held.began(prompt_of(1000), 0);
    held.began(prompt_of(500, 7000), 0);
    CHECK(held.prefix(prompt_of(400)) == 400);
    CHECK(held.prefix(prompt_of(1200)) == 1000);
    auto other = prompt_of(1200);
    other[300] = -1;
    CHECK(held.prefix(other) == 300);
    CHECK(held.prefix(prompt_of(600, 7000)) == 500);
    CHECK(held.prefix({}) == 0);
}

static void test_a_cache_that_held_less() {
    pflash_held held;
    held.began(prompt_of(1000), 0);
    auto other = prompt_of(1000);
    other[900] = -1;
    held.began(other, 850); // stopped short of 900, at a page
    CHECK(held.prefix(prompt_of(1000)) == 1000);
    other[800] = -1;
    held.began(other, 0); // both are gone
    CHECK(held.prefix(prompt_of(1000)) == 800);
}

static void test_bounds() {
    pflash_held held;
    for (int32_t i = 0; i < 100; i++) {
        held.began(prompt_of(10, 1000 * i), 0);
    }
    CHECK(held.prefix(prompt_of(10, 1000 * 99)) == 10);
    CHECK(held.prefix(prompt_of(10, 1000 * (99 - (int32_t) pflash_held::MAX_PROMPTS + 1))) == 10);
    CHECK(held.prefix(prompt_of(10, 1000 * (99 - (int32_t) pflash_held::MAX_PROMPTS))) == 0);
    held.began(prompt_of(pflash_held::MAX_TOKENS + 1, 1 << 24), 0); // alone larger than the bound
    CHECK(held.prefix(prompt_of(10, 1000 * 99)) == 0);
    CHECK(held.prefix(prompt_of(10, 1 << 24)) == 10);
}

static void test_threads() {
    pflash_held held;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&held, t] {
            std::mt19937 random(t);
            for (int i = 0; i < 2000; i++) {
                const auto prompt = prompt_of(random() % 300, random() % 3);
                if (random() % 2) {
                    held.began(prompt, random() % 300);
                } else {
                    CHECK(held.prefix(prompt) <= prompt.size());
                }
            }
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
}

int main() {
    test_prefixes();
    test_a_cache_that_held_less();
    test_bounds();
    test_threads();
}
