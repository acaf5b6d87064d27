// How well prefixes match a question: shares of pages, the best page of a prefix, several questions.
// Exits non-zero at the first breach. One argument runs one group.

#include "groups.h"
#include "kvflash-match.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

static constexpr size_t LAYERS = 2, HEADS = 4, KEY_HEADS = 2, DIMS = 12;

static pflash_vectors drawn(size_t n_rows, std::mt19937 & random) {
    std::normal_distribution<float> normal;
    pflash_vectors made { n_rows, LAYERS, HEADS, DIMS, std::vector<float>(n_rows*LAYERS*HEADS*DIMS) };
    for (float & value : made.values) {
        value = normal(random);
    }
    return made;
}

static std::shared_ptr<std::vector<float>> page(std::mt19937 & random) {
    std::normal_distribution<float> normal(0.0f, 0.5f);
    auto made = std::make_shared<std::vector<float>>(LAYERS*KEY_HEADS*DIMS);
    for (float & value : *made) {
        value = normal(random);
    }
    return made;
}

// The definition, written out.
static double share(const pflash_vectors & asked, const pflash_vectors & plain, const kvflash_page_keys & pages, size_t at) {
    const auto attention = [&](const pflash_vectors & queries, size_t layer, size_t head) {
        double best = 0.0;
        for (size_t row = 0; row < queries.n_rows; row++) {
            double sum = 0.0, own = 0.0;
            for (size_t p = 0; p < pages.size(); p++) {
                if (!pages[p]) {
                    continue;
                }
                double logit = 0.0;
                for (size_t i = 0; i < DIMS; i++) {
                    logit += queries.values[((row*LAYERS + layer)*HEADS + head)*DIMS + i]*
                             (*pages[p])[(layer*KEY_HEADS + head*KEY_HEADS/HEADS)*DIMS + i];
                }
                sum += std::exp(logit);
                own = p == at ? std::exp(logit) : own;
            }
            best = std::max(best, own/sum);
        }
        return best;
    };
    double total = 0.0;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t head = 0; head < HEADS; head++) {
            const double p = attention(asked, layer, head);
            total += p*std::log(p/attention(plain, layer, head));
        }
    }
    return total/(LAYERS*HEADS);
}

static void test_shares() {
    std::mt19937 random(3);
    for (int round = 0; round < 20; round++) {
        const auto asked = drawn(1 + random() % 9, random), plain = drawn(4, random);
        kvflash_page_keys pages;
        for (size_t i = 0; i < 7; i++) {
            pages.push_back(page(random));
        }
        pages[2] = nullptr; // without text
        const auto shares = kvflash_page_shares(asked, plain, pages);
        CHECK(shares.size() == pages.size() && shares[2] == 0.0f);
        for (size_t i = 0; i < pages.size(); i++) {
            CHECK(!pages[i] || std::fabs(shares[i] - share(asked, plain, pages, i)) < 1e-4);
        }
        // what asks for nothing in particular has no share
        for (const float none : kvflash_page_shares(plain, plain, pages)) {
            CHECK(std::fabs(none) < 1e-5f);
        }
    }
    CHECK(kvflash_page_shares(drawn(2, random), drawn(2, random), {}).empty());
    CHECK((kvflash_page_shares(drawn(2, random), drawn(2, random), { nullptr, nullptr }) == std::vector<float> { 0.0f, 0.0f }));
}

// The page that a question's own queries point at gets the largest share; a long question costs no more.
static void test_the_page_that_is_asked_for() {
    for (uint32_t seed = 0; seed < 20; seed++) {
        std::mt19937 random(seed);
        auto asked = drawn(1000, random);
        const auto plain = drawn(4, random);
        kvflash_page_keys pages;
        for (size_t i = 0; i < 30; i++) {
            pages.push_back(page(random));
        }
        const size_t wanted = random() % pages.size();
        auto & key = const_cast<std::vector<float> &>(*pages[wanted]);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            for (size_t head = 0; head < HEADS; head++) {
                for (size_t i = 0; i < DIMS; i++) {
                    for (size_t row = 0; row < asked.n_rows; row++) {
                        asked.values[((row*LAYERS + layer)*HEADS + head)*DIMS + i] = 2.0f*key[(layer*KEY_HEADS + head*KEY_HEADS/HEADS)*DIMS + i];
                    }
                }
            }
        }
        const auto shares = kvflash_page_shares(asked, plain, pages);
        for (size_t i = 0; i < pages.size(); i++) {
            CHECK(i == wanted || shares[i] < shares[wanted]);
        }
    }
}

static void test_best_pages() {
    // a prefix counts with its best page, however long it is
    auto found = kvflash_best_pages({ { 4, { 1, 2, 3 } }, { 7, { 9 } } }, { 0.1f, 0.5f, 0.2f, 0.4f });
    CHECK(found.size() == 2 && found[4] == 0.5f && found[7] == 0.4f);
    // what all begin with tells none from another
    found = kvflash_best_pages({ { 0, { 1, 2, 3 } }, { 1, { 1, 2, 4 } }, { 2, { 1, 2 } } }, { 9.0f, 9.0f, 0.3f, 9.0f, 9.0f, 0.6f, 9.0f, 9.0f });
    CHECK(found[0] == 0.3f && found[1] == 0.6f && found[2] == 0.0f);
    found = kvflash_best_pages({ { 0, { 1, 2 } } }, { 0.7f, 0.3f });
    CHECK(found[0] == 0.7f);
    CHECK(kvflash_best_pages({}, {}).empty());
}

static bool near(float a, float b) {
    return std::fabs(a - b) < 1e-5f;
}

static void test_scores() {
    const kvflash_found first = { { 0, 0.3f }, { 1, 0.1f }, { 2, 0.2f } }, second = { { 0, 0.0f }, { 1, 0.8f }, { 2, 0.1f } };
    auto scores = kvflash_scores({ &first });
    CHECK(near(scores[0], 0.5f) && near(scores[1], -0.5f) && near(scores[2], 0.0f));
    // its own scale does not matter
    const kvflash_found large = { { 0, 300.0f }, { 1, 100.0f }, { 2, 200.0f } };
    CHECK(kvflash_scores({ &large }) == scores);
    // the highest of the questions, older ones for less
    scores = kvflash_scores({ &first, &second });
    CHECK(near(scores[0], 0.5f) && near(scores[1], 0.7f*0.8f/0.3f - 1.0f) && near(scores[2], 0.0f));
    scores = kvflash_scores({ &second, &first });
    CHECK(near(scores[0], 0.7f*1.5f - 1.0f) && near(scores[1], 0.8f/0.3f - 1.0f));
    // what is not known has no score; one prefix alone, and a question that found nothing, tell nothing
    const kvflash_found half = { { 0, 0.3f }, { 1, KVFLASH_UNKNOWN }, { 5, 0.1f } }, alone = { { 1, 3.0f } }, nothing = { { 0, 0.0f }, { 1, -1.0f } };
    const kvflash_found noise = { { 0, 3e-4f }, { 1, 1e-4f } };
    CHECK(kvflash_scores({ &alone, &nothing, &noise }).empty());
    scores = kvflash_scores({ &half });
    CHECK(scores.size() == 2 && near(scores[0], 0.5f) && near(scores[5], -0.5f));
    CHECK(kvflash_scores({}).empty());
}

int main(int argc, char ** argv) {
    return run_groups(argc, argv, {
        { "shares", test_shares }, { "asked", test_the_page_that_is_asked_for }, { "best", test_best_pages }, { "scores", test_scores } });
}
