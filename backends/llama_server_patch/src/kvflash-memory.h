#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <sys/mman.h>

// Memory for one state, uninitialised: clearing what is written next anyway takes longer than writing it, and
// in small pages the system does that too.
class kvflash_memory {
public:
    // Throws std::bad_alloc.
    explicit kvflash_memory(size_t n_bytes) : n_bytes(n_bytes) {
        const size_t whole = (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        const bool   large = n_bytes >= HUGE_PAGE && whole >= n_bytes;
        first = (uint8_t *) (large ? aligned_alloc(HUGE_PAGE, whole) : malloc(n_bytes));
        if (!first && n_bytes > 0) {
            throw std::bad_alloc();
        }
#ifdef MADV_HUGEPAGE
        if (large) {
            madvise(first, whole, MADV_HUGEPAGE);
        }
#endif
    }

    ~kvflash_memory() { free(first); }

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
    static constexpr size_t HUGE_PAGE = 2u << 20;

    uint8_t * first = nullptr;
    size_t    n_bytes;
};
