#include "pflash-stats.h"

#include <sstream>

using json = common_json;

static constexpr double   SPEED_WEIGHT     = 0.2; // of the newest measurement
static constexpr uint64_t SPEED_MIN_TOKENS = 128; // shorter runs measure overhead

static void learn(double & speed, uint64_t n_tokens, int64_t time_us) {
    if (n_tokens < SPEED_MIN_TOKENS || time_us <= 0) {
        return;
    }
    const double now = 1e6 * (double) n_tokens / (double) time_us;
    speed = speed > 0.0 ? SPEED_WEIGHT * now + (1.0 - SPEED_WEIGHT) * speed : now;
}

void pflash_stats::count(const outcome & outcome) {
    std::lock_guard<std::mutex> lock(mutex);
    requests++;
    mask_hits += outcome.mask_hits;
    score_ms  += outcome.score_ms;
    if (outcome.reason == "compressed") {
        compressed++;
        original_tokens += outcome.original_tokens;
        kept_tokens     += outcome.kept_tokens;
    } else {
        skipped[outcome.reason]++;
    }
}

void pflash_stats::saw_prefill(uint64_t n_tokens, int64_t time_us) {
    std::lock_guard<std::mutex> lock(mutex);
    learn(prefill_speed, n_tokens, time_us);
}

void pflash_stats::saw_scoring(uint64_t n_tokens, int64_t time_us) {
    std::lock_guard<std::mutex> lock(mutex);
    learn(scoring_speed, n_tokens, time_us);
}

double pflash_stats::prefill_per_second() const {
    std::lock_guard<std::mutex> lock(mutex);
    return prefill_speed;
}

double pflash_stats::scoring_per_second() const {
    std::lock_guard<std::mutex> lock(mutex);
    return scoring_speed;
}

json pflash_stats::to_json() const {
    std::lock_guard<std::mutex> lock(mutex);
    json reasons = json::object();
    for (const auto & item : skipped) {
        reasons[item.first] = item.second;
    }
    return json {
        {"requests",           requests},
        {"compressed",         compressed},
        {"skipped",            reasons},
        {"original_tokens",    original_tokens},
        {"kept_tokens",        kept_tokens},
        {"mask_hits",          mask_hits},
        {"score_ms",           score_ms},
        {"prefill_per_second", prefill_speed},
        {"scoring_per_second", scoring_speed},
    };
}

std::string pflash_stats::to_metrics() const {
    std::lock_guard<std::mutex> lock(mutex);
    std::ostringstream out;
    out.precision(15);
    const auto head = [&](const char * name, const char * help) {
        out << "# HELP llamacpp:pflash_" << name << " " << help << "\n# TYPE llamacpp:pflash_" << name << " counter\n";
    };
    const auto counter = [&](const char * name, const char * help, double value) {
        head(name, help);
        out << "llamacpp:pflash_" << name << " " << value << "\n";
    };
    counter("requests_total",        "Prompts that PFlash looked at",             (double) requests);
    counter("compressed_total",      "Prompts that PFlash shortened",             (double) compressed);
    counter("original_tokens_total", "Tokens of shortened prompts before",        (double) original_tokens);
    counter("kept_tokens_total",     "Tokens of shortened prompts after",         (double) kept_tokens);
    counter("mask_hits_total",       "Segments whose earlier choice was used again", (double) mask_hits);
    counter("score_seconds_total",   "Time spent on scoring",                     score_ms / 1000.0);
    head("skipped_total", "Prompts that went through whole, by reason");
    for (const auto & item : skipped) {
        out << "llamacpp:pflash_skipped_total{reason=\"" << item.first << "\"} " << item.second << "\n";
    }
    return out.str();
}
