// The disk tier of KVFlash: what was written is found again, by another server too; damage, a full disk and a
// writer that is killed are misses that are counted. Argument: an empty folder to work in, and a second one for
// the reading by several threads alone. Exits non-zero at the first breach.

#include "kvflash-store.h"
#include "kvflash_prompts.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

static constexpr uint64_t PLENTY = 1u << 30;

static const kvflash_seed SEED = seed_of("a");

static kvflash_record made(int32_t first, size_t n_tokens, size_t n_bytes) {
    const tokens prompt = counted(first, n_tokens);
    kvflash_view wanted;
    wanted.tokens   = prompt.data();
    wanted.n_tokens = n_tokens;
    wanted.target   = { nullptr, n_bytes };
    kvflash_record record(wanted);
    for (size_t i = 0; i < n_bytes; i++) {
        record.room(record.view().target)[i] = (uint8_t) (first + i);
    }
    record.seal(SEED);
    return record;
}

static bool is_whole(const kvflash_loaded & record) {
    bool same = record.view.n_tokens > 0;
    for (size_t i = 0; same && i < record.view.target.size; i++) {
        same = record.view.target.data[i] == (uint8_t) (record.view.tokens[0] + i);
    }
    return same;
}

static std::vector<kvflash_store::found> all_of(kvflash_store & store) {
    std::vector<kvflash_store::found> added;
    std::vector<uint64_t> gone;
    store.refresh(added, gone);
    return added;
}

static std::vector<fs::path> files_in(const std::string & folder, const std::string & suffix) {
    std::vector<fs::path> files;
    for (const auto & entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file() && entry.path().extension() == suffix) {
            files.push_back(entry.path());
        }
    }
    return files;
}

static std::string fresh(const std::string & base, const char * name) {
    const std::string folder = base + "/" + name;
    CHECK(fs::create_directory(folder));
    return folder;
}

static void test_round_trip(const std::string & folder) {
    kvflash_store store(folder, SEED, PLENTY);
    CHECK(all_of(store).empty());
    CHECK(store.write(made(1, 100, 5000), SEED) && store.write(made(500, 70, 10), SEED));
    CHECK(store.write(made(1, 100, 5000), SEED)); // the same state: the same file
    auto found = all_of(store);
    CHECK(found.size() == 2 && store.counters().written == 3);
    CHECK(all_of(store).empty());
    for (const auto & record : found) {
        CHECK(record.seed == SEED && (record.tokens.size() == 100 || record.tokens.size() == 70));
        const auto mapped = store.read(record.id, record.seed);
        CHECK(mapped && is_whole(*mapped) && mapped->view.n_tokens == record.tokens.size());
    }
    CHECK(store.bytes() == made(1, 100, 5000).size() + made(500, 70, 10).size());
    // another server shares the folder; one of another model sees nothing
    kvflash_store other(folder, SEED, PLENTY), stranger(folder, seed_of("b"), PLENTY);
    CHECK(all_of(other).size() == 2 && all_of(stranger).empty());
    for (const auto & path : files_in(folder, ".kv")) {
        struct stat about;
        CHECK(stat(path.c_str(), &about) == 0 && (about.st_mode & 0777) == 0600);
        CHECK(stat(path.parent_path().c_str(), &about) == 0 && (about.st_mode & 0777) == 0700);
    }
    // one that the other removed is gone, and no damage
    const fs::path removed = files_in(folder, ".kv")[0];
    fs::rename(removed, folder + "/aside");
    std::vector<kvflash_store::found> added;
    std::vector<uint64_t> gone;
    other.refresh(added, gone);
    CHECK(gone.size() == 1 && added.empty() && !other.read(gone[0], SEED) && !other.read(77, SEED));
    size_t n_read = 0;
    for (const auto & record : found) {
        n_read += store.read(record.id, record.seed) != nullptr;
    }
    fs::rename(folder + "/aside", removed); // and back before the next look
    gone.clear();
    store.refresh(added, gone);
    CHECK(n_read == 1 && gone.empty() && added.size() == 1 && store.read(added[0].id, SEED) && store.counters().damaged == 0);
}

static void test_damage(const std::string & folder) {
    const auto record = made(1, 100, 3000);
    std::mt19937 random(1);
    size_t n_damaged = 0;
    for (int i = 0; i < 400; i++) {
        kvflash_store store(folder, SEED, PLENTY);
        const bool late = i % 2; // damaged after it was found
        std::vector<kvflash_store::found> found;
        CHECK(store.write(record, SEED));
        if (late) {
            found = all_of(store);
        }
        const fs::path path = files_in(folder, ".kv").at(0);
        if (i % 4 < 2) {
            fs::resize_file(path, i < 8 ? 0 : random() % record.size());
        } else {
            std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
            const size_t at = i < 8 ? 8 : random() % record.size(); // 8: the version
            file.seekp((std::streamoff) at);
            file.put((char) (record.data()[at] ^ (1 + random() % 255)));
        }
        if (!late) {
            found = all_of(store);
        }
        for (const auto & known : found) {
            CHECK(!store.read(known.id, known.seed));
        }
        n_damaged += store.counters().damaged;
        CHECK(store.counters().damaged == 1 && files_in(folder, ".kv").empty());
    }
    CHECK(n_damaged == 400);
    // what cannot be removed is refused once
    kvflash_store store(folder, SEED, PLENTY);
    CHECK(store.write(record, SEED));
    const fs::path path = files_in(folder, ".kv").at(0);
    fs::remove(path);
    fs::create_directory(path);
    for (int again = 0; again < 3; again++) {
        CHECK(all_of(store).empty() && store.counters().damaged == 1);
    }
}

// Records that several threads read, each in memory that the one before has used.
static void test_large(const std::string & folder) {
    kvflash_store store(folder, SEED, PLENTY);
    store.prepare(); // of nothing
    constexpr size_t LARGE = 18 * KVFLASH_BLOCK_BYTES + 12345;
    CHECK(store.write(made(1, 100, LARGE), SEED) && store.write(made(500, 100, LARGE / 2), SEED));
    store.prepare();
    const auto found = all_of(store);
    CHECK(found.size() == 2);
    for (int again = 0; again < 2; again++) {
        for (const auto & known : found) {
            const auto one = store.read(known.id, SEED);
            const auto other = store.read(found[0].id, SEED); // while the first is held
            CHECK(one && is_whole(*one) && other && is_whole(*other));
            CHECK(one->bytes != other->bytes);
        }
    }
    std::mt19937 random(1);
    const auto record = made(1000, 100, LARGE);
    for (int i = 0; i < 6; i++) {
        const auto before = files_in(folder, ".kv");
        CHECK(store.write(record, SEED));
        const auto added = all_of(store);
        CHECK(added.size() == 1);
        for (const auto & path : files_in(folder, ".kv")) {
            if (std::find(before.begin(), before.end(), path) == before.end()) {
                std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
                const size_t at = i == 0 ? record.size() - 1 : i == 1 ? KVFLASH_BLOCK_BYTES : random() % record.size();
                file.seekp((std::streamoff) at);
                file.put((char) (record.data()[at] ^ 1));
            }
        }
        CHECK(!store.read(added[0].id, SEED) && store.counters().damaged == (uint64_t) i + 1);
    }
    for (const auto & known : found) {
        const auto still = store.read(known.id, SEED);
        CHECK(still && is_whole(*still));
    }
}

static void test_bound(const std::string & folder) {
    const size_t size = made(1, 100, 10000).size();
    kvflash_store store(folder, SEED, 3 * size + size / 2);
    for (int i = 0; i < 3; i++) {
        CHECK(store.write(made(1000 * i, 100, 10000), SEED));
        usleep(20000);
    }
    auto found = all_of(store);
    CHECK(found.size() == 3);
    for (const auto & record : found) {
        if (record.tokens[0] == 0) {
            CHECK(store.read(record.id, record.seed)); // used, so the second one is the oldest now
        }
    }
    usleep(20000);
    CHECK(store.write(made(9000, 100, 10000), SEED) && store.counters().removed == 1);
    kvflash_store other(folder, SEED, PLENTY);
    for (const auto & record : all_of(other)) {
        CHECK(record.tokens[0] != 1000);
    }
    CHECK(files_in(folder, ".kv").size() == 3);
    CHECK(!store.write(made(1, 100, 100000), SEED) && store.counters().failed == 1); // larger than the bound
    CHECK(files_in(folder, ".kv").size() == 3);
    // another model's records count as well
    kvflash_store stranger(folder, seed_of("b"), 2 * size + size / 2);
    CHECK(stranger.write(made(1, 100, 10000), seed_of("b")) && files_in(folder, ".kv").size() == 2);
}

static void test_no_room(const std::string & folder) {
    kvflash_store nowhere(folder + "/missing/folder", SEED, PLENTY);
    CHECK(!nowhere.write(made(1, 100, 100), SEED) && nowhere.counters().failed == 1 && all_of(nowhere).empty());
    std::ofstream(folder + "/file") << "x";
    kvflash_store file(folder + "/file", SEED, PLENTY);
    CHECK(!file.write(made(1, 100, 100), SEED) && all_of(file).empty());

    signal(SIGXFSZ, SIG_IGN);
    rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small = { 4096, before.rlim_max };
    setrlimit(RLIMIT_FSIZE, &small);
    kvflash_store full(folder, SEED, PLENTY);
    CHECK(!full.write(made(1, 100, 100000), SEED) && full.counters().failed == 1);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(files_in(folder, ".kv").empty() && files_in(folder, ".part").empty());
    CHECK(full.write(made(1, 100, 100000), SEED));
}

static void test_killed_writer(const std::string & folder) {
    size_t n_partial = 0;
    for (int round = 0; round < 60; round++) {
        const pid_t child = fork();
        if (child == 0) {
            kvflash_store store(folder, SEED, PLENTY);
            for (int i = 0;; i++) {
                store.write(made(1000 * (i % 5), 100, 1000000), SEED);
            }
        }
        usleep(1000 + 700 * (round % 30));
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        kvflash_store store(folder, SEED, PLENTY);
        for (const auto & record : all_of(store)) {
            const auto mapped = store.read(record.id, record.seed);
            CHECK(mapped && is_whole(*mapped));
        }
        CHECK(store.counters().damaged == 0);
        n_partial = files_in(folder, ".part").size();
    }
    CHECK(n_partial > 0); // some were killed while they wrote
    for (const auto & path : files_in(folder, ".part")) {
        fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    }
    kvflash_store store(folder, SEED, PLENTY);
    CHECK(files_in(folder, ".part").empty());
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        return 2;
    }
    test_large(fresh(argv[1], "large"));
    if (argc > 2) { // for the thread sanitizer
        return 0;
    }
    test_round_trip(fresh(argv[1], "round-trip"));
    test_damage(fresh(argv[1], "damage"));
    test_bound(fresh(argv[1], "bound"));
    test_no_room(fresh(argv[1], "no-room"));
    test_killed_writer(fresh(argv[1], "killed"));
    return 0;
}
