#pragma once

#include "flashlane-args.h"
#include "json.h"
#include "pflash-prompt.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

class pflash_attention_scorer;
class pflash_helper;

// Chooses what is kept of one segment.

struct pflash_pick_input {
    const pflash_segment & segment;
    const uint8_t * protect; // one per token of the segment
    const llama_token * tokens = nullptr; // of the segment
    const llama_vocab * vocab  = nullptr; // theirs
    std::string question = "";
    size_t budget     = 0;   // unprotected tokens
    size_t max_budget = 0;   // up to which spread evidence may raise it
    int64_t deadline_us = 0; // by ggml_time_us()
    std::function<bool()> should_stop = nullptr;
};

struct pflash_pick {
    std::vector<uint8_t> keep; // one per token of the segment, empty on failure
    std::string failure;       // one word
    size_t budget = 0;         // that held
    size_t scored_tokens = 0;  // of the segment, by a scorer that takes time
    int64_t time_us = 0;
};

class pflash_ranker {
  public:
    pflash_ranker();
    ~pflash_ranker();

    // Loads what `params` name. Returns an empty string, or one sentence for the operator.
    std::string start(const pflash_params & params, int32_t n_threads);

    bool has(pflash_scorer scorer) const;

    // Thread safe. Failures: "timeout", "cancelled", "nan", "no_question", "no_text",
    // "decode", the helper's.
    pflash_pick pick(pflash_scorer scorer, const pflash_pick_input & input);

    // Another scorer of the same model, of which `file` is the path; null where it has none of that file.
    std::unique_ptr<pflash_attention_scorer> beside(const std::string & file, int32_t n_threads, int32_t window) const;

    // of the scorer model; 0 for others
    double tokens_per_second(pflash_scorer scorer) const;

    // changes when the same text would be ranked differently
    std::string fingerprint(pflash_scorer scorer) const;

    // the section `scorer_model` or `helper` of /props
    void add_props(common_json & pflash) const;
    std::string to_metrics() const;

  private:
    struct reader; // the model, and what it read last
    struct spans_of;

    pflash_pick by_blocks(const pflash_pick_input & input) const;
    pflash_pick by_spans(pflash_scorer scorer, const pflash_pick_input & input);
    static void keep_beginning(
            const spans_of & spans, uint32_t span, size_t budget, const pflash_pick_input & input, pflash_pick & pick);

    std::unique_ptr<reader> model;
    std::string model_file;
    std::unique_ptr<pflash_helper> helper;
};
