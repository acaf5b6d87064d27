#include "kvflash-record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace {

constexpr char     MAGIC[8]        = { 'f', 'l', 'k', 'v', 'f', 'l', 's', 'h' };
constexpr size_t   ALIGNMENT       = 64;
constexpr uint64_t MAX_CHECKPOINTS = 4096;
constexpr uint64_t MAX_TOKENS      = 1u << 30;

// All of it little endian: records do not travel between machines of different byte order.
struct head {
    char     magic[8];
    uint32_t version;
    uint32_t n_checkpoints;
    uint64_t seed_hash;
    uint64_t seed_check;
    uint64_t size;       // of the record
    uint64_t n_tokens;
    uint64_t target;     // bytes
    uint64_t draft;
    uint64_t speculator;
    uint64_t body_sum;   // of the sums of the blocks of what follows table and tokens
    uint64_t head_sum;   // of head (this field 0), table and tokens
    uint64_t reserved;
};
static_assert(sizeof(head) == KVFLASH_FIXED_HEAD_BYTES, "the file format");

struct table_row {
    int64_t  n_tokens;
    int32_t  pos_min;
    int32_t  pos_max;
    uint64_t target;
    uint64_t draft;
    uint64_t speculator;
};

// Places parts one after another. `fits` turns false, and stays so, where the record's size is passed.
struct placer {
    uint64_t at;
    uint64_t limit;
    bool     fits = true;
    std::vector<std::pair<uint64_t, uint64_t>> gaps = {}; // between parts

    uint64_t take(uint64_t size) {
        const uint64_t begin = (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        fits = fits && begin >= at && begin <= limit && size <= limit - begin;
        if (fits && begin > at) {
            gaps.emplace_back(at, begin);
        }
        at   = fits ? begin + size : at;
        return begin;
    }
};

struct places {
    uint64_t tokens = 0, target = 0, draft = 0, speculator = 0;
    std::vector<std::array<uint64_t, 3>> checkpoints;
    std::vector<std::pair<uint64_t, uint64_t>> gaps;
    uint64_t head_end = 0, end = 0;
    bool     fits = false;
};

places place(const head & h, const table_row * rows, uint64_t limit) {
    places p;
    placer to { sizeof(head) + h.n_checkpoints * sizeof(table_row), limit };
    p.tokens   = to.take(h.n_tokens * sizeof(int32_t));
    p.head_end = to.at;
    p.target     = to.take(h.target);
    p.draft      = to.take(h.draft);
    p.speculator = to.take(h.speculator);
    for (uint32_t i = 0; i < h.n_checkpoints && to.fits; i++) {
        const uint64_t target = to.take(rows[i].target);
        const uint64_t draft  = to.take(rows[i].draft);
        p.checkpoints.push_back({ target, draft, to.take(rows[i].speculator) });
    }
    p.end  = to.at;
    p.fits = to.fits;
    p.gaps = std::move(to.gaps);
    return p;
}

uint64_t sum_of_head(head h, const uint8_t * data, uint64_t head_end) {
    h.head_sum = 0;
    uint64_t sums[2] = { kvflash_checksum((const uint8_t *) &h, sizeof(h)), kvflash_checksum(data + sizeof(h), head_end - sizeof(h)) };
    return kvflash_checksum((const uint8_t *) sums, sizeof(sums));
}

} // namespace

uint64_t kvflash_checksum(const uint8_t * data, size_t size) {
    // eight lanes of words, each multiplied by an odd number that differs from lane to lane
    constexpr size_t LANES = 8, STRIPE = LANES * sizeof(uint64_t);
    constexpr uint64_t PRIME = 0x9E3779B185EBCA87u; // source: xxHash64 (Collet)
    uint64_t lanes[LANES];
    for (size_t i = 0; i < LANES; i++) {
        lanes[i] = PRIME * (2 * i + 1);
    }
    size_t at = 0;
    for (; at + STRIPE <= size; at += STRIPE) {
        uint64_t words[LANES];
        memcpy(words, data + at, STRIPE);
        for (size_t i = 0; i < LANES; i++) {
            lanes[i] = (lanes[i] ^ words[i]) * PRIME;
            lanes[i] ^= lanes[i] >> 29;
        }
    }
    uint64_t sum = size * PRIME;
    uint8_t rest[STRIPE] = {};
    memcpy(rest, data + at, size - at);
    uint64_t words[LANES];
    memcpy(words, rest, STRIPE);
    for (size_t i = 0; i < LANES; i++) {
        sum = (sum ^ ((lanes[i] ^ words[i]) * PRIME)) * PRIME;
        sum ^= sum >> 32;
    }
    return sum;
}

uint64_t kvflash_block_sum(const uint8_t * data, size_t size, size_t head_size, size_t block) {
    const size_t begin = std::max(block * KVFLASH_BLOCK_BYTES, head_size);
    const size_t end   = std::min((block + 1) * KVFLASH_BLOCK_BYTES, size);
    return kvflash_checksum(data + std::min(begin, end), end - std::min(begin, end));
}

static std::vector<uint64_t> block_sums_of(const uint8_t * data, size_t size, size_t head_size) {
    std::vector<uint64_t> sums(kvflash_n_blocks(size));
    for (size_t block = 0; block < sums.size(); block++) {
        sums[block] = kvflash_block_sum(data, size, head_size, block);
    }
    return sums;
}

static uint64_t sum_of_body(const std::vector<uint64_t> & block_sums) {
    return kvflash_checksum((const uint8_t *) block_sums.data(), block_sums.size() * sizeof(uint64_t));
}

static head head_of(const kvflash_view & wanted) {
    head h = {};
    h.n_checkpoints = (uint32_t) wanted.checkpoints.size();
    h.n_tokens   = wanted.n_tokens;
    h.target     = wanted.target.size;
    h.draft      = wanted.draft.size;
    h.speculator = wanted.speculator.size;
    return h;
}

static std::vector<table_row> rows_of(const kvflash_view & wanted) {
    std::vector<table_row> rows;
    for (const auto & c : wanted.checkpoints) {
        rows.push_back({ c.n_tokens, c.pos_min, c.pos_max, c.target.size, c.draft.size, c.speculator.size });
    }
    return rows;
}

static places place_all(const kvflash_view & wanted) {
    return place(head_of(wanted), rows_of(wanted).data(), std::numeric_limits<uint64_t>::max() / 2);
}

kvflash_record::kvflash_record(const kvflash_view & wanted) : bytes(place_all(wanted).end) {
    const places p = place_all(wanted);
    const auto rows = rows_of(wanted);
    head h = head_of(wanted);
    h.size = p.end;
    memcpy(bytes.data(), &h, sizeof(h));
    for (const auto & [begin, end] : p.gaps) {
        std::fill(bytes.data() + begin, bytes.data() + end, (uint8_t) 0);
    }
    std::copy_n((const uint8_t *) rows.data(), rows.size() * sizeof(table_row), bytes.data() + sizeof(h));
    std::copy_n((const uint8_t *) wanted.tokens, wanted.n_tokens * sizeof(int32_t), bytes.data() + p.tokens);

    parts.tokens     = (const int32_t *) (bytes.data() + p.tokens);
    parts.n_tokens   = wanted.n_tokens;
    parts.target     = { bytes.data() + p.target, wanted.target.size };
    parts.draft      = { bytes.data() + p.draft, wanted.draft.size };
    parts.speculator = { bytes.data() + p.speculator, wanted.speculator.size };
    for (size_t i = 0; i < rows.size(); i++) {
        auto checkpoint = wanted.checkpoints[i];
        checkpoint.target.data     = bytes.data() + p.checkpoints[i][0];
        checkpoint.draft.data      = bytes.data() + p.checkpoints[i][1];
        checkpoint.speculator.data = bytes.data() + p.checkpoints[i][2];
        parts.checkpoints.push_back(checkpoint);
    }
}

void kvflash_record::seal(const kvflash_seed & seed) {
    head h;
    memcpy(&h, bytes.data(), sizeof(h));
    const uint64_t head_end = (const uint8_t *) (parts.tokens + parts.n_tokens) - bytes.data();
    memcpy(h.magic, MAGIC, sizeof(MAGIC));
    h.version    = KVFLASH_RECORD_VERSION;
    h.seed_hash  = seed.hash;
    h.seed_check = seed.check;
    h.body_sum   = sum_of_body(block_sums_of(bytes.data(), bytes.size(), head_end));
    h.head_sum   = sum_of_head(h, bytes.data(), head_end);
    memcpy(bytes.data(), &h, sizeof(h));
}

// The fixed head, if it is one of this version with lengths that are possible at all.
static std::string read_head(const uint8_t * data, size_t size, head & h) {
    if (size < sizeof(head)) {
        return "short";
    }
    memcpy(&h, data, sizeof(h));
    if (memcmp(h.magic, MAGIC, sizeof(MAGIC)) != 0) {
        return "magic";
    }
    if (h.version != KVFLASH_RECORD_VERSION) {
        return "version";
    }
    if (h.n_checkpoints > MAX_CHECKPOINTS || h.n_tokens > MAX_TOKENS) {
        return "lengths";
    }
    return "";
}

size_t kvflash_head_size(const uint8_t * data, size_t size, kvflash_seed & seed) {
    head h;
    if (!read_head(data, size, h).empty()) {
        return 0;
    }
    seed.hash  = h.seed_hash;
    seed.check = h.seed_check;
    placer to { sizeof(head) + h.n_checkpoints * sizeof(table_row), h.size };
    to.take(h.n_tokens * sizeof(int32_t));
    return to.fits ? to.at : 0;
}

std::string kvflash_read_record(
        const uint8_t * data, size_t size, const kvflash_seed & seed, bool whole, kvflash_view & view,
        const std::vector<uint64_t> * block_sums) {
    head h;
    const std::string error = read_head(data, size, h);
    if (!error.empty()) {
        return error;
    }
    if (h.seed_hash != seed.hash || h.seed_check != seed.check) {
        return "seed";
    }
    const uint64_t table_end = sizeof(head) + h.n_checkpoints * sizeof(table_row);
    if (table_end > size || table_end > h.size) {
        return "short";
    }
    std::vector<table_row> rows(h.n_checkpoints);
    std::copy_n(data + sizeof(head), rows.size() * sizeof(table_row), (uint8_t *) rows.data());
    const places p = place(h, rows.data(), h.size);
    if (!p.fits || p.end != h.size) {
        return "lengths";
    }
    if (size < (whole ? p.end : p.head_end) || (whole && size != p.end)) {
        return "short";
    }
    if (sum_of_head(h, data, p.head_end) != h.head_sum ||
            (whole && sum_of_body(block_sums ? *block_sums : block_sums_of(data, p.end, p.head_end)) != h.body_sum)) {
        return "damaged";
    }
    view = {};
    view.tokens   = (const int32_t *) (data + p.tokens);
    view.n_tokens = h.n_tokens;
    const auto part = [&](uint64_t at, uint64_t size) { return whole ? kvflash_bytes { data + at, size } : kvflash_bytes {}; };
    view.target     = part(p.target, h.target);
    view.draft      = part(p.draft, h.draft);
    view.speculator = part(p.speculator, h.speculator);
    int64_t last = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        if (rows[i].n_tokens < last || rows[i].n_tokens > (int64_t) h.n_tokens) {
            return "lengths";
        }
        last = rows[i].n_tokens;
        const auto & [target, draft, speculator] = p.checkpoints[i];
        view.checkpoints.push_back({ rows[i].n_tokens, rows[i].pos_min, rows[i].pos_max, part(target, rows[i].target),
            part(draft, rows[i].draft), part(speculator, rows[i].speculator) });
    }
    return "";
}
