#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

// One user at a time, with a limit to the wait. A flag, since ThreadSanitizer does not know of mutexes with a
// time limit.
class pflash_turn {
public:
    using clock = std::chrono::steady_clock;

    // Ends the turn that was taken.
    class guard {
    public:
        explicit guard(pflash_turn & turn) : turn(&turn) {}
        guard(guard && other) noexcept : turn(std::exchange(other.turn, nullptr)) {}
        guard & operator=(guard &&) = delete;
        ~guard() {
            if (turn) {
                turn->end();
            }
        }

    private:
        pflash_turn * turn;
    };

    // False where `deadline` passed, or `should_stop` (may be empty) told that nobody waits any more.
    bool take(clock::time_point deadline, const std::function<bool()> & should_stop) {
        std::unique_lock<std::mutex> lock(mutex);
        while (!over.wait_until(lock, std::min(deadline, clock::now() + STOP_CHECK), [this] { return !taken; })) {
            if (clock::now() >= deadline || (should_stop && should_stop())) {
                return false;
            }
        }
        taken = true;
        return true;
    }

private:
    static constexpr auto STOP_CHECK = std::chrono::milliseconds(10);

    std::mutex              mutex;
    std::condition_variable over;
    bool                    taken = false;

    void end() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            taken = false;
        }
        over.notify_one();
    }
};
