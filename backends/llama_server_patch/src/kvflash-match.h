#pragma once

#include "pflash-vectors.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

// How well idle prefixes match what is being asked. Pure.

constexpr float KVFLASH_UNKNOWN = std::numeric_limits<float>::quiet_NaN();

// The mean key of each page, one row of `pflash_vectors` of a shape; null for a page without text.
using kvflash_page_keys = std::vector<std::shared_ptr<const std::vector<float>>>;

// For each page its share of the divergence (Kullback-Leibler) between the question's attention and the null
// question's, p (log p - log q), as the mean of the heads. p and q are the largest attention that a token of
// either gives the page, normalised over all of the pages: so pages compare with each other, whichever prefix
// holds them, and of one call only.
std::vector<float> kvflash_page_shares(const pflash_vectors & asked, const pflash_vectors & plain, const kvflash_page_keys & pages);

// What one question found: for each prefix, by its slot, the highest value of its pages.
using kvflash_found = std::map<int, float>;

struct kvflash_prefix_pages {
    int slot = -1;
    std::vector<uint64_t> names; // of its pages, as kvflash_page_names
};

// `values` are those of all pages, one prefix after the other. Pages that all of several prefixes begin with tell
// none from another and do not count.
kvflash_found kvflash_best_pages(const std::vector<kvflash_prefix_pages> & prefixes, const std::vector<float> & values);

// The scores by which `kvflash_victims` decides. A prefix counts with its best page, however long it is; that
// value over the mean of the prefixes that the question was compared with, 1 being the average, times
// KVFLASH_AGE_WEIGHT for each newer question; the highest of the questions, less 1. So a score above 0 is a
// better match than the average of the newest question, or a much better one of an older question. A question
// that found less than two prefixes, or in none of them KVFLASH_LEAST_VALUE, tells nothing: one like the null
// question would raise noise. `questions`: the newest first.
std::map<int, float> kvflash_scores(const std::vector<const kvflash_found *> & questions);

constexpr float KVFLASH_AGE_WEIGHT  = 0.7f;
constexpr float KVFLASH_LEAST_VALUE = 1e-3f; // of a share or a score; what answers a question has 10 to 1000 times as much
