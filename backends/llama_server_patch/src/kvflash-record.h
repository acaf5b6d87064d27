#pragma once

#include "kvflash-memory.h"
#include "kvflash-pages.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// One stored state of a prompt, in one run of bytes that is the same in memory and on disk: a head, a table
// of lengths, the tokens, and what llama.cpp gave for the sequence. Pure.

constexpr uint32_t KVFLASH_RECORD_VERSION = 2;
constexpr size_t   KVFLASH_BLOCK_BYTES    = 1u << 20; // has a checksum of its own, so that blocks are checked as they come

struct kvflash_bytes {
    const uint8_t * data = nullptr;
    size_t          size = 0;
};

// A state that was captured before the record's end, since the memory cannot be cut back to it.
struct kvflash_checkpoint {
    int64_t n_tokens = 0;
    int32_t pos_min  = 0;
    int32_t pos_max  = 0;
    kvflash_bytes target, draft, speculator;
};

struct kvflash_view {
    const int32_t * tokens   = nullptr;
    size_t          n_tokens = 0;
    kvflash_bytes   target, draft, speculator; // of the whole prompt; draft and speculator may be empty
    std::vector<kvflash_checkpoint> checkpoints; // ascending
};

class kvflash_record {
public:
    // Room for what `wanted` describes: its tokens are copied, of everything else the lengths count (`data`
    // may be null) and the bytes are to be written through `room`. Throws std::bad_alloc.
    explicit kvflash_record(const kvflash_view & wanted);

    // The place of one of the parts of `view()`, to be filled before `seal`.
    uint8_t * room(const kvflash_bytes & part) { return bytes.data() + (part.data - bytes.data()); }

    // Writes the head, which `view()` has no part of. The state belongs to `seed`.
    void seal(const kvflash_seed & seed);

    const kvflash_view & view() const { return parts; }
    const uint8_t * data() const { return bytes.data(); }
    size_t size() const { return bytes.size(); }

private:
    kvflash_memory bytes;
    kvflash_view   parts;
};

// Reads a sealed record of another origin. Nothing in it is believed: every length is checked against `size`
// before it is used, and with `whole` every byte against its checksum; without it, `view` has the tokens and
// the positions of the checkpoints alone. `block_sums` may be given where they were computed before. Returns an
// empty string, or one word: "short", "magic", "version", "seed", "lengths", "damaged".
std::string kvflash_read_record(
        const uint8_t * data, size_t size, const kvflash_seed & seed, bool whole, kvflash_view & view,
        const std::vector<uint64_t> * block_sums = nullptr);

// The checksum of what follows `head_size` in one block of the record, of which there are
// kvflash_n_blocks(size).
uint64_t kvflash_block_sum(const uint8_t * data, size_t size, size_t head_size, size_t block);

inline size_t kvflash_n_blocks(size_t size) { return (size + KVFLASH_BLOCK_BYTES - 1) / KVFLASH_BLOCK_BYTES; }

// Of the first KVFLASH_FIXED_HEAD_BYTES alone: whose state it is, and how much of the record has to be read for
// its tokens; 0 where it is no record that this version reads.
size_t kvflash_head_size(const uint8_t * data, size_t size, kvflash_seed & seed);

constexpr size_t KVFLASH_FIXED_HEAD_BYTES = 96;

// 64 bits of any number of bytes. No cryptography: it finds damage, not malice.
uint64_t kvflash_checksum(const uint8_t * data, size_t size);
