#include "kvflash-memory.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include <sys/mman.h>

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static constexpr size_t LARGE       = 2u << 20; // from here on in whole pages of this size, aligned to it
static constexpr size_t SMALL_PAGE  = 4096;     // what the system may give instead
static constexpr size_t N_NEWEST    = 8;        // states that the reserve is made ready for
static constexpr size_t N_READY     = 2;        // of the largest of them

static size_t whole_pages(size_t n_bytes) {
    return (n_bytes + LARGE - 1) / LARGE * LARGE;
}

static uint8_t * map(size_t size) {
    void * const all = mmap(nullptr, size + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        return nullptr;
    }
    uint8_t * const begin = (uint8_t *) all;
    const size_t before = (LARGE - (uintptr_t) begin % LARGE) % LARGE;
    if (before > 0) {
        munmap(begin, before);
    }
    munmap(begin + before + size, LARGE - before);
#ifdef MADV_HUGEPAGE
    madvise(begin + before, size, MADV_HUGEPAGE);
#endif
    return begin + before;
}

namespace {

class reserve {
public:
    void start(size_t max) {
        std::lock_guard<std::mutex> lock(mutex);
        max_bytes = max;
        if (!thread.joinable()) {
            stopping = false;
            thread = std::thread([this] { prepare(); });
        }
    }

    void stop() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            stopping  = true;
            max_bytes = 0;
        }
        changed.notify_all();
        if (thread.joinable()) {
            thread.join();
        }
        std::lock_guard<std::mutex> lock(mutex);
        shrink(0);
        newest.clear();
    }

    // Null where the system has no more.
    uint8_t * take(size_t size) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            if (max_bytes > 0) {
                newest.push_back(size);
                if (newest.size() > N_NEWEST) {
                    newest.pop_front();
                }
                changed.notify_all();
                const auto found = kept.lower_bound(size);
                if (found != kept.end()) {
                    const auto [held, begin] = *found;
                    kept.erase(found);
                    bytes -= held;
                    if (held > size) {
                        munmap(begin + size, held - size);
                    }
                    return begin;
                }
            }
        }
        return map(size);
    }

    void give(uint8_t * begin, size_t size) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            if (size <= max_bytes) {
                shrink(max_bytes - size);
                kept.emplace(size, begin);
                bytes += size;
                return;
            }
        }
        munmap(begin, size);
    }

    size_t size() {
        std::lock_guard<std::mutex> lock(mutex);
        return bytes;
    }

private:
    std::mutex mutex;
    std::condition_variable changed;
    std::multimap<size_t, uint8_t *> kept; // by size
    std::deque<size_t> newest;             // sizes of states
    size_t bytes     = 0;
    size_t max_bytes = 0;
    bool   stopping  = false;
    std::thread thread;

    // Down to `limit`, the smallest first: a large one serves every state.
    void shrink(size_t limit) {
        while (bytes > limit) {
            const auto [size, begin] = *kept.begin();
            kept.erase(kept.begin());
            bytes -= size;
            munmap(begin, size);
        }
    }

    // The size of the block that is missing; 0 where none is.
    size_t missing() const {
        const size_t largest = newest.empty() ? 0 : *std::max_element(newest.begin(), newest.end());
        const size_t n_ready = std::distance(kept.lower_bound(largest), kept.end());
        return n_ready < N_READY && largest * (n_ready + 1) <= max_bytes ? largest : 0;
    }

    void prepare() {
#ifdef __linux__
        setpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid), 19); // of this thread alone
#endif
        std::unique_lock<std::mutex> lock(mutex);
        while (!stopping) {
            const size_t size = missing();
            if (size == 0) {
                changed.wait(lock);
                continue;
            }
            lock.unlock();
            uint8_t * const begin = map(size);
            for (size_t at = 0; begin && at < size; at += SMALL_PAGE) {
                ((volatile uint8_t *) begin)[at] = 0;
            }
            if (begin) {
                give(begin, size);
            }
            lock.lock();
            if (!begin) {
                changed.wait(lock); // until the next state: there may be memory then
            }
        }
    }
};

} // namespace

// Never destroyed: states may outlive every other static object.
static reserve & the_reserve() {
    static reserve * const one = new reserve;
    return *one;
}

void kvflash_reserve_start(size_t max_bytes) {
    the_reserve().start(max_bytes);
}

void kvflash_reserve_stop() {
    the_reserve().stop();
}

size_t kvflash_reserve_bytes() {
    return the_reserve().size();
}

kvflash_memory::kvflash_memory(size_t n_bytes) : n_bytes(n_bytes) {
    const bool fits = n_bytes <= SIZE_MAX / 2;
    if (n_bytes < LARGE) {
        first = (uint8_t *) malloc(n_bytes);
    } else if (fits) {
        first = the_reserve().take(whole_pages(n_bytes));
    }
    if (!first && n_bytes > 0) {
        throw std::bad_alloc();
    }
}

kvflash_memory::~kvflash_memory() {
    if (n_bytes < LARGE) {
        free(first);
    } else {
        the_reserve().give(first, whole_pages(n_bytes));
    }
}
