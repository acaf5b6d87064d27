#pragma once

#include "pflash-child.h"
#include "pflash-turn.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The external scorer of PFlash: a program of the operator's that is asked which spans of a text a
// question needs. docs/pflash-helper.md describes what goes over its pipes.

constexpr int    PFLASH_HELPER_SCHEMA       = 1;
constexpr size_t PFLASH_HELPER_ANSWER_BYTES = 8 << 20; // of one line

// failures; one word each, as they appear in `timings.pflash.reason`
constexpr const char * PFLASH_HELPER_TIMEOUT      = "helper_timeout";
constexpr const char * PFLASH_HELPER_EXIT         = "helper_exit";
constexpr const char * PFLASH_HELPER_GARBAGE      = "helper_garbage";
constexpr const char * PFLASH_HELPER_NAN          = "helper_nan";
constexpr const char * PFLASH_HELPER_INDICES      = "helper_indices";
constexpr const char * PFLASH_HELPER_OUTPUT_LIMIT = "helper_output_limit";
constexpr const char * PFLASH_HELPER_BACKOFF      = "helper_backoff";
constexpr const char * PFLASH_HELPER_START        = "helper_start";
constexpr const char * PFLASH_HELPER_ERROR        = "helper_error";
constexpr const char * PFLASH_HELPER_CANCELLED    = "cancelled"; // as with every scorer

struct pflash_helper_request {
    std::string_view text; // any bytes
    std::string_view question;
    std::vector<std::pair<size_t, size_t>> spans; // byte ranges [begin, end) of `text`
    float keep_ratio = 1.0f;
};

// Either a failure, or scores (one finite number for each span, higher is needed more), or the spans
// to keep (ascending, at least one).
struct pflash_helper_result {
    std::vector<float>    scores;
    std::vector<uint32_t> keep;
    std::string           failure;
};

struct pflash_helper_counters {
    uint64_t requests = 0;
    uint64_t answered = 0;
    uint64_t started  = 0; // processes
    uint64_t restarts = 0; // processes after the first
    std::map<std::string, uint64_t> failures;
};

// Reads an answer to request `id` about `n_spans` spans. `detail` says in words what is wrong with it.
// Pure: no I/O, no recursion, memory in proportion to what is valid.
pflash_helper_result pflash_helper_parse(const std::string & line, uint64_t id, size_t n_spans, std::string & detail);

// Thread safe. Requests are served one after the other by one child.
class pflash_helper {
  public:
    // command[0] is the path of the program, the rest its arguments; no shell. Starts nothing yet.
    explicit pflash_helper(std::vector<std::string> command);

    // Closes the child's stdin, sends SIGTERM, and SIGKILL after 2 s. No score() may be running.
    ~pflash_helper();

    // Starts the child ahead of the first request, so that it can load its model. A failure is logged
    // and counted, and met again by score().
    void start();

    // Takes `timeout` at most, waiting for other requests and starting included, and the moment that
    // killing takes. A child that fails is killed; the next starts after a wait that doubles from 0.2 s
    // to 30 s with each failure in a row, and requests meanwhile fail with helper_backoff.
    // `should_stop` tells that nobody waits for the result any more ("cancelled").
    pflash_helper_result score(
            const pflash_helper_request & request, std::chrono::milliseconds timeout, const std::function<bool()> & should_stop = {});

    pflash_helper_counters counters() const;

  private:
    using clock = pflash_child::clock;

    std::unique_ptr<pflash_child> take_child(clock::time_point deadline, std::string & failure);
    pflash_helper_result ask(const pflash_helper_request & request, clock::time_point deadline);
    void back_off();
    pflash_helper_result failed(const char * failure, const std::string & detail);

    const std::vector<std::string> command;

    pflash_turn turn;

    // of the one whose turn it is
    std::unique_ptr<pflash_child> child; // absent while it is asked: whatever goes wrong then ends it
    uint64_t                      last_id = 0;
    std::chrono::milliseconds     wait { 0 };
    clock::time_point             not_before {};

    mutable std::mutex     count_mutex;
    pflash_helper_counters count;
};
