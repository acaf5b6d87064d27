#include "pflash-recall.h"

#include <algorithm>

static constexpr float  CLEARLY          = 1.5f; // times the best score of what was kept
static constexpr float  MIN_SCORE        = 1.0f; // less is a common word
static constexpr size_t MAX_RARE_SPANS   = 4;    // a literal in more spans asks for none of them

namespace {

struct candidate {
    pflash_range tokens; // of the prompt
    float score;
    bool  alone; // holds a literal of the ask that nothing kept holds
};

} // namespace

// the tokens of the segment that start in [begin, end) of its text, blanks before a word aside
static pflash_range tokens_of(const pflash_segment & segment, pflash_range bytes) {
    const auto starts_before = [&](size_t byte) {
        size_t low = 0, high = segment.token_end.size();
        while (low < high) {
            const size_t middle = (low + high) / 2;
            size_t first = middle == 0 ? 0 : segment.token_end[middle - 1];
            while (first + 1 < segment.token_end[middle] && segment.text[first] == ' ') {
                first++;
            }
            if (first < byte) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return segment.begin + low;
    };
    return { starts_before(bytes.begin), starts_before(bytes.end) };
}

std::vector<pflash_range> pflash_recall(
        const pflash_prompt        & prompt,
        const std::vector<uint8_t> & keep,
        size_t budget) {
    std::vector<pflash_range> recalled;
    if (prompt.segments.size() < 2 || budget == 0) {
        return recalled;
    }
    const std::string & question = prompt.segments.back().ask;
    const auto literals = pflash_literals(question);

    float best_kept = 0.0f;
    std::vector<candidate> candidates;
    std::vector<std::vector<uint32_t>> held; // per candidate, its literals
    std::vector<uint8_t> is_kept(literals.size(), 0);
    std::vector<size_t>  n_holders(literals.size(), 0);
    for (size_t i = 0; i + 1 < prompt.segments.size(); i++) {
        const auto & segment = prompt.segments[i];
        if (std::count(keep.begin() + segment.begin, keep.begin() + segment.end, (uint8_t) 0) == 0) {
            continue;
        }
        const auto spans = pflash_spans(segment.text);
        auto scores = pflash_bm25(segment.text, spans, question);
        const auto holders = pflash_literal_spans(segment.text, spans, literals);
        std::vector<std::vector<uint32_t>> literals_of(spans.size());
        for (uint32_t l = 0; l < holders.size(); l++) {
            n_holders[l] += holders[l].size();
            for (uint32_t s : holders[l]) {
                literals_of[s].push_back(l);
            }
        }
        for (size_t s = 0; s < spans.size(); s++) {
            const auto range = tokens_of(segment, spans[s]);
            const size_t n_gone = std::count(keep.begin() + range.begin, keep.begin() + range.end, (uint8_t) 0);
            if (n_gone == range.end - range.begin && n_gone > 0) {
                candidates.push_back({ range, scores[s], false });
                held.push_back(std::move(literals_of[s]));
            } else if (n_gone == 0) {
                best_kept = std::max(best_kept, scores[s]);
                for (uint32_t l : literals_of[s]) {
                    is_kept[l] = 1;
                }
            }
        }
    }
    for (size_t c = 0; c < candidates.size(); c++) {
        candidates[c].alone = std::any_of(held[c].begin(), held[c].end(), [&](uint32_t l) {
            return !is_kept[l] && n_holders[l] <= MAX_RARE_SPANS;
        });
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto & a, const auto & b) {
        return a.alone != b.alone ? a.alone : a.score > b.score;
    });
    for (const auto & found : candidates) {
        const size_t n = found.tokens.end - found.tokens.begin;
        if (!found.alone && (found.score < MIN_SCORE || found.score < CLEARLY * best_kept)) {
            break;
        }
        if (n <= budget) {
            budget -= n;
            recalled.push_back(found.tokens);
        }
    }
    std::sort(recalled.begin(), recalled.end(), [](const auto & a, const auto & b) { return a.begin < b.begin; });
    return recalled;
}
