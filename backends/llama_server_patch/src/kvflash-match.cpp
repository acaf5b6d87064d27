#include "kvflash-match.h"

#include <algorithm>
#include <cmath>

static constexpr size_t MAX_QUERY_ROWS = 64; // of a longer question evenly spaced ones

static float dot(const float * a, const float * b, size_t n) {
    float sums[8] = {};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            sums[j] += a[i + j]*b[i + j];
        }
    }
    for (; i < n; i++) {
        sums[0] += a[i]*b[i];
    }
    float total = 0.0f;
    for (const float sum : sums) {
        total += sum;
    }
    return total;
}

// log of the largest attention of the queries' rows to each page, by one head
static void log_attention(
        const pflash_vectors & queries, size_t layer, size_t head, const kvflash_page_keys & pages, std::vector<float> & best) {
    const size_t n_rows   = std::min(queries.n_rows, MAX_QUERY_ROWS);
    std::vector<float> logits(pages.size());
    std::fill(best.begin(), best.end(), -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < n_rows; i++) {
        const size_t row = i*queries.n_rows/n_rows;
        const float * query = queries.values.data() + ((row*queries.n_layers + layer)*queries.n_heads + head)*queries.n_dims;
        float largest = -std::numeric_limits<float>::infinity();
        for (size_t p = 0; p < pages.size(); p++) {
            if (pages[p]) {
                const size_t n_key_heads = pages[p]->size()/(queries.n_layers*queries.n_dims);
                const size_t key_head    = head*n_key_heads/queries.n_heads;
                logits[p] = dot(query, pages[p]->data() + (layer*n_key_heads + key_head)*queries.n_dims, queries.n_dims);
                largest   = std::max(largest, logits[p]);
            }
        }
        double sum = 0.0;
        for (size_t p = 0; p < pages.size(); p++) {
            sum += pages[p] ? std::exp(logits[p] - largest) : 0.0f;
        }
        for (size_t p = 0; p < pages.size(); p++) {
            if (pages[p]) {
                best[p] = std::max(best[p], logits[p] - largest - (float) std::log(sum));
            }
        }
    }
}

std::vector<float> kvflash_page_shares(const pflash_vectors & asked, const pflash_vectors & plain, const kvflash_page_keys & pages) {
    std::vector<float> shares(pages.size());
    std::vector<float> p(pages.size()), q(pages.size());
    for (size_t layer = 0; layer < asked.n_layers; layer++) {
        for (size_t head = 0; head < asked.n_heads; head++) {
            log_attention(asked, layer, head, pages, p);
            log_attention(plain, layer, head, pages, q);
            for (size_t i = 0; i < pages.size(); i++) {
                shares[i] += pages[i] ? std::exp(p[i])*(p[i] - q[i])/(asked.n_layers*asked.n_heads) : 0.0f;
            }
        }
    }
    return shares;
}

kvflash_found kvflash_best_pages(const std::vector<kvflash_prefix_pages> & prefixes, const std::vector<float> & values) {
    size_t n_shared = prefixes.size() < 2 ? 0 : prefixes[0].names.size();
    for (const auto & prefix : prefixes) {
        const auto & first = prefixes[0].names;
        const size_t n = std::min(n_shared, prefix.names.size());
        n_shared = std::mismatch(first.begin(), first.begin() + n, prefix.names.begin()).first - first.begin();
    }
    kvflash_found found;
    size_t begin = 0;
    for (const auto & prefix : prefixes) {
        const size_t end = begin + prefix.names.size();
        float & best = found[prefix.slot];
        for (size_t i = begin + n_shared; i < end; i++) {
            best = std::max(best, values[i]);
        }
        begin = end;
    }
    return found;
}

std::map<int, float> kvflash_scores(const std::vector<const kvflash_found *> & questions) {
    std::map<int, float> scores;
    float weight = 1.0f;
    for (const auto * found : questions) {
        double sum  = 0.0;
        float  best = 0.0f;
        size_t n    = 0;
        for (const auto & [prefix, value] : *found) {
            if (std::isfinite(value)) {
                best = std::max(best, value);
                sum += std::max(0.0f, value);
                n++;
            }
        }
        if (n >= 2 && best >= KVFLASH_LEAST_VALUE) {
            for (const auto & [prefix, value] : *found) {
                if (std::isfinite(value)) {
                    const float score = weight*(float) (std::max(0.0f, value)*n/sum) - 1.0f;
                    const auto [at, is_new] = scores.emplace(prefix, score);
                    at->second = is_new ? score : std::max(at->second, score);
                }
            }
        }
        weight *= KVFLASH_AGE_WEIGHT;
    }
    return scores;
}
