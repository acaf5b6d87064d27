// Memory for states: what was freed and what was made ready comes back, within the bound, also where several
// threads ask at once. Exits non-zero at the first breach.

#include "kvflash-memory.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

static constexpr size_t MIB = 1u << 20;

static bool becomes(size_t n_bytes) {
    for (int i = 0; i < 500 && kvflash_reserve_bytes() != n_bytes; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return kvflash_reserve_bytes() == n_bytes;
}

static void test_without_reserve() {
    for (size_t n : { (size_t) 0, (size_t) 1, (size_t) 100, 2 * MIB - 1, 2 * MIB, 5 * MIB + 3 }) {
        kvflash_memory memory(n);
        CHECK(memory.size() == n);
        if (n > 0) {
            memset(memory.data(), 7, n);
            CHECK(memory.data()[n - 1] == 7);
        }
    }
    CHECK(kvflash_reserve_bytes() == 0);
}

static void test_no_memory() {
    for (size_t n : { SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 - MIB }) {
        bool failed = false;
        try {
            kvflash_memory memory(n);
        } catch (const std::bad_alloc &) {
            failed = true;
        }
        CHECK(failed);
    }
}

static void test_reserve() {
    kvflash_reserve_start(24 * MIB);
    const uint8_t * first;
    {
        kvflash_memory memory(5 * MIB); // 6 MiB in whole pages
        first = memory.data();
        CHECK(becomes(12 * MIB)); // two of the same size are made ready meanwhile
    }
    CHECK(becomes(18 * MIB));
    {
        kvflash_memory a(5 * MIB), b(5 * MIB), c(5 * MIB);
        CHECK(a.data() == first || b.data() == first || c.data() == first);
        CHECK(becomes(12 * MIB));
    }
    CHECK(becomes(24 * MIB)); // never more than the bound
    {
        kvflash_memory small(2 * MIB); // out of a larger one, whose rest goes back
        CHECK(becomes(18 * MIB));
    }
    {
        kvflash_memory large(20 * MIB); // two of which have no place
        memset(large.data(), 1, large.size());
    }
    CHECK(becomes(20 * MIB)); // the large one stays, the small ones left for it
    kvflash_memory moved_from(3 * MIB);
    kvflash_memory moved_to(std::move(moved_from));
    CHECK(moved_to.size() == 3 * MIB && moved_from.size() == 0 && moved_from.data() == nullptr);
    kvflash_reserve_stop();
    CHECK(kvflash_reserve_bytes() == 0);
    moved_to.data()[0] = 1; // outlives the reserve
}

static void test_threads() {
    kvflash_reserve_start(16 * MIB);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([t] {
            for (int i = 0; i < 200; i++) {
                kvflash_memory memory((2 + (t + i) % 3) * MIB);
                memory.data()[0] = memory.data()[memory.size() - 1] = (uint8_t) t;
                std::this_thread::yield();
                CHECK(memory.data()[0] == t && memory.data()[memory.size() - 1] == t); // nobody else's
            }
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    CHECK(kvflash_reserve_bytes() <= 16 * MIB);
    kvflash_reserve_stop();
    CHECK(kvflash_reserve_bytes() == 0);
}

int main() {
    test_without_reserve();
    test_no_memory();
    test_reserve();
    test_threads();
    return 0;
}
