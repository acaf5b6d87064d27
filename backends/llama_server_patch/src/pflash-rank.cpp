#include "pflash-rank.h"
#include "pflash-select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

constexpr size_t COMMON_SHARE      = 4; // a literal in more than one of so many spans is common
constexpr size_t COMMON_MIN_SPANS  = 2; // so few are never
constexpr size_t COMMON_NAME_SHARE = 7; // likewise of a bridge
constexpr size_t END_SHARE         = 8; // of the budget, for the first span or the last
constexpr size_t FIRST_HOP_SPANS   = 3;
constexpr double HOP_DECAY         = 0.3; // names of the first hop's second span count 1/1.3, and so on
constexpr double NAMED_SPAN        = 0.5; // a span that holds the name, over one of the same paragraph
constexpr size_t MIN_SPREAD_SPANS  = 8; // fewer have no distribution
constexpr double STANDS_OUT_Z      = 2.0;

class ranker {
public:
    explicit ranker(const pflash_rank_input & input) : input(input), n(input.sizes.size()), taken(n, 0) {
        for (uint32_t s = 0; s < n; s++) {
            if (!input.scores.empty() && !(s < input.scores.size() && std::isfinite(input.scores[s]))) {
                taken[s] = 1; // never
            }
        }
        own.assign(n, 0.0f);
        for (const auto value : { &ranker::score, &ranker::lexical }) {
            const float top = highest(value);
            for (uint32_t s = 0; s < n && top > 0.0f; s++) {
                own[s] += (this->*value)(s) / top;
            }
        }
        best = best_of_paragraphs(own);

        std::vector<float> values(n);
        for (uint32_t s = 0; s < n; s++) {
            values[s] = taken[s] ? 0.0f : standing(s);
        }
        hop = above_0(values);
        hop.resize(std::min(hop.size(), FIRST_HOP_SPANS));
    }

    std::vector<uint32_t> run() {
        if (input.ends && n > 0) {
            pick_end(0);
            pick_end((uint32_t) n - 1);
        }
        rescue();
        take_turns();
        return std::move(order);
    }

    const std::vector<uint32_t> & first_hop() const { return hop; }

private:
    const pflash_rank_input & input;
    const size_t n;
    std::vector<uint8_t>  taken;
    std::vector<uint32_t> order;
    std::vector<float>    own;  // per span: its share of the highest score, and of the highest BM25
    std::vector<float>    best; // of each paragraph's spans
    std::vector<uint32_t> hop;  // the first one: see pflash_first_hop

    bool pick(uint32_t s) {
        if (taken[s]) {
            return false;
        }
        taken[s] = 1;
        order.push_back(s);
        if (s > 0 && s < input.leans.size() && input.leans[s] && !taken[s - 1]) {
            taken[s - 1] = 1;
            order.push_back(s - 1);
        }
        return true;
    }

    void pick_end(uint32_t s) {
        if (END_SHARE * input.sizes[s] <= input.budget) {
            pick(s);
        }
    }

    float score(uint32_t s) const {
        return s < input.scores.size() && std::isfinite(input.scores[s]) ? std::max(0.0f, input.scores[s]) : 0.0f;
    }

    float lexical(uint32_t s) const {
        return s < input.bm25.size() && std::isfinite(input.bm25[s]) ? std::max(0.0f, input.bm25[s]) : 0.0f;
    }

    uint32_t paragraph(uint32_t s) const {
        return s < input.paragraphs.size() ? std::min(input.paragraphs[s], (uint32_t) n - 1) : 0;
    }

    float standing(uint32_t s) const {
        return own[s] + best[paragraph(s)];
    }

    float highest(float (ranker::*value)(uint32_t) const) const {
        float highest = 0.0f;
        for (uint32_t s = 0; s < n; s++) {
            highest = std::max(highest, (this->*value)(s));
        }
        return highest;
    }

    std::vector<float> best_of_paragraphs(const std::vector<float> & values) const {
        std::vector<float> found(n, 0.0f);
        for (uint32_t s = 0; s < n; s++) {
            float & value = found[paragraph(s)];
            value = std::max(value, values[s]);
        }
        return found;
    }

    // An order in which every beginning is spread over the text decides where nothing else does.
    std::vector<uint32_t> sorted(const std::vector<float> & values) const {
        const auto even = pflash_uniform_scores(n);
        std::vector<uint32_t> spans(n);
        std::iota(spans.begin(), spans.end(), 0u);
        std::sort(spans.begin(), spans.end(), [&](uint32_t a, uint32_t b) {
            return values[a] != values[b] ? values[a] > values[b] : even[a] != even[b] ? even[a] > even[b] : a < b;
        });
        return spans;
    }

    std::vector<uint32_t> above_0(const std::vector<float> & values) const {
        auto spans = sorted(values);
        spans.erase(std::find_if(spans.begin(), spans.end(), [&](uint32_t s) { return !(values[s] > 0.0f); }), spans.end());
        return spans;
    }

    // As a share of the highest, beside the best of the paragraph.
    std::vector<float> with_paragraph(float (ranker::*value)(uint32_t) const) const {
        const float top = highest(value);
        std::vector<float> values(n);
        for (uint32_t s = 0; s < n; s++) {
            values[s] = (top > 0.0f ? (this->*value)(s) / top : 0.0f) + best[paragraph(s)] / 2;
        }
        return values;
    }

    // every span
    std::vector<uint32_t> by_score() const {
        return sorted(with_paragraph(input.scores.empty() ? &ranker::lexical : &ranker::score));
    }

    std::vector<uint32_t> by_bm25() const {
        auto values = with_paragraph(&ranker::lexical);
        for (uint32_t s = 0; s < n; s++) {
            values[s] = lexical(s) > 0.0f ? values[s] : 0.0f;
        }
        return above_0(values);
    }

    std::vector<uint32_t> by_bridges() const {
        std::vector<float> named(n, 0.0f);
        for (const auto & bridge : input.bridges) {
            const size_t rank = std::find(hop.begin(), hop.end(), bridge.from) - hop.begin();
            if (bridge.spans.size() > std::max(COMMON_MIN_SPANS, n / COMMON_NAME_SHARE)) {
                continue;
            }
            const double weight = std::log((double) n / std::max<size_t>(1, bridge.spans.size())) / (1.0 + HOP_DECAY * rank);
            for (uint32_t s : bridge.spans) {
                if (s < n && s != bridge.from) {
                    named[s] += (float) weight;
                }
            }
        }
        const auto  paragraphs = best_of_paragraphs(named);
        const float top        = n > 0 ? *std::max_element(named.begin(), named.end()) : 0.0f;
        const float top_own    = n > 0 ? *std::max_element(own.begin(), own.end()) : 0.0f;
        std::vector<float> values(n, 0.0f);
        for (uint32_t s = 0; s < n; s++) {
            const float held = paragraphs[paragraph(s)];
            if (held > 0.0f) {
                values[s] = (held + (float) NAMED_SPAN * named[s]) / top + (top_own > 0.0f ? own[s] / top_own : 0.0f);
            }
        }
        return above_0(values);
    }

    // All that hold a rare literal; of those that hold a common one the best, one at least.
    void rescue() {
        std::vector<std::vector<uint32_t>> rare, common;
        for (const auto & spans : input.literals) {
            std::vector<uint32_t> holders;
            std::copy_if(spans.begin(), spans.end(), std::back_inserter(holders), [&](uint32_t s) { return s < n; });
            const size_t tokens = std::accumulate(holders.begin(), holders.end(), (size_t) 0, [&](size_t sum, uint32_t s) {
                return sum + input.sizes[s];
            });
            const bool is_rare = holders.size() <= std::max(COMMON_MIN_SPANS, n / COMMON_SHARE) && 2 * tokens <= input.budget;
            (is_rare ? rare : common).push_back(std::move(holders));
        }
        std::stable_sort(rare.begin(), rare.end(), [](const auto & a, const auto & b) { return a.size() < b.size(); });
        for (const auto & spans : rare) {
            for (uint32_t s : spans) {
                pick(s);
            }
        }
        for (auto & spans : common) {
            std::stable_sort(spans.begin(), spans.end(), [&](uint32_t a, uint32_t b) { return standing(a) > standing(b); });
            size_t left = input.budget / (2 * common.size());
            for (size_t i = 0; i < spans.size() && (i == 0 || input.sizes[spans[i]] <= left); i++) {
                pick(spans[i]);
                left -= std::min<size_t>(left, input.sizes[spans[i]]);
            }
        }
    }

    void take_turns() {
        const std::vector<uint32_t> lists[] = { by_score(), by_bm25(), by_bridges() };
        const size_t turns[] = { std::max<size_t>(1, input.scorer_turns), input.scores.empty() ? 0 : input.bm25_turns, input.bridge_turns };
        size_t at[] = { 0, 0, 0 };
        while (at[0] < lists[0].size()) {
            for (int who = 0; who < 3; who++) {
                for (size_t picked = 0; picked < turns[who] && at[who] < lists[who].size();) {
                    picked += pick(lists[who][at[who]++]);
                }
            }
        }
    }
};

double median(std::vector<double> values) {
    const auto middle = values.begin() + values.size() / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

} // namespace

float pflash_spread(const std::vector<float> & scores) {
    std::vector<double> finite;
    for (float score : scores) {
        if (std::isfinite(score)) {
            finite.push_back(score);
        }
    }
    if (finite.empty()) {
        return 0.0f;
    }
    const double centre = median(finite);
    std::vector<double> distances;
    double sum = 0.0;
    for (double score : finite) {
        distances.push_back(std::fabs(score - centre));
        sum += distances.back();
    }
    double deviation = 1.4826 * median(distances);
    if (deviation <= 0.0) {
        deviation = 1.2533 * sum / finite.size();
    }
    double total = 0.0, weighted = 0.0;
    for (double score : finite) {
        const double weight = deviation > 0.0 ? (score - centre) / deviation - STANDS_OUT_Z : 0.0;
        if (weight > 0.0) {
            total    += weight;
            weighted += weight * std::log(weight);
        }
    }
    return total > 0.0 ? (float) std::exp(std::log(total) - weighted / total) : 0.0f;
}

pflash_ranking pflash_rank(const pflash_rank_input & input) {
    pflash_ranking ranking;
    ranking.order  = ranker(input).run();
    ranking.budget = input.budget;
    if (input.max_budget <= input.budget || input.sizes.size() < MIN_SPREAD_SPANS) {
        return ranking;
    }
    ranking.spread = pflash_spread(input.scores.empty() ? input.bm25 : input.scores);
    const auto kept  = pflash_take(ranking.order, input.sizes, input.budget);
    const size_t fit = std::max<size_t>(1, std::count(kept.begin(), kept.end(), (uint8_t) 1));
    const double needed = ranking.spread > 0.0f ? (double) input.budget * ranking.spread / fit : (double) input.max_budget;
    if (needed > (double) input.budget) {
        ranking.budget = needed < (double) input.max_budget ? (size_t) std::ceil(needed) : input.max_budget;
        ranking.raised = ranking.budget > input.budget;
    }
    return ranking;
}

std::vector<uint32_t> pflash_first_hop(const pflash_rank_input & input) {
    return ranker(input).first_hop();
}

std::vector<uint8_t> pflash_take(
        const std::vector<uint32_t> & order,
        const std::vector<uint32_t> & sizes,
        size_t budget,
        const std::vector<uint8_t> & protect) {
    std::vector<uint8_t> kept(sizes.size(), 0);
    for (size_t s = 0; s < std::min(sizes.size(), protect.size()); s++) {
        kept[s] = protect[s] != 0;
    }
    for (uint32_t s : order) {
        if (s < sizes.size() && !kept[s] && sizes[s] <= budget) {
            budget -= sizes[s];
            kept[s] = 1;
        }
    }
    return kept;
}
