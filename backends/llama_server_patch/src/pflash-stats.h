#pragma once

#include "json.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

// What PFlash has done since the server started, and the speeds by which `auto` decides. Thread safe.

class pflash_stats {
  public:
    struct outcome {
        std::string reason; // "compressed", or why not
        int32_t original_tokens = 0;
        int32_t kept_tokens     = 0;
        int32_t mask_hits       = 0;
        double  score_ms        = 0.0;
    };

    void count(const outcome & outcome);

    // A speed is the exponentially weighted mean of what was measured, in tokens/s; 0 until then.
    void saw_prefill(uint64_t n_tokens, int64_t time_us);
    void saw_scoring(uint64_t n_tokens, int64_t time_us);
    double prefill_per_second() const;
    double scoring_per_second() const;

    // the counters of /props
    common_json to_json() const;

    // Prometheus text format, names prefixed llamacpp:pflash_
    std::string to_metrics() const;

  private:
    mutable std::mutex mutex;
    uint64_t requests        = 0;
    uint64_t compressed      = 0;
    uint64_t original_tokens = 0; // of compressed prompts
    uint64_t kept_tokens     = 0; // of compressed prompts
    uint64_t mask_hits       = 0;
    double   score_ms        = 0.0;
    double   prefill_speed   = 0.0;
    double   scoring_speed   = 0.0;
    std::map<std::string, uint64_t> skipped;
};
