// Records of KVFlash: what was written is read; whatever is damaged is refused and never read beyond its
// bytes (run under a sanitizer). Exits non-zero at the first breach.

#include "kvflash-record.h"
#include "kvflash_prompts.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

static void fill(kvflash_record & record, const kvflash_bytes & part, uint8_t first) {
    for (size_t i = 0; i < part.size; i++) {
        record.room(part)[i] = (uint8_t) (first + i);
    }
}

static bool holds(const kvflash_bytes & part, size_t size, uint8_t first) {
    bool same = part.size == size;
    for (size_t i = 0; i < part.size; i++) {
        same = same && part.data[i] == (uint8_t) (first + i);
    }
    return same;
}

static kvflash_record made() {
    const tokens prompt = { 5, 4, 3, 2, 1, -7, 99 };
    kvflash_view wanted;
    wanted.tokens     = prompt.data();
    wanted.n_tokens   = prompt.size();
    wanted.target     = { nullptr, 301 };
    wanted.speculator = { nullptr, 3 };
    wanted.checkpoints.resize(2);
    wanted.checkpoints[0].n_tokens = 2;
    wanted.checkpoints[0].pos_max  = 1;
    wanted.checkpoints[0].target   = { nullptr, 70 };
    wanted.checkpoints[1].n_tokens = 6;
    wanted.checkpoints[1].draft    = { nullptr, 9 };
    kvflash_record record(wanted);
    fill(record, record.view().target, 1);
    fill(record, record.view().speculator, 50);
    fill(record, record.view().checkpoints[0].target, 100);
    fill(record, record.view().checkpoints[1].draft, 200);
    record.seal(seed_of("a"));
    return record;
}

// Reads a copy that ends exactly where it ends, so that the sanitizer sees every byte too many.
static std::string read(const std::vector<uint8_t> & bytes, bool whole, kvflash_view & view, const kvflash_seed & seed = seed_of("a")) {
    static std::unique_ptr<uint8_t[]> copy;
    copy.reset(new uint8_t[bytes.size()]);
    if (!bytes.empty()) {
        memcpy(copy.get(), bytes.data(), bytes.size());
    }
    kvflash_seed found;
    kvflash_head_size(copy.get(), bytes.size(), found);
    return kvflash_read_record(copy.get(), bytes.size(), seed, whole, view);
}

int main() {
    const kvflash_record record = made();
    const std::vector<uint8_t> bytes(record.data(), record.data() + record.size());
    kvflash_view view;

    CHECK(read(bytes, true, view) == "");
    CHECK(view.n_tokens == 7 && view.tokens[0] == 5 && view.tokens[5] == -7);
    CHECK(holds(view.target, 301, 1) && holds(view.draft, 0, 0) && holds(view.speculator, 3, 50));
    CHECK(view.checkpoints.size() == 2 && view.checkpoints[0].n_tokens == 2 && view.checkpoints[0].pos_max == 1);
    CHECK(holds(view.checkpoints[0].target, 70, 100) && holds(view.checkpoints[1].draft, 9, 200));
    CHECK((uintptr_t) record.view().target.data % 64 == (uintptr_t) record.data() % 64);

    // the tokens can be had from the beginning alone
    kvflash_seed found;
    const size_t head = kvflash_head_size(bytes.data(), KVFLASH_FIXED_HEAD_BYTES, found);
    CHECK(found == seed_of("a"));
    CHECK(head > KVFLASH_FIXED_HEAD_BYTES && head < bytes.size());
    CHECK(read({ bytes.begin(), bytes.begin() + head }, false, view) == "" && view.n_tokens == 7 && view.tokens[6] == 99);
    CHECK(read({ bytes.begin(), bytes.begin() + head }, true, view) == "short");
    CHECK(read(bytes, true, view, seed_of("b")) == "seed");
    CHECK(kvflash_head_size(bytes.data(), KVFLASH_FIXED_HEAD_BYTES - 1, found) == 0);

    // every length, and every byte with any bit changed
    for (size_t size = 0; size < bytes.size(); size++) {
        CHECK(read({ bytes.begin(), bytes.begin() + size }, true, view) != "");
    }
    auto longer = bytes;
    longer.push_back(0);
    CHECK(read(longer, true, view) != "");
    for (size_t i = 0; i < bytes.size(); i++) {
        for (int bit = 0; bit < 8; bit++) {
            auto changed = bytes;
            changed[i] ^= (uint8_t) (1 << bit);
            CHECK(read(changed, true, view) != "");
            read(changed, false, view);
        }
    }
    // noise behind a true beginning
    for (int seed = 0; seed < 20000; seed++) {
        std::mt19937 random(seed);
        auto noise = bytes;
        noise.resize(random() % (2 * bytes.size()));
        for (size_t n = random() % 64; n > 0 && noise.size() > 12; n--) {
            noise[12 + random() % (noise.size() - 12)] = (uint8_t) (random() % 4 ? random() : 0xFF);
        }
        CHECK(noise == bytes || read(noise, true, view) != "");
        read(noise, false, view);
    }
    CHECK(kvflash_checksum(bytes.data(), 0) != kvflash_checksum(bytes.data(), 1));
    const std::vector<uint8_t> zeros(200, 0);
    CHECK(kvflash_checksum(zeros.data(), 64) != kvflash_checksum(zeros.data(), 128));
    return 0;
}
