#pragma once

#include "flashlane-args.h"
#include "pflash-held.h"
#include "pflash-masks.h"
#include "pflash-prompt.h"
#include "pflash-ranker.h"
#include "pflash-stats.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// From a prompt to the tokens that stay: earlier choices first, then what pays, then the ranker.

struct pflash_policy {
    pflash_mode   mode;
    pflash_scorer scorer;
    float         keep_ratio;
    size_t        min_keep_tokens;
    bool          recall = false; // the segments are the turns of a conversation
    const llama_vocab * vocab = nullptr; // of the prompt
    int64_t       deadline_us = 0;
    std::function<bool()> should_stop;
};

// Earlier tokens that are said once more, at the beginning of a later segment.
struct pflash_recalled {
    size_t at = 0;                    // token of the prompt before which they stand
    std::vector<pflash_range> tokens; // of the prompt
};

struct pflash_choice {
    std::vector<uint8_t> keep; // one per token of the prompt
    std::vector<pflash_recalled> recalled; // ascending
    std::string reason;        // "compressed", or why the prompt stays whole
    std::string failure;       // of the scorer; the prompt may still be shortened by earlier choices
    int32_t mask_hits = 0;
    bool    raised    = false;
};

class pflash_chooser {
  public:
    pflash_chooser(pflash_params params, pflash_ranker & ranker, pflash_stats & stats);

    // A segment's choice is made once and then used again, whatever is asked about it later, so that
    // the shortened prefix of a conversation stays the same and the KV cache still holds it. `context`
    // names what beside the prompt the choice depends on.
    pflash_choice choose(
            const pflash_policy            & policy,
            const pflash_prompt            & prompt,
            const std::vector<llama_token> & tokens,
            const std::string              & context = "");

    // A prompt that went to the model whole: `auto` leaves its segments whole from now on.
    void saw_whole(const pflash_prompt & prompt, const std::vector<llama_token> & tokens);

    // A prompt as the model reads it, whole or shortened; the cache held its first `n_cached` tokens.
    void saw_prompt(std::vector<llama_token> tokens, size_t n_cached);

    void add_props(common_json & pflash) const;

  private:
    struct placed; // a segment with the hash of what is before it

    static std::vector<placed> place(const pflash_prompt & prompt, const std::vector<llama_token> & tokens);
    void remember(const placed & at, const std::string & fingerprint, const uint8_t * keep);
    bool use_mask(const std::string & fingerprint, const pflash_prompt & prompt, const placed & at, std::vector<uint8_t> & keep);
    void recall(
            const pflash_policy & policy, const std::string & fingerprint, const pflash_prompt & prompt,
            const std::vector<placed> & segments, pflash_choice & choice);
    bool pays(const pflash_policy & policy, size_t n_scored, size_t n_dropped, size_t n_held) const;
    size_t n_held_from(size_t first, const std::vector<llama_token> & tokens, const std::vector<uint8_t> & keep) const;
    std::string fingerprint(const pflash_policy & policy, const std::string & context) const;

    const pflash_params params;
    pflash_ranker & ranker;
    pflash_stats  & stats;
    pflash_masks    masks;
    pflash_held     held;
};
