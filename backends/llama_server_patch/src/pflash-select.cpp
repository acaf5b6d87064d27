#include "pflash-select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

std::vector<pflash_block> pflash_blocks(
        const std::vector<uint8_t> & protect,
        const std::vector<uint8_t> & char_start,
        size_t block_tokens) {
    std::vector<pflash_block> blocks;
    size_t i = 0;
    while (i < protect.size()) {
        if (protect[i]) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < protect.size() && !protect[end] && (end - i < block_tokens || !char_start[end])) {
            end++;
        }
        blocks.push_back({ i, end });
        i = end;
    }
    return blocks;
}

std::vector<float> pflash_uniform_scores(size_t n_blocks) {
    constexpr double golden = 0.6180339887498949;
    std::vector<float> scores(n_blocks);
    for (size_t b = 0; b < n_blocks; b++) {
        scores[b] = (float) (1.0 - std::fmod((double) (b + 1) * golden, 1.0));
    }
    if (n_blocks > 0) {
        scores.front() = 3.0f;
        scores.back()  = std::max(scores.back(), 2.0f);
    }
    return scores;
}

std::vector<int32_t> pflash_select(
        const std::vector<float>        & scores,
        const std::vector<pflash_block> & blocks,
        const std::vector<uint8_t>      & protect,
        size_t budget) {
    std::vector<size_t> order(std::min(blocks.size(), scores.size()));
    std::iota(order.begin(), order.end(), (size_t) 0);
    order.erase(std::remove_if(order.begin(), order.end(), [&](size_t b) { return std::isnan(scores[b]); }), order.end());
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });

    std::vector<uint8_t> stays = protect;
    for (size_t b : order) {
        const size_t n = blocks[b].end - blocks[b].begin;
        if (n > budget) {
            continue;
        }
        budget -= n;
        std::fill(stays.begin() + blocks[b].begin, stays.begin() + blocks[b].end, (uint8_t) 1);
    }

    std::vector<int32_t> keep;
    for (size_t i = 0; i < stays.size(); i++) {
        if (stays[i]) {
            keep.push_back((int32_t) i);
        }
    }
    return keep;
}

size_t pflash_budget(size_t n_tokens, size_t n_compressible, float keep_ratio, size_t min_keep) {
    const size_t n_protected = n_tokens - n_compressible;
    size_t budget = (size_t) std::ceil((double) keep_ratio * (double) n_compressible);
    if (min_keep > n_protected) {
        budget = std::max(budget, min_keep - n_protected);
    }
    return std::min(budget, n_compressible);
}

std::string pflash_validate(
        const std::vector<int32_t> & keep,
        const std::vector<uint8_t> & protect,
        size_t budget) {
    if (keep.size() >= protect.size()) {
        return "not shorter than the prompt";
    }
    std::vector<uint8_t> stays(protect.size(), 0);
    int64_t last = -1;
    for (int32_t i : keep) {
        if (i <= last || (size_t) i >= protect.size()) {
            return "not an ordered subsequence of the prompt";
        }
        last = i;
        stays[i] = 1;
    }
    size_t n_unprotected = 0;
    for (size_t i = 0; i < protect.size(); i++) {
        if (protect[i] && !stays[i]) {
            return "a protected token is missing";
        }
        n_unprotected += !protect[i] && stays[i];
    }
    return n_unprotected > budget ? "over the budget" : "";
}
