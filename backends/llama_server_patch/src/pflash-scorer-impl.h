#pragma once

#include "pflash-scorer.h"

#include "pflash-scorer-attention.h"
#include "pflash-scorer-vectors.h"
#include "pflash-turn.h"

#include "llama-cpp.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The inside of the scorer: pflash-scorer-load.cpp makes it, pflash-scorer.cpp reads with it.

static constexpr int32_t PFLASH_MAX_QUESTION_TOKENS = 256; // of a longer one, the first and the last 128

// The null question asks for nothing in particular: what it attends to is salient for any question.
static const std::string PFLASH_QUESTION_BEFORE = "\n\nQuestion: ";
static const std::string PFLASH_QUESTION_AFTER  = "\nAnswer:";
static const std::string PFLASH_NULL_QUESTION   = "What is written here?";

// What a forward pass is for.
enum pflash_reading_kind { PFLASH_READ_MASKS, PFLASH_READ_ATTENTION, PFLASH_READ_KEYS, PFLASH_READ_QUERIES };

struct pflash_attention_scorer::impl {
    std::shared_ptr<llama_model> model; // of the scorers beside this one too
    llama_context_ptr   ctx;
    const llama_vocab * vocab = nullptr;
    pflash_scorer_info  info;

    std::vector<int32_t>     layers; // ascending
    std::vector<llama_token> start;  // takes the attention that belongs to no token
    std::vector<llama_token> null_tail;

    pflash_turn         turn;          // guards the context and what follows
    std::atomic<double> speed { 0.0 }; // tokens/s
    pflash_reading      current;
    pflash_reading_kind kind = PFLASH_READ_ATTENTION;
    pflash_rotation     rotation;      // of the layer that is computed
    std::vector<pflash_rows> rows[PFLASH_N_TAILS]; // of each layer: queries, or keys in the first
    std::vector<int32_t> global_layers; // found by their masks
    int64_t             deadline_us   = 0;
    int64_t             next_poll_us  = 0;
    bool                was_cancelled = false;
    const std::function<bool()> * cancelled = nullptr;

    static bool on_node(ggml_tensor * node, bool ask, void * data) {
        return ((impl *) data)->visit(node, ask);
    }

    static bool on_abort(void * data) {
        return ((impl *) data)->must_stop();
    }

    bool load(const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error);
    std::string open_context(int32_t n_threads, int32_t window);
    void probe();
    void choose_layers();
    void describe();

    bool visit(const ggml_tensor * node, bool ask);
    void read_rows(const ggml_tensor * node, size_t slot);
    bool must_stop();
    void check();
    pflash_turn::guard begin(int64_t deadline_us, const std::function<bool()> & cancelled);
    void decode(pflash_reading_kind kind, const llama_token * window, int32_t n_window, const std::vector<llama_token> & question);
    std::vector<llama_token> question_tail(std::string_view question) const;
    void combine(float * out) const;
    pflash_scores score(std::string_view text, std::string_view question, const pflash_text_tokens * given);
    pflash_vectors mean_keys(std::string_view text, const std::vector<size_t> & part_end);
    pflash_vectors queries(std::string_view question, pflash_vectors & plain);
};
