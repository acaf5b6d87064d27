#pragma once

#include <cstddef>
#include <cstdint>

// Memory for one state, uninitialised: clearing what is written next anyway takes longer than writing it.
//
// A page that the system gives for the first time costs more than copying a page of state, several times more
// in a virtual machine. Large blocks that are freed are therefore kept, and a few are made ready by a thread of
// the lowest priority, once kvflash_reserve_start has been called.
class kvflash_memory {
public:
    // Throws std::bad_alloc.
    explicit kvflash_memory(size_t n_bytes);
    ~kvflash_memory();

    kvflash_memory(kvflash_memory && other) noexcept : first(other.first), n_bytes(other.n_bytes) {
        other.first   = nullptr;
        other.n_bytes = 0;
    }
    kvflash_memory(const kvflash_memory &) = delete;
    kvflash_memory & operator=(const kvflash_memory &) = delete;

    uint8_t       * data()       { return first; }
    const uint8_t * data() const { return first; }
    size_t          size() const { return n_bytes; }

private:
    uint8_t * first = nullptr;
    size_t    n_bytes;
};

// From now on up to `max_bytes` are kept for the next states. The thread makes ready what the largest of the
// newest states took.
void kvflash_reserve_start(size_t max_bytes);

// Gives everything back that no state uses.
void kvflash_reserve_stop();

// Bytes that wait for a state; any thread.
size_t kvflash_reserve_bytes();
