#include "pflash-choose.h"

#include "pflash-recall.h"
#include "pflash-select.h"

#include <algorithm>
#include <cmath>

using json = common_json;

static constexpr size_t MIN_BUDGET_TOKENS = 64;    // less would be a deleted middle
static constexpr double MIN_SAVING_MS     = 200.0; // auto: less is not worth another answer
static constexpr double MIN_SAVING_SHARE  = 0.1;   // auto: of the time that the whole prompt takes

static constexpr const char * FINGERPRINT_WHOLE = "whole";

pflash_chooser::pflash_chooser(pflash_params params, pflash_ranker & ranker, pflash_stats & stats) :
    params(std::move(params)), ranker(ranker), stats(stats) {}

std::string pflash_chooser::fingerprint(const pflash_policy & policy, const std::string & context) const {
    return ranker.fingerprint(policy.scorer) + "|" + std::to_string(policy.keep_ratio) + "|" +
           std::to_string(policy.min_keep_tokens) + "|" + std::to_string(params.adaptive) + "|" +
           std::to_string(params.protected_prefix) + "|" + std::to_string(params.protected_suffix) + "|" + context;
}

// Whether dropping `n_dropped` of `n_scored` tokens saves time by a margin, as far as speeds are known. The
// cache holds `n_held` of the tokens behind the first one that may go: it is lost with that one.
bool pflash_chooser::pays(const pflash_policy & policy, size_t n_scored, size_t n_dropped, size_t n_held) const {
    if (n_dropped <= n_held) {
        return false;
    }
    const double prefill = stats.prefill_per_second();
    if (prefill <= 0.0) {
        return true;
    }
    const bool   timed     = policy.scorer == PFLASH_SCORER_MODEL || policy.scorer == PFLASH_SCORER_EXTERNAL_HELPER;
    const double trial     = ranker.tokens_per_second(policy.scorer);
    const double scoring   = !timed ? 0.0 : trial > 0.0 ? trial : stats.scoring_per_second();
    const double cost_ms   = scoring > 0.0 ? 1000.0 * n_scored / scoring : 0.0;
    const double whole_ms  = 1000.0 * (n_scored - std::min(n_scored, n_held)) / prefill;
    const double saving_ms = 1000.0 * (n_dropped - n_held) / prefill - cost_ms;
    return saving_ms > MIN_SAVING_MS && saving_ms > MIN_SAVING_SHARE * whole_ms;
}

struct pflash_chooser::placed {
    const pflash_segment * segment;
    const llama_token    * tokens; // its own
    size_t                 n;
    pflash_prefix          before; // all tokens of the prompt up to it
    pflash_prefix          after;  // and with its own
};

// One pass over the prompt, however many segments it has.
std::vector<pflash_chooser::placed> pflash_chooser::place(const pflash_prompt & prompt, const std::vector<llama_token> & tokens) {
    std::vector<placed> segments;
    pflash_prefix prefix;
    for (const auto & segment : prompt.segments) {
        prefix.add(tokens.data() + prefix.n, segment.begin - prefix.n);
        placed at { &segment, tokens.data() + segment.begin, segment.end - segment.begin, prefix, {} };
        prefix.add(at.tokens, at.n);
        at.after = prefix;
        segments.push_back(std::move(at));
    }
    return segments;
}

// An earlier choice holds only while everything that is protected now is in it.
bool pflash_chooser::use_mask(
        const std::string & fingerprint, const pflash_prompt & prompt, const placed & at, std::vector<uint8_t> & keep) {
    const auto & segment = *at.segment;
    const auto found = masks.find(at.before, at.tokens, at.n, fingerprint);
    if (!found) {
        return false;
    }
    std::vector<uint8_t> mask(segment.end - segment.begin, 0);
    for (const auto & range : *found) {
        std::fill(mask.begin() + range.begin, mask.begin() + range.end, (uint8_t) 1);
    }
    for (size_t i = 0; i < mask.size(); i++) {
        if (prompt.protect[segment.begin + i] && !mask[i]) {
            return false;
        }
    }
    std::copy(mask.begin(), mask.end(), keep.begin() + segment.begin);
    return true;
}

static std::vector<pflash_range> ranges_of(const uint8_t * keep, size_t n) {
    std::vector<pflash_range> ranges;
    for (size_t i = 0; i < n;) {
        size_t j = i;
        while (j < n && keep[j] == keep[i]) {
            j++;
        }
        if (keep[i]) {
            ranges.push_back({ i, j });
        }
        i = j;
    }
    return ranges;
}

static bool all_kept(const std::vector<uint8_t> & keep) {
    return std::find(keep.begin(), keep.end(), (uint8_t) 0) == keep.end();
}

// `keep` has one flag for each token of the segment; null: all of them.
void pflash_chooser::remember(const placed & at, const std::string & fingerprint, const uint8_t * keep) {
    masks.put(at.before, at.tokens, at.n, fingerprint, keep ? ranges_of(keep, at.n) : std::vector<pflash_range> { { 0, at.n } });
}

// Of the tokens that `keep` leaves, those from `first` on that the cache likely holds.
size_t pflash_chooser::n_held_from(size_t first, const std::vector<llama_token> & tokens, const std::vector<uint8_t> & keep) const {
    std::vector<llama_token> left;
    size_t n_before = 0;
    for (size_t i = 0; i < tokens.size(); i++) {
        if (keep[i]) {
            left.push_back(tokens[i]);
            n_before += i < first;
        }
    }
    const size_t n_held = held.prefix(left);
    return n_held - std::min(n_held, n_before);
}

void pflash_chooser::saw_prompt(std::vector<llama_token> tokens, size_t n_cached) {
    held.began(std::move(tokens), n_cached);
}

void pflash_chooser::saw_whole(const pflash_prompt & prompt, const std::vector<llama_token> & tokens) {
    for (const auto & at : place(prompt, tokens)) {
        remember(at, FINGERPRINT_WHOLE, nullptr);
    }
}

// What is recalled for a message is remembered for all that it ends: a later turn says it again in the same
// place.
void pflash_chooser::recall(
        const pflash_policy & policy, const std::string & fingerprint, const pflash_prompt & prompt,
        const std::vector<placed> & segments, pflash_choice & choice) {
    if (!policy.recall || params.recall_tokens <= 0 || policy.scorer == PFLASH_SCORER_UNIFORM || all_kept(choice.keep)) {
        return;
    }
    for (size_t i = 1; i < segments.size(); i++) {
        auto found = masks.find_before(segments[i].after, fingerprint + "|recall");
        if (!found && i + 1 == segments.size()) {
            found = pflash_recall(prompt, choice.keep, params.recall_tokens);
            masks.put_before(segments[i].after, fingerprint + "|recall", *found);
        }
        if (found && !found->empty()) {
            choice.recalled.push_back({ segments[i].segment->begin, *found });
        }
    }
}

pflash_choice pflash_chooser::choose(
        const pflash_policy            & policy,
        const pflash_prompt            & prompt,
        const std::vector<llama_token> & tokens,
        const std::string              & context) {
    pflash_choice choice;
    choice.keep.assign(tokens.size(), 1);
    if (!prompt.refused.empty()) {
        choice.reason = prompt.refused;
        return choice;
    }

    // what was chosen before
    const std::string fingerprint = this->fingerprint(policy, context);
    const auto segments = place(prompt, tokens);
    std::vector<const placed *> fresh;
    bool seen_whole = false;
    for (const auto & at : segments) {
        if (use_mask(fingerprint, prompt, at, choice.keep)) {
            choice.mask_hits++;
        } else if (policy.mode == PFLASH_MODE_AUTO && masks.find(at.before, at.tokens, at.n, FINGERPRINT_WHOLE)) {
            seen_whole = true;
        } else if (prompt.n_open(*at.segment) > 0) {
            fresh.push_back(&at);
        }
    }
    const size_t n_frozen = std::count(choice.keep.begin(), choice.keep.end(), (uint8_t) 0);

    // what the rest may keep; of a message that would keep less than a middle's worth nothing is dropped
    std::vector<const placed *> short_ones;
    size_t n_open = 0;
    size_t budget = 0;
    for (bool again = true; again;) {
        n_open = 0;
        for (const auto * at : fresh) {
            n_open += prompt.n_open(*at->segment);
        }
        budget = pflash_budget(tokens.size() - n_frozen, n_open, policy.keep_ratio, policy.min_keep_tokens);
        const auto is_short = [&](const placed * at) {
            return budget * prompt.n_open(*at->segment) < MIN_BUDGET_TOKENS * n_open;
        };
        const auto first = std::stable_partition(fresh.begin(), fresh.end(), [&](const placed * at) { return !is_short(at); });
        again = first != fresh.end() && first != fresh.begin(); // all of them: the reason says it
        if (again) {
            short_ones.insert(short_ones.end(), first, fresh.end());
            fresh.erase(first, fresh.end());
        }
    }
    std::string whole; // why the rest stays whole
    if (n_open == 0 && seen_whole) {
        whole = "seen_whole";
    } else if (policy.mode == PFLASH_MODE_AUTO && n_open < (size_t) params.min_tokens) {
        whole = "below_min_tokens";
    } else if (n_open > 0 && budget == n_open) {
        whole = "nothing_to_drop";
    } else if (budget < MIN_BUDGET_TOKENS) {
        whole = "insufficient_middle_budget";
    } else if (policy.mode == PFLASH_MODE_AUTO) {
        const size_t n_held = n_held_from(fresh.front()->segment->begin, tokens, choice.keep);
        if (!pays(policy, n_open, n_open - budget, n_held)) {
            whole = pays(policy, n_open, n_open - budget, 0) ? "cached" : "no_saving";
        }
    }

    if (whole.empty()) {
        const std::vector<uint8_t> before = choice.keep;
        const std::string & newest = prompt.segments.back().ask;
        size_t n_scored = 0;
        int64_t time_us = 0;
        size_t open_left   = n_open;
        size_t budget_left = budget;
        for (const auto * at : fresh) {
            const auto * segment = at->segment;
            const size_t open = prompt.n_open(*segment);
            pflash_pick_input input { *segment, prompt.protect.data() + segment->begin };
            input.tokens   = at->tokens;
            input.vocab    = policy.vocab;
            input.question = segment->ask;
            if (segment->ask != newest) {
                input.question += (segment->ask.empty() ? "" : "\n") + newest;
            }
            input.budget      = (size_t) std::llround((double) budget_left * open / open_left);
            input.max_budget  = std::max(input.budget, (size_t) std::ceil((double) params.adaptive * open));
            input.deadline_us = policy.deadline_us;
            input.should_stop = policy.should_stop;
            open_left -= open;

            auto pick = ranker.pick(policy.scorer, input);
            n_scored += pick.scored_tokens;
            time_us  += pick.time_us;
            size_t n_kept = 0;
            if (pick.failure.empty()) {
                const std::vector<uint8_t> protect(input.protect, input.protect + (segment->end - segment->begin));
                std::vector<int32_t> keep;
                for (size_t i = 0; i < pick.keep.size(); i++) {
                    if (pick.keep[i]) {
                        keep.push_back((int32_t) i);
                    }
                }
                n_kept = keep.size() - std::count(protect.begin(), protect.end(), (uint8_t) 1);
                if (pick.keep.size() != protect.size() || pick.budget > input.max_budget ||
                    (keep.size() < protect.size() && !pflash_validate(keep, protect, pick.budget).empty())) {
                    pick.failure = "invalid_selection";
                }
            }
            if (!pick.failure.empty()) {
                choice.failure = pick.failure;
                break;
            }
            budget_left -= std::min(budget_left, n_kept); // what one leaves, the next may use
            choice.raised |= pick.budget > input.budget;
            std::copy(pick.keep.begin(), pick.keep.end(), choice.keep.begin() + segment->begin);
        }
        if (n_scored > 0) {
            stats.saw_scoring(n_scored, time_us);
        }
        if (choice.failure.empty()) {
            for (const auto * at : fresh) {
                remember(*at, fingerprint, choice.keep.data() + at->segment->begin);
            }
            for (const auto * at : short_ones) {
                remember(*at, fingerprint, nullptr);
            }
        } else {
            choice.keep = before;
            whole = choice.failure;
        }
    }
    if (!whole.empty() && whole != "cancelled" && policy.mode == PFLASH_MODE_AUTO) {
        for (const auto * at : fresh) {
            remember(*at, FINGERPRINT_WHOLE, nullptr);
        }
        for (const auto * at : short_ones) {
            remember(*at, FINGERPRINT_WHOLE, nullptr);
        }
    }
    recall(policy, fingerprint, prompt, segments, choice);
    choice.reason = !all_kept(choice.keep) ? "compressed" : whole.empty() ? "nothing_to_drop" : whole;
    return choice;
}

void pflash_chooser::add_props(json & pflash) const {
    const auto counters = masks.counters();
    pflash["masks"] = json {
        {"entries",   counters.entries},
        {"bytes",     counters.bytes},
        {"hits",      counters.hits},
        {"misses",    counters.misses},
        {"evictions", counters.evictions},
    };
}
