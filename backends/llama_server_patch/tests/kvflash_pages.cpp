// The page directory, eviction and admission: concrete cases and seeded properties against plain searches.
// Exits non-zero at the first breach. One argument runs one group.

#include "groups.h"
#include "kvflash-evict.h"
#include "kvflash_prompts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s (seed %d)\n", __FILE__, __LINE__, #condition, seed); std::exit(1); } } while (0)

using ids = std::vector<uint64_t>;

static int seed = -1;

static const auto all_of_it = [](uint64_t, size_t n_common) { return n_common; };

static void test_names() {
    const auto prompt = counted(0, 100);
    const auto names = kvflash_page_names(seed_of("a"), prompt.data(), prompt.size(), 16);
    CHECK(names.size() == 6);
    // a page's name tells all that is before it
    auto changed = prompt;
    changed[17]++;
    const auto others = kvflash_page_names(seed_of("a"), changed.data(), changed.size(), 16);
    CHECK(names[0] == others[0]);
    for (size_t i = 1; i < names.size(); i++) {
        CHECK(names[i] != others[i]);
    }
    CHECK(kvflash_page_names(seed_of("b"), prompt.data(), prompt.size(), 16)[0] != names[0]);
    CHECK(kvflash_page_names(seed_of("a"), prompt.data(), 15, 16).empty());
    // parts of a seed do not run into each other
    kvflash_seed one, other;
    one.add("ab", 2);
    one.add("c", 1);
    other.add("a", 1);
    other.add("bc", 2);
    CHECK(one != other && seed_of("") != kvflash_seed() && seed_of("12345678") != seed_of("1234567"));
}

static void test_directory() {
    kvflash_directory directory(16);
    const auto a = seed_of("a"), b = seed_of("b");
    const auto shared = counted(0, 40);
    CHECK(directory.add(1, a, joined(shared, counted(1000, 20))));
    CHECK(directory.add(2, a, joined(shared, counted(2000, 60))));
    CHECK(directory.add(3, b, joined(shared, counted(1000, 20))));
    CHECK(!directory.add(1, a, counted(5, 50)));
    CHECK(!directory.add(4, a, counted(0, 15)) && directory.n_entries() == 3);

    const auto prompt = joined(joined(shared, counted(2000, 30)), counted(9000, 30));
    auto match = directory.find(a, prompt.data(), prompt.size(), all_of_it);
    CHECK(match.id == 2 && match.n_common == 70 && match.n_usable == 70);
    match = directory.find(b, prompt.data(), prompt.size(), all_of_it);
    CHECK(match.id == 3 && match.n_common == 40);
    CHECK(directory.find(seed_of("c"), prompt.data(), prompt.size(), all_of_it).n_usable == 0);
    CHECK(directory.find(a, prompt.data(), 15, all_of_it).n_usable == 0);
    // a state that cannot be cut back gives way to one that shares less
    match = directory.find(a, prompt.data(), prompt.size(), [](uint64_t id, size_t n) { return id == 2 ? 0 : n; });
    CHECK(match.id == 1 && match.n_usable == 40);

    const auto long_one = joined(shared, counted(2000, 100));
    CHECK((directory.within(a, long_one.data(), long_one.size()) == ids { 2 }));
    CHECK(directory.within(a, long_one.data(), 99).empty());
    auto found = directory.beyond(a, shared.data(), 36);
    std::sort(found.begin(), found.end());
    CHECK((found == ids { 1, 2 }));
    CHECK(directory.beyond(a, prompt.data(), prompt.size()).empty());
    CHECK(directory.tokens_of(1)->size() == 60 && directory.tokens_of(9) == nullptr);

    const size_t n_pages = directory.n_pages();
    directory.remove(2);
    directory.remove(2);
    CHECK(directory.n_entries() == 2 && directory.n_pages() < n_pages);
    directory.remove(1);
    directory.remove(3);
    CHECK(directory.n_pages() == 0);
}

// Against a search that compares with everything.
static void test_directory_at_random() {
    for (seed = 0; seed < 300; seed++) {
        std::mt19937 random(seed);
        const size_t tau = 1 + random() % 8;
        kvflash_directory directory(tau);
        std::map<uint64_t, std::pair<kvflash_seed, tokens>> known;
        std::map<uint64_t, size_t> step_of; // a state can be cut back to multiples of this
        const auto draw = [&] {
            tokens made(random() % 40);
            for (auto & token : made) {
                token = random() % 8 == 0 ? 1 : 0; // long common beginnings
            }
            return made;
        };
        for (uint64_t id = 1; id < 60; id++) {
            const auto s = seed_of(random() % 4 ? "a" : "b");
            if (random() % 4 == 0 && !known.empty()) {
                const auto gone = std::next(known.begin(), random() % known.size())->first;
                directory.remove(gone);
                known.erase(gone);
            }
            const auto made = draw();
            CHECK(directory.add(id, s, made) == (made.size() >= tau));
            if (made.size() >= tau) {
                known[id]   = { s, made };
                step_of[id] = 1 + random() % 5;
            }
            const auto usable = [&](uint64_t which, size_t n) { return n / step_of[which] * step_of[which]; };
            const auto prompt = draw();
            size_t best = 0;
            ids within, beyond;
            for (const auto & [which, what] : known) {
                const auto & [its_seed, its] = what;
                const size_t most = std::min(its.size(), prompt.size());
                const size_t n = std::mismatch(prompt.begin(), prompt.begin() + most, its.begin()).first - prompt.begin();
                if (its_seed != s || n < tau) {
                    continue; // less than a page is not looked for
                }
                best = std::max(best, usable(which, n));
                if (n == its.size()) {
                    within.push_back(which);
                }
                if (n == prompt.size()) {
                    beyond.push_back(which);
                }
            }
            const auto match = directory.find(s, prompt.data(), prompt.size(), usable);
            CHECK(match.n_usable == best);
            CHECK(best == 0 || (match.n_usable == usable(match.id, match.n_common) && known.count(match.id)));
            auto found_within = directory.within(s, prompt.data(), prompt.size());
            auto found_beyond = directory.beyond(s, prompt.data(), prompt.size());
            std::sort(found_within.begin(), found_within.end());
            std::sort(found_beyond.begin(), found_beyond.end());
            CHECK(found_within == within && found_beyond == beyond);
        }
    }
    seed = -1;
}

static void test_victims() {
    using chosen = std::vector<uint32_t>;
    const std::vector<kvflash_idle> idle = { { 100, 3, 0.5f }, { 200, 1, 0.9f }, { 300, 2, 0.1f }, { 0, 0, 0.0f } };
    CHECK(kvflash_victims(KVFLASH_POLICY_LRU, idle, 600).empty());
    CHECK((kvflash_victims(KVFLASH_POLICY_LRU, idle, 599) == chosen { 1 }));
    CHECK((kvflash_victims(KVFLASH_POLICY_LRU, idle, 399) == chosen { 1, 2 }));
    CHECK((kvflash_victims(KVFLASH_POLICY_QK, idle, 599) == chosen { 2 }));
    CHECK((kvflash_victims(KVFLASH_POLICY_DRAFTER, idle, 250) == chosen { 2, 0 }));
    CHECK((kvflash_victims(KVFLASH_POLICY_QK, idle, 0) == chosen { 2, 0, 1 }));
    // those that do not match go first, by age, whether they are known or not; then those that match, the worst first
    const std::vector<kvflash_idle> odd = { { 10, 9, 0.2f }, { 10, 1, 0.0f }, { 10, 5, NAN }, { 10, 3, -0.8f }, { 10, 2, 0.1f }, { 10, 4, INFINITY } };
    CHECK((kvflash_victims(KVFLASH_POLICY_QK, odd, 10) == chosen { 1, 3, 5, 2, 4 }));
    CHECK((kvflash_victims(KVFLASH_POLICY_LRU, odd, 10) == chosen { 1, 4, 3, 5, 2 }));
    // where nothing is known the policies are lru, and a match that becomes known changes nothing but its own place
    for (seed = 0; seed < 200; seed++) {
        std::mt19937 random(seed);
        std::vector<kvflash_idle> unknown(2 + random() % 6);
        for (auto & prefix : unknown) {
            prefix = { 1 + random() % 100, (int64_t) (random() % 5), NAN };
        }
        const auto by_age = kvflash_victims(KVFLASH_POLICY_LRU, unknown, 0);
        CHECK(kvflash_victims(KVFLASH_POLICY_DRAFTER, unknown, 0) == by_age);
        const uint32_t good = random() % unknown.size();
        unknown[good].score = 0.01f;
        auto rest = by_age;
        rest.erase(std::find(rest.begin(), rest.end(), good));
        rest.push_back(good);
        CHECK(kvflash_victims(KVFLASH_POLICY_DRAFTER, unknown, 0) == rest);
    }
    seed = -1;
    CHECK(kvflash_victims(KVFLASH_POLICY_LRU, {}, 0).empty());
}

static void test_admission() {
    kvflash_load load;
    load.capacity = 1000;
    load.budget   = 600;
    CHECK(kvflash_admit(load, 400).admitted && kvflash_admit(load, 400).idle_left == 600);
    CHECK(kvflash_admit(load, 700).idle_left == 300);
    CHECK(kvflash_admit(load, 5000).admitted && kvflash_admit(load, 5000).idle_left == 0); // to be refused by its size
    load.active = 500;
    CHECK(kvflash_admit(load, 500).admitted && kvflash_admit(load, 500).idle_left == 0);
    CHECK(!kvflash_admit(load, 501).admitted);
    load.active = 2000;
    CHECK(!kvflash_admit(load, 1).admitted);
}

int main(int argc, char ** argv) {
    return run_groups(argc, argv, {
        { "names", test_names }, { "directory", test_directory }, { "random", test_directory_at_random },
        { "victims", test_victims }, { "admission", test_admission } });
}
