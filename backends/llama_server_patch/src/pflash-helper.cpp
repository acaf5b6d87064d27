#include "pflash-helper.h"

#include "base64.hpp"
#include "json.h"
#include "log.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>

static constexpr auto   WAIT_MIN           = std::chrono::milliseconds(200);
static constexpr auto   WAIT_MAX           = std::chrono::milliseconds(30000);
static constexpr auto   END_GRACE          = std::chrono::milliseconds(2000);
static constexpr auto   EARLY_START_LIMIT  = std::chrono::milliseconds(2000);
static constexpr size_t DETAIL_BYTES       = 200; // of what the helper wrote, in the log
static constexpr int    ERROR_NUMBER_RANGE = 406; // nlohmann's id for a number beyond double

//
// answer
//

namespace {

// Reads the answer as the parser meets it, and stops at the first thing that does not belong there: no
// tree is built, so neither nesting nor a million keys cost anything.
struct answer_reader {
    using json = nlohmann::json;

    enum place { START, KEY, SCHEMA, ID, SCORES, SCORE_LIST, KEEP, KEEP_LIST, ERROR, END };

    const uint64_t wanted_id;
    const size_t   n_spans;

    place       at = START;
    const char * failure = PFLASH_HELPER_GARBAGE;
    std::string detail;
    std::string error;
    bool        has_schema = false, has_id = false, has_scores = false, has_keep = false, has_error = false;
    std::vector<float>    scores;
    std::vector<uint32_t> keep;

    answer_reader(uint64_t id, size_t n_spans) : wanted_id(id), n_spans(n_spans) {}

    bool refuse(const char * code, std::string text) {
        failure = code;
        detail  = std::move(text);
        return false;
    }

    bool misplaced(const char * what) {
        if (at == KEEP_LIST) {
            return refuse(PFLASH_HELPER_INDICES, std::string(what) + " in keep; indices are whole numbers");
        }
        return refuse(PFLASH_HELPER_GARBAGE, std::string(what) + " where none belongs");
    }

    bool score(double value) {
        if (!(std::fabs(value) <= FLT_MAX)) {
            return refuse(PFLASH_HELPER_NAN, "a score is beyond float");
        }
        if (scores.size() == n_spans) {
            return refuse(PFLASH_HELPER_GARBAGE, "more scores than the " + std::to_string(n_spans) + " spans");
        }
        scores.push_back((float) value);
        return true;
    }

    bool index(uint64_t value) {
        if (value >= n_spans) {
            return refuse(PFLASH_HELPER_INDICES, "index " + std::to_string(value) + " of " + std::to_string(n_spans) + " spans");
        }
        if (!keep.empty() && value <= keep.back()) {
            return refuse(PFLASH_HELPER_INDICES, "index " + std::to_string(value) + " after " + std::to_string(keep.back()));
        }
        keep.push_back((uint32_t) value);
        return true;
    }

    bool null() {
        // what JavaScript writes for NaN
        return at == SCORE_LIST ? refuse(PFLASH_HELPER_NAN, "null in scores") : misplaced("null");
    }

    bool boolean(bool) { return misplaced("a boolean"); }

    bool number_integer(int64_t value) { // below zero, or -0
        return at == SCORE_LIST ? score((double) value) : misplaced("a negative number");
    }

    bool number_unsigned(uint64_t value) {
        switch (at) {
            case SCORE_LIST: return score((double) value);
            case KEEP_LIST:  return index(value);
            case SCHEMA:
                at = KEY;
                return value == PFLASH_HELPER_SCHEMA || refuse(PFLASH_HELPER_GARBAGE, "schema " + std::to_string(value));
            case ID:
                at = KEY;
                return value == wanted_id || refuse(PFLASH_HELPER_GARBAGE, "answer " + std::to_string(value) + " to request " + std::to_string(wanted_id));
            default: return misplaced("a number");
        }
    }

    bool number_float(double value, const std::string &) {
        return at == SCORE_LIST ? score(value) : misplaced("a fraction");
    }

    bool string(std::string & value) {
        if (at != ERROR) {
            return misplaced("a string");
        }
        error = std::move(value);
        at    = KEY;
        return true;
    }

    bool binary(std::vector<uint8_t> &) { return misplaced("binary data"); }

    bool start_object(size_t) {
        if (at != START) {
            return misplaced("an object");
        }
        at = KEY;
        return true;
    }

    bool key(const std::string & name) {
        struct { const char * name; place value; bool & seen; } const known[] = {
            { "schema", SCHEMA, has_schema }, { "id", ID, has_id },          { "scores", SCORES, has_scores },
            { "keep",   KEEP,   has_keep },   { "error", ERROR, has_error },
        };
        for (const auto & k : known) {
            if (name == k.name) {
                at = k.value;
                return !std::exchange(k.seen, true) || refuse(PFLASH_HELPER_GARBAGE, "key " + name + " stands there twice");
            }
        }
        return refuse(PFLASH_HELPER_GARBAGE, "key " + name + " is not known");
    }

    bool end_object() {
        at = END;
        return true;
    }

    bool start_array(size_t) {
        if (at != SCORES && at != KEEP) {
            return misplaced("an array");
        }
        at = at == SCORES ? SCORE_LIST : KEEP_LIST;
        return true;
    }

    bool end_array() {
        at = KEY;
        return true;
    }

    bool parse_error(size_t position, const std::string & last_token, const json::exception & error) {
        // NaN and Infinity as Python prints them, nan and inf as C does, are not JSON: the token ends at
        // the first letter that cannot be.
        const char last = last_token.empty() ? ' ' : last_token.back();
        if (at == SCORE_LIST && (error.id == ERROR_NUMBER_RANGE || std::strchr("NIani", last))) {
            return refuse(PFLASH_HELPER_NAN, "a score is not a finite number");
        }
        return refuse(PFLASH_HELPER_GARBAGE, "no JSON at byte " + std::to_string(position));
    }

    // what can only be said of the whole
    bool complete() {
        if (at != END) {
            return refuse(PFLASH_HELPER_GARBAGE, "no JSON object");
        }
        if (!has_id || has_scores + has_keep + has_error != 1 || !(has_schema || has_error)) {
            return refuse(PFLASH_HELPER_GARBAGE, "schema, id and one of scores, keep, error make an answer");
        }
        if (has_scores && scores.size() != n_spans) {
            return refuse(PFLASH_HELPER_GARBAGE, std::to_string(scores.size()) + " scores for " + std::to_string(n_spans) + " spans");
        }
        if (has_keep && keep.empty()) {
            return refuse(PFLASH_HELPER_INDICES, "keep is empty");
        }
        return !has_error || refuse(PFLASH_HELPER_ERROR, error);
    }
};

} // namespace

pflash_helper_result pflash_helper_parse(const std::string & line, uint64_t id, size_t n_spans, std::string & detail) {
    answer_reader reader(id, n_spans);
    pflash_helper_result result;
    if (nlohmann::json::sax_parse(line, &reader) && reader.complete()) {
        result.scores = std::move(reader.scores);
        result.keep   = std::move(reader.keep);
    } else {
        result.failure = reader.failure;
        detail         = std::move(reader.detail);
    }
    return result;
}

//
// request
//

// "name":"..." or, for bytes that are not UTF-8, "name_base64":"..."
static std::string text_field(const std::string & name, std::string_view text) {
    try {
        return "\"" + name + "\":" + common_json::make(text).dump();
    } catch (const common_json_error &) {
        return "\"" + name + "_base64\":\"" + base64::encode(text.data(), text.size()) + "\"";
    }
}

static std::string request_line(const pflash_helper_request & request, uint64_t id, int64_t timeout_ms) {
    std::string line = "{\"schema\":" + std::to_string(PFLASH_HELPER_SCHEMA) + ",\"id\":" + std::to_string(id) +
        ",\"timeout_ms\":" + std::to_string(timeout_ms) +
        ",\"keep_ratio\":" + common_json::make(std::round(request.keep_ratio * 1e6) / 1e6).dump() +
        "," + text_field("question", request.question) + "," + text_field("text", request.text) + ",\"spans\":[";
    for (size_t i = 0; i < request.spans.size(); i++) {
        line += (i ? ",[" : "[") + std::to_string(request.spans[i].first) + "," + std::to_string(request.spans[i].second) + "]";
    }
    return line + "]}\n";
}

//
// pflash_helper
//

pflash_helper::pflash_helper(std::vector<std::string> command) : command(std::move(command)) {}

pflash_helper::~pflash_helper() {
    if (child) {
        child->end(END_GRACE);
    }
}

pflash_helper_counters pflash_helper::counters() const {
    std::lock_guard<std::mutex> lock(count_mutex);
    return count;
}

pflash_helper_result pflash_helper::failed(const char * failure, const std::string & detail) {
    std::string printable;
    for (const char c : detail.substr(0, DETAIL_BYTES)) {
        printable.push_back((unsigned char) c < 0x20 || c == 0x7f ? '?' : c);
    }
    LOG_WRN("pflash helper: %s: %s\n", failure, printable.c_str());
    {
        std::lock_guard<std::mutex> lock(count_mutex);
        count.failures[failure]++;
    }
    pflash_helper_result result;
    result.failure = failure;
    return result;
}

void pflash_helper::back_off() {
    wait       = std::clamp(2 * wait, WAIT_MIN, WAIT_MAX);
    not_before = clock::now() + wait;
}

// The running child, or a new one where that is due; nothing with `failure` set otherwise.
std::unique_ptr<pflash_child> pflash_helper::take_child(clock::time_point deadline, std::string & failure) {
    auto running = std::move(child);
    if (running) {
        switch (running->idle_status()) {
            case pflash_child::IO_LINE:
                return running;
            case pflash_child::IO_UNASKED:
                running.reset();
                back_off();
                failure = failed(PFLASH_HELPER_GARBAGE, "it wrote without being asked").failure;
                return nullptr;
            default:
                LOG_WRN("pflash helper: it ended by itself; starting it again\n");
                running.reset();
        }
    }
    if (clock::now() < not_before) {
        failure = failed(PFLASH_HELPER_BACKOFF, "it failed just now and is not started again yet").failure;
        return nullptr;
    }
    std::string error;
    running = pflash_child::start(command, deadline, error);
    if (!running) {
        back_off();
        failure = failed(PFLASH_HELPER_START, command.front() + ": " + error).failure;
        return nullptr;
    }
    // bounds the starts of one that ends by itself after each answer
    not_before = clock::now() + WAIT_MIN;
    LOG_INF("pflash helper: %s runs with process id %d\n", command.front().c_str(), (int) running->pid());
    std::lock_guard<std::mutex> lock(count_mutex);
    count.restarts += count.started > 0;
    count.started++;
    return running;
}

void pflash_helper::start() {
    const auto deadline = clock::now() + EARLY_START_LIMIT;
    if (turn.take(deadline, {})) {
        const pflash_turn::guard guard(turn);
        std::string failure; // already logged and counted
        child = take_child(deadline, failure);
    }
}

pflash_helper_result pflash_helper::score(
        const pflash_helper_request & request, std::chrono::milliseconds timeout, const std::function<bool()> & should_stop) {
    const auto deadline = clock::now() + timeout;
    {
        std::lock_guard<std::mutex> lock(count_mutex);
        count.requests++;
    }
    if (request.spans.empty()) {
        return {};
    }
    if (!turn.take(deadline, should_stop)) {
        return should_stop && should_stop() ? failed(PFLASH_HELPER_CANCELLED, "the client left while others were served") :
                                              failed(PFLASH_HELPER_TIMEOUT, "other requests took all of the time");
    }
    const pflash_turn::guard guard(turn);
    if (deadline - clock::now() < timeout / 2) {
        return failed(PFLASH_HELPER_TIMEOUT, "other requests took most of the time"); // else it would be killed for them
    }
    auto result = ask(request, deadline);
    if (result.failure.empty()) {
        std::lock_guard<std::mutex> count_lock(count_mutex);
        count.answered++;
    }
    return result;
}

pflash_helper_result pflash_helper::ask(const pflash_helper_request & request, clock::time_point deadline) {
    pflash_helper_result result;
    auto asked = take_child(deadline, result.failure);
    if (!asked) {
        return result;
    }
    const uint64_t id   = ++last_id;
    const auto     left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now());

    std::string line, detail;
    switch (asked->exchange(request_line(request, id, std::max<int64_t>(left.count(), 0)), PFLASH_HELPER_ANSWER_BYTES, deadline, line)) {
        case pflash_child::IO_LINE:
            result = pflash_helper_parse(line, id, request.spans.size(), detail);
            break;
        case pflash_child::IO_ENDED:
            result.failure = PFLASH_HELPER_EXIT;
            detail = "it ended, or closed a pipe, before its answer was whole";
            break;
        case pflash_child::IO_TIMEOUT:
            result.failure = PFLASH_HELPER_TIMEOUT;
            detail = "no answer in time";
            break;
        case pflash_child::IO_TOO_LONG:
            result.failure = PFLASH_HELPER_OUTPUT_LIMIT;
            detail = "a line of more than " + std::to_string(PFLASH_HELPER_ANSWER_BYTES) + " bytes";
            break;
        case pflash_child::IO_UNASKED:
            result.failure = PFLASH_HELPER_GARBAGE;
            detail = "more than one line";
            break;
    }
    if (result.failure.empty() || result.failure == PFLASH_HELPER_ERROR) {
        // It is in step, whether it could score this text or not.
        wait  = std::chrono::milliseconds(0);
        child = std::move(asked);
    } else {
        asked.reset();
        back_off();
    }
    if (!result.failure.empty()) {
        failed(result.failure.c_str(), detail);
    }
    return result;
}
