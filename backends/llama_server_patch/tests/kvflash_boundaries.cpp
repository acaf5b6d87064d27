// How far states can be cut back, and where they are worth capturing: concrete cases and seeded properties.
// Exits non-zero at the first breach. One argument runs one group.

#include "groups.h"
#include "kvflash-boundaries.h"
#include "kvflash-cut.h"
#include "kvflash_prompts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s (seed %d)\n", __FILE__, __LINE__, #condition, seed); std::exit(1); } } while (0)

static int seed = -1;

using lengths = std::vector<size_t>;

static kvflash_view state_of(size_t n_tokens, const std::vector<kvflash_checkpoint> & checkpoints = {}) {
    kvflash_view view;
    view.n_tokens    = n_tokens;
    view.checkpoints = checkpoints;
    return view;
}

static void test_cut() {
    const kvflash_cutting plain, recurrent { true, 0 }, window { false, 64 };
    CHECK(plain.anywhere() && !recurrent.anywhere() && !window.anywhere());
    CHECK(kvflash_pos_min(plain, 500) == 0 && kvflash_pos_min(recurrent, 500) == 499);
    CHECK(kvflash_pos_min(window, 500) == 436 && kvflash_pos_min(window, 64) == 0 && kvflash_pos_min(window, 3) == 0);

    CHECK(kvflash_cut(plain, state_of(500), 0, 123) == 123 && kvflash_cut(plain, state_of(500), 0, 900) == 500);

    const auto marked = state_of(500, { { 100, 99, 99, {}, {}, {} }, { 300, 299, 299, {}, {}, {} } });
    CHECK(kvflash_cut(recurrent, marked, 499, 500) == 500 && kvflash_cut(recurrent, marked, 499, 499) == 300);
    CHECK(kvflash_cut(recurrent, marked, 499, 300) == 300 && kvflash_cut(recurrent, marked, 499, 299) == 100);
    CHECK(kvflash_cut(recurrent, marked, 499, 99) == 0 && kvflash_cut(recurrent, state_of(500), 499, 499) == 0);

    // a window that is still whole before the cut, one that is not, and one that has seen all there is
    CHECK(kvflash_cut(window, state_of(500), 300, 400) == 400 && kvflash_cut(window, state_of(500), 336, 400) == 0);
    CHECK(kvflash_cut(window, state_of(60), 0, 7) == 7);
    const auto windows = state_of(500, { { 100, 20, 99, {}, {}, {} }, { 300, 230, 299, {}, {}, {} } });
    CHECK(kvflash_cut(window, windows, 436, 400) == 299 && kvflash_cut(window, windows, 436, 300) == 299);
    CHECK(kvflash_cut(window, windows, 436, 294) == 99 && kvflash_cut(window, windows, 436, 90) == 0);
}

static lengths learn(const std::vector<tokens> & before, const tokens & prompt, size_t max_states = 8, size_t floor = 16) {
    kvflash_history history(floor, 16, 100000);
    for (const auto & old : before) {
        history.add(seed_of("a"), old);
    }
    CHECK(history.boundaries(seed_of("b"), prompt.data(), prompt.size(), max_states).empty());
    return history.boundaries(seed_of("a"), prompt.data(), prompt.size(), max_states);
}

static void test_boundaries() {
    const auto system = counted(0, 40), document = joined(system, counted(1000, 60));
    const auto asked = [&](int32_t what) { return joined(document, counted(what, 20)); };
    CHECK(learn({}, asked(5000)).empty());
    CHECK(learn({ asked(5000) }, asked(6000)) == lengths { 100 });
    // questions that begin alike by chance do not move it
    CHECK((learn({ asked(5000), joined(asked(6000), counted(1, 5)), joined(document, counted(7000, 3)) },
        joined(joined(document, counted(7000, 2)), counted(9, 9))) == lengths { 100 }));
    // another document under the same system prompt
    const auto other = joined(system, counted(2000, 60));
    CHECK((learn({ other, asked(5000) }, asked(6000)) == lengths { 40, 100 }));
    // with room for one alone, the one that saves more: 40 twice and 100 once, or 40 thrice
    CHECK((learn({ other, asked(5000) }, asked(6000), 1) == lengths { 100 }));
    CHECK((learn({ joined(system, counted(3000, 9)), other, joined(system, counted(4000, 9)), asked(5000) }, asked(6000), 1) == lengths { 40 }));
    CHECK(learn({ other, asked(5000) }, asked(6000), 0).empty());
    // what the prompt repeats, or goes on from, needs no state before its end
    CHECK(learn({ asked(5000) }, asked(5000)).empty());
    CHECK((learn({ document }, asked(5000)) == lengths { 100 }));
    // less than the floor
    CHECK(learn({ joined(counted(0, 15), counted(70, 50)) }, asked(5000)).empty());
    CHECK((learn({ joined(counted(0, 16), counted(70, 50)) }, asked(5000)) == lengths { 16 }));
}

static void test_bounds() {
    kvflash_history history(16, 3, 250);
    const auto prompt = joined(counted(0, 30), counted(900, 30));
    const auto look = [&] { return history.boundaries(seed_of("a"), prompt.data(), prompt.size(), 8); };
    history.add(seed_of("a"), joined(counted(0, 30), counted(500, 30)));
    CHECK(look().size() == 1);
    history.add(seed_of("a"), counted(100, 20));
    history.add(seed_of("a"), counted(200, 20));
    CHECK(look().size() == 1);
    history.add(seed_of("a"), counted(300, 20)); // the fourth
    CHECK(look().empty());
    history.add(seed_of("a"), joined(counted(0, 30), counted(500, 30)));
    CHECK(look().size() == 1);
    history.add(seed_of("a"), counted(400, 200)); // too many tokens with it
    CHECK(look().empty());
    history.add(seed_of("a"), counted(400, 900)); // too many alone
    history.add(seed_of("a"), joined(counted(0, 30), counted(500, 30)));
    CHECK(look().size() == 1);
}

// Against all choices: the greedy one saves at least half of what the best one does, and never less with more.
static void test_choice() {
    for (seed = 0; seed < 300; seed++) {
        std::mt19937 draw(seed);
        const auto prompt = counted(0, 200);
        std::vector<tokens> before;
        lengths shared;
        for (size_t i = 0; i < 5; i++) {
            shared.push_back(draw() % 199);
            before.push_back(joined(counted(0, shared.back()), counted(5000 + 1000 * (int32_t) i, 10)));
        }
        const auto saved = [&](const lengths & at) {
            size_t sum = 0;
            for (size_t n : shared) {
                size_t most = 0;
                for (size_t b : at) {
                    most = b <= n ? std::max(most, b) : most;
                }
                sum += most;
            }
            return sum;
        };
        size_t last = 0;
        for (size_t max = 1; max <= 3; max++) {
            const auto chosen = learn(before, prompt, max, 1);
            CHECK(chosen.size() <= max && std::is_sorted(chosen.begin(), chosen.end()) && saved(chosen) >= last);
            last = saved(chosen);
            size_t best = 0;
            for (size_t mask = 0; mask < 32; mask++) {
                lengths some;
                for (size_t i = 0; i < 5; i++) {
                    if (mask >> i & 1) {
                        some.push_back(shared[i]);
                    }
                }
                best = some.size() <= max ? std::max(best, saved(some)) : best;
            }
            CHECK(2 * last >= best && (max > 1 || last == best));
        }
    }
    seed = -1;
}

int main(int argc, char ** argv) {
    return run_groups(argc, argv, { { "cut", test_cut }, { "boundaries", test_boundaries }, { "bounds", test_bounds }, { "choice", test_choice } });
}
