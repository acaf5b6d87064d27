// The pool of KVFlash: the longest state wins, its use does not consume it, a longer one replaces what it
// holds, and the disk tier outlives the pool. Argument: an empty folder. Exits non-zero at the first breach.

#include "kvflash-pool.h"
#include "kvflash_prompts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace fs = std::filesystem;

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

static const kvflash_seed SEED = seed_of("a");

static std::shared_ptr<kvflash_record> made(const tokens & of, const std::vector<int64_t> & checkpoints = {}, size_t n_bytes = 1000) {
    kvflash_view wanted;
    wanted.tokens   = of.data();
    wanted.n_tokens = of.size();
    wanted.target   = { nullptr, n_bytes };
    for (int64_t n : checkpoints) {
        wanted.checkpoints.push_back({ n, (int32_t) n - 1, (int32_t) n - 1, { nullptr, 10 }, {}, {} });
    }
    auto record = std::make_shared<kvflash_record>(wanted);
    std::fill_n(record->room(record->view().target), n_bytes, (uint8_t) of[0]);
    return record;
}

static kvflash_pool::limits limits_of(const std::string & folder = "") {
    kvflash_pool::limits limits;
    limits.tau        = 16;
    limits.ram_bytes  = 1 << 20;
    limits.disk_bytes = 1 << 20;
    limits.folder     = folder;
    return limits;
}

static std::optional<kvflash_hit> look(kvflash_pool & pool, const tokens & prompt, size_t more_than = 0) {
    return pool.find(SEED, prompt.data(), prompt.size(), more_than);
}

static void test_memory() {
    kvflash_pool pool(limits_of(), SEED, {});
    const auto shared = counted(0, 50);
    pool.put(SEED, made(joined(shared, counted(1000, 30))));
    pool.put(SEED, made(joined(shared, counted(2000, 30))));
    CHECK(pool.counters().ram_entries == 2);
    const auto prompt = joined(joined(shared, counted(2000, 20)), counted(5000, 20));
    for (int again = 0; again < 3; again++) { // use does not consume
        const auto hit = look(pool, prompt);
        CHECK(hit && hit->tier == KVFLASH_TIER_RAM && hit->n_usable == 70 && hit->view.tokens[60] == 2010);
    }
    CHECK(!look(pool, prompt, 70) && look(pool, prompt, 69) && !look(pool, counted(7, 50)));
    CHECK(!pool.find(seed_of("b"), prompt.data(), prompt.size(), 0));
    // a state that goes on from another replaces it
    const auto longer = joined(joined(shared, counted(2000, 30)), counted(3000, 40));
    CHECK(!pool.holds(SEED, longer.data(), longer.size()) && pool.holds(SEED, longer.data(), 80));
    pool.put(SEED, made(longer));
    CHECK(pool.counters().ram_entries == 2 && pool.counters().superseded == 1 && pool.holds(SEED, longer.data(), longer.size()));
    // what is given out stays while it is used
    const auto hit = look(pool, prompt);
    for (int i = 0; i < 40; i++) {
        pool.put(SEED, made(counted(100000 + 1000 * i, 64), {}, 50000));
    }
    CHECK(pool.counters().dropped > 0 && pool.counters().ram_bytes <= (1 << 20) && hit->view.target.data[999] == 0);
    // larger than all of it, and less than a page
    const auto before = pool.counters().ram_entries;
    pool.put(SEED, made(counted(1, 64), {}, 2 << 20));
    pool.put(SEED, made(counted(1, 15)));
    CHECK(pool.counters().ram_entries == before);
}

static void test_checkpoints() {
    kvflash_pool pool(limits_of(), SEED, { true, 0 });
    const auto state = counted(0, 100);
    pool.put(SEED, made(state, { 32, 64 }));
    CHECK(look(pool, joined(counted(0, 90), counted(500, 9)))->n_usable == 64);
    CHECK(look(pool, joined(counted(0, 40), counted(500, 9)))->n_usable == 32);
    CHECK(!look(pool, joined(counted(0, 31), counted(500, 9))));
    CHECK(look(pool, joined(state, counted(500, 9)))->n_usable == 100);
    CHECK(pool.holds(SEED, state.data(), 64) && pool.holds(SEED, state.data(), 70) && !pool.holds(SEED, state.data(), 80));
    // one that cannot be cut back to within a page of the old one's end does not replace it
    pool.put(SEED, made(joined(state, counted(700, 30)), { 64 }));
    CHECK(pool.counters().ram_entries == 2);
    pool.put(SEED, made(joined(state, counted(700, 60)), { 90, 130 }));
    CHECK(pool.counters().ram_entries == 1);
}

static void test_checkpoints_on_disk(const std::string & folder) {
    const auto shared = counted(0, 100);
    {
        kvflash_pool pool(limits_of(folder), SEED, { true, 0 });
        pool.put(SEED, made(joined(shared, counted(500, 30)), { 20 }));
        pool.put(SEED, made(joined(shared, counted(600, 30)), { 90 }));
        pool.put(SEED, made(joined(shared, counted(700, 30))));
    }
    kvflash_pool again(limits_of(folder), SEED, { true, 0 });
    const auto prompt = joined(shared, counted(800, 30));
    const auto hit = look(again, prompt);
    CHECK(hit && hit->tier == KVFLASH_TIER_DISK && hit->n_usable == 90 && hit->view.tokens[100] == 600);
}

static void test_next_best_on_disk(const std::string & folder) {
    {
        kvflash_pool pool(limits_of(folder), SEED, {});
        pool.put(SEED, made(joined(counted(0, 60), counted(500, 20))));
        pool.put(SEED, made(counted(0, 100), {}, 5000));
    }
    kvflash_pool again(limits_of(folder), SEED, {});
    CHECK(!look(again, counted(7000, 50))); // has seen the folder
    for (const auto & entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file() && entry.file_size() > 5000) {
            fs::resize_file(entry.path(), 5000);
        }
    }
    const auto hit = look(again, counted(0, 90));
    CHECK(hit && hit->n_usable == 60 && again.counters().disk.damaged == 1);
}

static void test_disk(const std::string & folder) {
    const auto chat = counted(0, 80);
    {
        kvflash_pool pool(limits_of(folder), SEED, {});
        pool.put(SEED, made(counted(0, 40)));
        pool.put(SEED, made(chat)); // replaces it before it is written
    }
    kvflash_pool again(limits_of(folder), SEED, {});
    auto hit = look(again, joined(chat, counted(900, 5)));
    CHECK(hit && hit->tier == KVFLASH_TIER_DISK && hit->n_usable == 80 && hit->view.target.size == 1000);
    CHECK(again.counters().disk_entries == 1 && again.counters().ram_entries == 0);
    // memory is preferred unless the disk has a page more
    again.put(SEED, made(counted(0, 70)));
    CHECK(look(again, chat)->tier == KVFLASH_TIER_RAM);
    kvflash_pool other(limits_of(folder), SEED, {});
    other.put(SEED, made(counted(0, 60)));
    CHECK(look(other, chat)->tier == KVFLASH_TIER_DISK);
    // damage is a miss
    for (const auto & entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file()) {
            fs::resize_file(entry.path(), entry.file_size() - 1);
        }
    }
    kvflash_pool late(limits_of(folder), SEED, {});
    CHECK(!look(late, chat) && late.counters().disk.damaged == 1);
}

static void test_settling(const std::string & folder) {
    auto limits = limits_of(folder);
    limits.settle_ms = 50;
    kvflash_pool pool(limits, SEED, {});
    pool.put(SEED, made(counted(0, 40)));
    for (int i = 0; i < 100 && pool.counters().disk.written == 0; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK(pool.counters().disk.written == 1);
    // what leaves memory is written at once
    limits.settle_ms = 1000000;
    limits.ram_bytes = 3000;
    kvflash_pool small(limits, SEED, {});
    small.put(SEED, made(counted(5000, 40)));
    small.put(SEED, made(counted(6000, 40)));
    small.put(SEED, made(counted(7000, 40)));
    small.flush();
    CHECK(small.counters().dropped > 0 && small.counters().disk.written == 3);
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        return 2;
    }
    const std::string folder = argv[1];
    fs::create_directory(folder + "/disk");
    fs::create_directory(folder + "/checkpoints");
    fs::create_directory(folder + "/next");
    fs::create_directory(folder + "/settling");
    test_memory();
    test_checkpoints();
    test_disk(folder + "/disk");
    test_checkpoints_on_disk(folder + "/checkpoints");
    test_next_best_on_disk(folder + "/next");
    test_settling(folder + "/settling");
    return 0;
}
