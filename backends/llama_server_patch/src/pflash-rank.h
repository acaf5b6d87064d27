#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// In which order spans are taken into the budget. Pure.

struct pflash_bridge {
    uint32_t from = 0;           // the span that names it
    std::vector<uint32_t> spans; // that hold it
};

struct pflash_rank_input {
    std::vector<uint32_t> sizes;  // tokens of each span, which also gives the number of spans
    std::vector<float>    scores; // the scorer's, one per span; NaN and infinite: never taken; empty: none
    std::vector<float>    bm25;   // one per span; what is not above 0 is no evidence
    std::vector<std::vector<uint32_t>> literals; // per literal of the question, the spans that hold it
    std::vector<uint8_t>  leans;  // per span: needs the one before it; empty: neighbours are not considered
    std::vector<uint32_t> paragraphs; // per span, ascending from 0; empty: all are in one
    std::vector<pflash_bridge> bridges; // names that spans of `pflash_first_hop` hold and the question does not

    size_t budget     = 0; // tokens
    size_t max_budget = 0; // up to which it may be raised; <= budget: it may not

    size_t scorer_turns = 2; // picks by score, then
    size_t bm25_turns   = 1; // picks by BM25, then
    size_t bridge_turns = 1; // picks over the bridges, and so on
    bool   ends         = true; // the first span and the last come before all
};

struct pflash_ranking {
    std::vector<uint32_t> order;  // every span that may be taken, once
    size_t budget = 0;            // the one that holds
    bool   raised = false;
    float  spread = 0.0f;         // as `pflash_spread`, 0 if it was not needed
};

// The order: the ends, unless one is large for the budget; spans that hold a literal, the rarest literal
// first; of one that more than a quarter of the spans hold, or spans of more than half of the budget, the best
// span and further ones up to a share of half of the budget; then picks of the scorer, of BM25 and over the
// bridges in turns. Scores and BM25 count beside the best of their paragraph: a sentence says little of what
// its paragraph is about. Over a bridge come the paragraphs that hold a name which the first hop brought up,
// the rarest name first, and in them the spans that the question needs. A span that leans on the one before
// it brings that one along. Missing scores at a vector's end are NaN, missing BM25 is 0.
//
// The budget is raised where the evidence needs more: budget * spread / (spans that fit), and to
// `max_budget` where nothing stands out, at most to that.
pflash_ranking pflash_rank(const pflash_rank_input & input);

// The spans that answer the question best by themselves, at most 3, the best one first.
std::vector<uint32_t> pflash_first_hop(const pflash_rank_input & input);

// Over how many spans the evidence is spread: exp of the entropy of the shares in max(0, z - 2), z being
// the score's distance from the median in robust standard deviations. 0 where nothing stands out.
// Source: the Hill number of order 1 (Hill, 1973); z as in Iglewicz and Hoaglin (1993), with the mean
// absolute deviation where the median one is 0.
float pflash_spread(const std::vector<float> & scores);

// One flag per span: kept. Whole spans in the given order while they fit into `budget` tokens; one that
// does not is skipped. Spans with `protect` set (may be empty) are kept beside the budget.
std::vector<uint8_t> pflash_take(
        const std::vector<uint32_t> & order,
        const std::vector<uint32_t> & sizes,
        size_t budget,
        const std::vector<uint8_t> & protect = {});
