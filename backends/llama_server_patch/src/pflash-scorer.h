#pragma once

#include "pflash-vectors.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// How much the answer to a question needs each token of a text, read from the attention of a small
// model. The scorer owns its model and context and knows nothing of the model that answers: scores
// travel by byte offsets.

struct llama_vocab;
struct pflash_text_tokens;

static constexpr int32_t PFLASH_SCORER_WINDOW = 768; // tokens; docs/pflash.md says how it was chosen

struct pflash_scores {
    std::vector<size_t> token_end; // byte offset after each token of the scorer; the last is the text's size
    std::vector<float>  score;     // one per token, higher = needed; finite
    int32_t n_windows   = 0;
    double  prefill_ms  = 0.0;     // decoding, the text's share
    double  question_ms = 0.0;     // decoding, the question's and null question's share
    double  host_ms     = 0.0;     // everything else: tokenising, reading the attention, smoothing
};

struct pflash_scorer_info {
    std::string name;              // of the model, as its file states it
    std::string fingerprint;       // changes when the same text could get other scores
    int32_t n_layers    = 0;
    int32_t first_layer = 0;       // whose attention is read
    int32_t last_layer  = 0;       // inclusive; layers above it are never computed
    int32_t window      = 0;       // tokens of text in one forward pass
};

class pflash_attention_scorer {
public:
    // Null on failure, with the reason in `error`. `window` tokens of text are read at once.
    static std::unique_ptr<pflash_attention_scorer> load(
            const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error);

    ~pflash_attention_scorer();

    // Another one of the same model, with a context of its own, so that neither waits for the other. Null where there
    // is no memory for it.
    std::unique_ptr<pflash_attention_scorer> beside(int32_t n_threads, int32_t window) const;

    // Whether the tokens of `vocab` are this model's own.
    bool reads(const llama_vocab * vocab) const;

    // Any bytes are accepted. `tokens`, where given, are those of the text in a vocabulary that this model
    // reads; else it is tokenised. Memory is bounded by the context plus about 20 bytes for each token of the
    // text. An empty text gets no scores; scores of one call compare with each other only.
    // One call runs at a time; others wait, at most until their deadline, a value of ggml_time_us().
    // `cancelled`, where given, is polled about every 10 ms and must not throw.
    // Throws std::runtime_error: "timeout"; "cancelled"; "no question" (empty or blank); "vocabulary" (no
    // tokens for the text); "nan"; "layout" (the attention cannot be read); "decode: …".
    pflash_scores score(
            std::string_view text, std::string_view question,
            int64_t deadline_us, const std::function<bool()> & cancelled, const pflash_text_tokens * tokens = nullptr);

    // The mean key of each part of a text, of which `part_end` are the byte offsets, ascending to text.size(); of a
    // part without a token of its own, zeros. As `score`, but without a question.
    pflash_vectors mean_keys(
            std::string_view text, const std::vector<size_t> & part_end, int64_t deadline_us, const std::function<bool()> & cancelled);

    // One row for each token of the question, and in `plain` for each of the null question, read without a text.
    pflash_vectors queries(
            std::string_view question, pflash_vectors & plain, int64_t deadline_us, const std::function<bool()> & cancelled);

    const pflash_scorer_info & info() const;

    // Tokens of text per second, host work included: of a short trial at first, then of the recent calls.
    double tokens_per_second() const;

private:
    struct impl;
    explicit pflash_attention_scorer(std::unique_ptr<impl> self);
    std::unique_ptr<impl> self;
};
