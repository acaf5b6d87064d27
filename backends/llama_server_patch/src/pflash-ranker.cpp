#include "pflash-ranker.h"

#include "pflash-chars.h"
#include "pflash-helper.h"
#include "pflash-rank.h"
#include "pflash-scorer.h"
#include "pflash-scorer-text.h"
#include "pflash-select.h"
#include "pflash-text.h"

#include "ggml.h"
#include "log.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <list>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>

using json = common_json;

static constexpr size_t  BLOCK_TOKENS         = 32;   // of the uniform scorer
static constexpr size_t  BEGUN_SHARE          = 4;    // of the budget, for the rest of spans that guards cut
static constexpr uint32_t MAX_LOOSE_TOKENS    = 2;    // protected in a span that may go: blanks beside an ask
static constexpr int32_t SCORER_GPU_LAYERS    = 999;  // all, where there is a GPU
static constexpr size_t  RECENT_BYTES         = 8u << 20; // of the model's scores and their texts

// Where a token's text starts: vocabularies put the blank before a word into the word's token, and a
// span's trailing blanks belong to the span.
static size_t text_begin(std::string_view text, size_t begin, size_t end) {
    size_t i = begin;
    while (i < end && (text[i] == ' ' || text[i] == '\t')) {
        i++;
    }
    return i < end ? i : begin;
}

// The spans of a segment, each with the tokens that start in it.
struct pflash_ranker::spans_of {
    std::vector<pflash_range> ranges; // bytes
    std::vector<uint32_t>     of_token; // span of each token
    std::vector<uint32_t>     open;     // unprotected tokens of each span
    std::vector<uint32_t>     closed;   // protected ones

    spans_of(const pflash_segment & segment, const uint8_t * protect) : ranges(pflash_spans(segment.text)) {
        if (ranges.empty()) {
            return;
        }
        open.assign(ranges.size(), 0);
        closed.assign(ranges.size(), 0);
        size_t span  = 0;
        size_t begin = 0;
        for (size_t i = 0; i < segment.token_end.size(); i++) {
            // a token that goes on with a character stays with the one that began it
            const size_t first = text_begin(segment.text, begin, segment.token_end[i]);
            const bool starts_char = first >= segment.text.size() || !pflash_is_continuation(segment.text[first]);
            while (starts_char && span + 1 < ranges.size() && ranges[span].end <= first) {
                span++;
            }
            of_token.push_back((uint32_t) span);
            (protect[i] ? closed : open)[span]++;
            begin = segment.token_end[i];
        }
    }

    // Spans that a guard cuts: their rest, where all of it is at most `max_tokens`, comes first, so that no
    // sentence is left in pieces.
    std::vector<uint32_t> begun(size_t max_tokens) const {
        std::vector<uint32_t> found;
        for (uint32_t s = 0; s < ranges.size(); s++) {
            if (open[s] > 0 && open[s] <= max_tokens && closed[s] > MAX_LOOSE_TOKENS) {
                found.push_back(s);
                max_tokens -= open[s];
            }
        }
        return found;
    }
};

// the highest score among the scorer's tokens of each span; a span without a token of its own has none
static std::vector<float> span_scores(
        std::string_view text, const std::vector<pflash_range> & ranges, size_t offset, const pflash_scores & scores) {
    std::vector<float> best(ranges.size(), std::numeric_limits<float>::quiet_NaN());
    size_t span  = 0;
    size_t begin = offset;
    for (size_t i = 0; i < scores.token_end.size(); i++) {
        const size_t first = text_begin(text, begin, offset + scores.token_end[i]);
        while (span + 1 < ranges.size() && ranges[span].end <= first) {
            span++;
        }
        if (!(best[span] >= scores.score[i])) {
            best[span] = scores.score[i];
        }
        begin = offset + scores.token_end[i];
    }
    return best;
}

// What the spans of the first hop name, and where else it is named.
static std::vector<pflash_bridge> bridges_of(
        std::string_view text, const std::vector<pflash_range> & ranges, std::string_view question, const std::vector<uint32_t> & first_hop) {
    std::vector<pflash_bridge> bridges;
    for (const uint32_t s : first_hop) {
        const auto names = pflash_names(text.substr(ranges[s].begin, ranges[s].end - ranges[s].begin), question);
        for (auto & holders : pflash_literal_spans(text, ranges, names, true)) {
            bridges.push_back({ s, std::move(holders) });
        }
    }
    return bridges;
}

// The scorer model and its scores of the texts read last, so that another keep ratio of the same text
// costs nothing. Thread safe.
struct pflash_ranker::reader {
    const std::unique_ptr<pflash_attention_scorer> scorer;

    explicit reader(std::unique_ptr<pflash_attention_scorer> scorer) : scorer(std::move(scorer)) {}

    // Scores of the tokens [first, last) of the segment, whose bytes are `text`. `was_read` tells whether the
    // model had to read them.
    pflash_scores read(const pflash_pick_input & input, size_t first, size_t last, std::string_view text, bool & was_read) {
        if (auto found = find(text, input.question)) {
            was_read = false;
            return std::move(*found);
        }
        was_read = true;
        const auto own = own_tokens(input, first, last);
        n_retokenized += !own;
        auto scores = scorer->score(text, input.question, input.deadline_us, input.should_stop, own ? &*own : nullptr);
        put(text, input.question, scores);
        return scores;
    }

    void add_props(json & props) {
        props["retokenized"] = n_retokenized.load();
        std::lock_guard<std::mutex> lock(mutex);
        props["reused"] = n_found;
    }

private:
    struct entry {
        std::string   text;
        std::string   question;
        pflash_scores scores;

        size_t bytes() const {
            return text.size() + question.size() + scores.token_end.size() * (sizeof(size_t) + sizeof(float));
        }
    };

    std::mutex       mutex;
    std::list<entry> entries; // the one used last in front
    size_t           n_bytes = 0;
    uint64_t         n_found = 0;
    const llama_vocab * compared = nullptr;
    bool                is_own   = false; // the vocabulary that was compared
    std::atomic<uint64_t> n_retokenized { 0 };

    std::optional<pflash_scores> find(std::string_view text, std::string_view question) {
        std::lock_guard<std::mutex> lock(mutex);
        for (auto it = entries.begin(); it != entries.end(); ++it) {
            if (it->question == question && it->text == text) {
                entries.splice(entries.begin(), entries, it);
                n_found++;
                return it->scores;
            }
        }
        return std::nullopt;
    }

    void put(std::string_view text, std::string_view question, const pflash_scores & scores) {
        entry added { std::string(text), std::string(question), scores };
        const size_t n_added = added.bytes();
        std::lock_guard<std::mutex> lock(mutex);
        if (n_added > RECENT_BYTES || std::any_of(entries.begin(), entries.end(), [&](const entry & e) {
                return e.question == question && e.text == text;
            })) {
            return; // too large, or read by two requests at once
        }
        entries.push_front(std::move(added));
        n_bytes += n_added;
        while (n_bytes > RECENT_BYTES) {
            n_bytes -= entries.back().bytes();
            entries.pop_back();
        }
    }

    bool reads(const llama_vocab * vocab) {
        std::lock_guard<std::mutex> lock(mutex);
        if (vocab && vocab != compared) {
            compared = vocab;
            is_own   = scorer->reads(vocab);
        }
        return vocab && is_own;
    }

    // The segment's tokens as the model reads them, where it can: same vocabulary, plain text.
    std::optional<pflash_text_tokens> own_tokens(const pflash_pick_input & input, size_t first, size_t last) {
        if (!input.tokens || !reads(input.vocab) || std::any_of(input.tokens + first, input.tokens + last, [&](llama_token token) {
                return token < 0 || (llama_vocab_get_attr(input.vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED));
            })) {
            return std::nullopt;
        }
        const size_t begin = first == 0 ? 0 : input.segment.token_end[first - 1];
        pflash_text_tokens own;
        own.id.assign(input.tokens + first, input.tokens + last);
        for (size_t i = first; i < last; i++) {
            own.end.push_back(input.segment.token_end[i] - begin);
        }
        return own;
    }
};

pflash_ranker::pflash_ranker() = default;
pflash_ranker::~pflash_ranker() = default;

std::string pflash_ranker::start(const pflash_params & params, int32_t n_threads) {
    if (params.scorer == PFLASH_SCORER_MODEL) {
        std::string error;
        auto scorer = pflash_attention_scorer::load(params.model, n_threads, SCORER_GPU_LAYERS, PFLASH_SCORER_WINDOW, error);
        if (!scorer) {
            return "--pflash-model " + params.model + " cannot score: " + error;
        }
        model = std::make_unique<reader>(std::move(scorer));
        model_file = params.model;
    }
    if (params.scorer == PFLASH_SCORER_EXTERNAL_HELPER) {
        helper = std::make_unique<pflash_helper>(std::vector<std::string> { params.drafter });
        helper->start();
    }
    return "";
}

std::unique_ptr<pflash_attention_scorer> pflash_ranker::beside(const std::string & file, int32_t n_threads, int32_t window) const {
    return model && file == model_file ? model->scorer->beside(n_threads, window) : nullptr;
}

bool pflash_ranker::has(pflash_scorer scorer) const {
    switch (scorer) {
        case PFLASH_SCORER_UNIFORM:
        case PFLASH_SCORER_LEXICAL:         return true;
        case PFLASH_SCORER_MODEL:           return model  != nullptr;
        case PFLASH_SCORER_EXTERNAL_HELPER: return helper != nullptr;
    }
    return false;
}

double pflash_ranker::tokens_per_second(pflash_scorer scorer) const {
    return scorer == PFLASH_SCORER_MODEL && model ? model->scorer->tokens_per_second() : 0.0;
}

std::string pflash_ranker::fingerprint(pflash_scorer scorer) const {
    std::string name = pflash_scorer_name(scorer);
    if (scorer == PFLASH_SCORER_MODEL && model) {
        name += ":" + model->scorer->info().fingerprint;
    }
    return name;
}

pflash_pick pflash_ranker::pick(pflash_scorer scorer, const pflash_pick_input & input) {
    const int64_t t_start = ggml_time_us();
    pflash_pick pick;
    try {
        pick = scorer == PFLASH_SCORER_UNIFORM ? by_blocks(input) : by_spans(scorer, input);
    } catch (const std::runtime_error & error) {
        // one word: what follows a colon is for the log
        pick.failure = error.what();
        LOG_WRN("pflash: %s scorer: %s\n", pflash_scorer_name(scorer), error.what());
        pick.failure.resize(std::min(pick.failure.find(':'), pick.failure.size()));
        std::replace(pick.failure.begin(), pick.failure.end(), ' ', '_');
    }
    pick.time_us = ggml_time_us() - t_start;
    return pick;
}

pflash_pick pflash_ranker::by_blocks(const pflash_pick_input & input) const {
    const auto & segment = input.segment;
    const size_t n = segment.token_end.size();
    const std::vector<uint8_t> protect(input.protect, input.protect + n);
    std::vector<uint8_t> starts(n, 0);
    for (size_t i = 0; i < n; i++) {
        const size_t begin = i == 0 ? 0 : segment.token_end[i - 1];
        starts[i] = begin >= segment.text.size() || !pflash_is_continuation(segment.text[begin]);
    }
    const auto blocks = pflash_blocks(protect, starts, BLOCK_TOKENS);
    pflash_pick pick;
    pick.budget = input.budget;
    pick.keep.assign(n, 0);
    for (int32_t i : pflash_select(pflash_uniform_scores(blocks.size()), blocks, protect, input.budget)) {
        pick.keep[i] = 1;
    }
    return pick;
}

pflash_pick pflash_ranker::by_spans(pflash_scorer scorer, const pflash_pick_input & input) {
    const auto & segment = input.segment;
    const size_t n = segment.token_end.size();
    const spans_of spans(segment, input.protect);
    if (spans.ranges.empty()) {
        throw std::runtime_error("no_text"); // tokens without bytes
    }

    pflash_rank_input rank;
    rank.sizes      = spans.open;
    rank.budget     = input.budget;
    rank.max_budget = input.max_budget;
    rank.bm25       = pflash_bm25(segment.text, spans.ranges, input.question);
    rank.literals   = pflash_literal_spans(segment.text, spans.ranges, pflash_literals(input.question));
    rank.leans      = pflash_leans(segment.text, spans.ranges);
    rank.paragraphs = pflash_paragraphs(segment.text, spans.ranges);

    pflash_pick pick;
    std::vector<uint32_t> chosen; // by a helper that chooses for itself
    if (scorer == PFLASH_SCORER_MODEL) {
        // the ask is protected at the edges: what is between is read
        size_t first = 0;
        size_t last  = n;
        while (first < n && input.protect[first]) {
            first++;
        }
        while (last > first && input.protect[last - 1]) {
            last--;
        }
        const size_t begin = first == 0 ? 0 : segment.token_end[first - 1];
        const size_t end   = last == 0 ? 0 : segment.token_end[last - 1];
        const auto text = std::string_view(segment.text).substr(begin, end - begin);
        bool was_read = false;
        const auto scores = model->read(input, first, last, text, was_read);
        pick.scored_tokens = was_read ? last - first : 0;
        rank.scores = span_scores(segment.text, spans.ranges, begin, scores);
        for (size_t s = 0; s < rank.scores.size(); s++) {
            if (std::isnan(rank.scores[s]) && rank.sizes[s] > 0) {
                rank.scores[s] = 0.0f; // shorter than a token of the scorer
            }
        }
    } else if (scorer == PFLASH_SCORER_EXTERNAL_HELPER) {
        pflash_helper_request request;
        request.text     = segment.text;
        request.question = input.question;
        for (const auto & range : spans.ranges) {
            request.spans.emplace_back(range.begin, range.end);
        }
        const size_t n_open = std::count(input.protect, input.protect + n, (uint8_t) 0);
        request.keep_ratio = n_open > 0 ? (float) input.budget / (float) n_open : 1.0f;
        const int64_t left_ms = std::max<int64_t>(0, (input.deadline_us - ggml_time_us()) / 1000);
        auto result = helper->score(request, std::chrono::milliseconds(left_ms), input.should_stop);
        if (!result.failure.empty()) {
            throw std::runtime_error(result.failure);
        }
        pick.scored_tokens = n;
        rank.scores = std::move(result.scores);
        chosen      = std::move(result.keep);
    }

    std::vector<uint8_t>  kept;
    std::vector<uint32_t> order; // of the spans, empty where a helper chose
    if (!chosen.empty()) {
        kept.assign(spans.ranges.size(), 0);
        size_t total = 0;
        for (uint32_t s : chosen) {
            kept[s] = 1;
            total += rank.sizes[s];
        }
        if (total > input.budget) {
            throw std::runtime_error("helper_over_budget");
        }
        pick.budget = input.budget;
    } else {
        rank.bridges = bridges_of(segment.text, spans.ranges, input.question, pflash_first_hop(rank));
        const auto ranking = pflash_rank(rank);
        pick.budget = ranking.budget;
        order = spans.begun(input.budget / BEGUN_SHARE);
        order.insert(order.end(), ranking.order.begin(), ranking.order.end());
        kept = pflash_take(order, rank.sizes, ranking.budget);
    }
    pick.keep.assign(n, 0);
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        pick.keep[i] = input.protect[i] || kept[spans.of_token[i]];
        n_kept += pick.keep[i] && !input.protect[i];
    }
    const auto left_out = std::find_if(order.begin(), order.end(), [&](uint32_t s) { return !kept[s] && rank.sizes[s] > 0; });
    if (left_out != order.end() && 2 * n_kept < pick.budget) {
        keep_beginning(spans, *left_out, pick.budget - n_kept, input, pick);
    }
    return pick;
}

// Where the spans that fit leave half of the budget, the beginning of the best one that does not stays: never a
// middle that is deleted whole.
void pflash_ranker::keep_beginning(
        const spans_of & spans, uint32_t span, size_t budget, const pflash_pick_input & input, pflash_pick & pick) {
    const auto & segment = input.segment;
    std::vector<size_t> taken;
    for (size_t i = 0; i < pick.keep.size() && taken.size() < budget; i++) {
        if (spans.of_token[i] == span && !pick.keep[i]) {
            taken.push_back(i);
        }
    }
    const auto cuts_character = [&](size_t i) {
        const size_t end = segment.token_end[i];
        return end < segment.text.size() && pflash_is_continuation(segment.text[end]);
    };
    while (!taken.empty() && cuts_character(taken.back())) {
        taken.pop_back();
    }
    for (size_t i : taken) {
        pick.keep[i] = 1;
    }
}

void pflash_ranker::add_props(json & pflash) const {
    if (model) {
        const auto & info = model->scorer->info();
        pflash["scorer_model"] = json {
            {"name",        info.name},
            {"fingerprint", info.fingerprint},
            {"layers",      json::array({ info.first_layer, info.last_layer })},
            {"window",      info.window},
            {"per_second",  model->scorer->tokens_per_second()},
        };
        model->add_props(pflash["scorer_model"]);
    }
    if (helper) {
        const auto counters = helper->counters();
        json failures = json::object();
        for (const auto & item : counters.failures) {
            failures[item.first] = item.second;
        }
        pflash["helper"] = json {
            {"requests", counters.requests},
            {"answered", counters.answered},
            {"started",  counters.started},
            {"restarts", counters.restarts},
            {"failures", failures},
        };
    }
}

std::string pflash_ranker::to_metrics() const {
    if (!helper) {
        return "";
    }
    const auto counters = helper->counters();
    std::ostringstream out;
    out << "# HELP llamacpp:pflash_helper_restarts_total Helper processes after the first\n"
        << "# TYPE llamacpp:pflash_helper_restarts_total counter\n"
        << "llamacpp:pflash_helper_restarts_total " << counters.restarts << "\n"
        << "# HELP llamacpp:pflash_helper_failures_total Helper failures by kind\n"
        << "# TYPE llamacpp:pflash_helper_failures_total counter\n";
    for (const auto & item : counters.failures) {
        out << "llamacpp:pflash_helper_failures_total{kind=\"" << item.first << "\"} " << item.second << "\n";
    }
    return out.str();
}
