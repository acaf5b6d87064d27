// The ranker with a reader that needs no model: what is read when, what is dropped, and many threads at once.
// Exits non-zero at the first breach. One argument runs one group.

#include "groups.h"
#include "kvflash-ranker.h"
#include "kvflash_prompts.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

static constexpr size_t TAU = 64, DIMS = 8;

static void sleep_ms(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// A page is about its first token modulo DIMS, and a question about its last digit.
struct fake : kvflash_reader {
    std::atomic<size_t> n_pages { 0 }, n_questions { 0 };
    std::atomic<bool>   blocked { false }, fails { false };

    static size_t topic(int32_t token) { return token % DIMS; }

    void wait(const std::function<bool()> & stopping) {
        while (blocked && !stopping()) {
            sleep_ms(1);
        }
        if (fails || stopping()) {
            throw std::runtime_error("decode: failed");
        }
    }

    kvflash_page_keys keys(const int32_t * tokens, size_t n, size_t tau, const std::function<bool()> & stopping) override {
        wait(stopping);
        kvflash_page_keys made;
        for (size_t i = 0; i < n; i++) {
            auto key = std::make_shared<std::vector<float>>(DIMS);
            (*key)[topic(tokens[i*tau])] = 3.0f;
            made.push_back(std::move(key));
        }
        n_pages += n;
        return made;
    }

    std::vector<float> attention(
            const int32_t * tokens, size_t n, size_t tau, const std::string & question, const std::function<bool()> & stopping) override {
        wait(stopping);
        std::vector<float> made;
        for (size_t i = 0; i < n; i++) {
            made.push_back(topic(tokens[i*tau]) == (size_t) (question.back() - '0') ? 1.0f : 0.1f);
        }
        n_pages += n;
        return made;
    }

    pflash_vectors queries(const std::string & question, pflash_vectors & plain) override {
        if (fails) {
            throw std::runtime_error("decode: failed");
        }
        n_questions++;
        pflash_vectors made { 1, 1, 1, DIMS, std::vector<float>(DIMS) };
        plain = made;
        made.values[question.back() - '0'] = 2.0f;
        return made;
    }
};

struct rig {
    fake * reader;
    kvflash_ranker ranker;

    explicit rig(kvflash_policy policy, std::unique_ptr<fake> made = std::make_unique<fake>()) :
        reader(made.get()), ranker(policy, TAU, std::move(made)) {}

    void settle() {
        for (int i = 0; i < 5000 && ranker.counters().pending > 0; i++) {
            sleep_ms(1);
        }
        CHECK(ranker.counters().pending == 0);
    }
};

// `n` pages about a topic, different for each `number`.
static tokens about(int32_t topic, size_t n, int32_t number = 0) {
    tokens made;
    for (size_t i = 0; i < n; i++) {
        const auto page = counted((int32_t) DIMS*(1000*number + 10*(int32_t) i) + topic, TAU);
        made.insert(made.end(), page.begin(), page.end());
    }
    return made;
}

static void test_the_one_that_is_asked_for(kvflash_policy policy) {
    rig at(policy);
    at.ranker.hold(0, about(1, 20));
    at.ranker.hold(1, about(2, 3));
    at.ranker.hold(2, about(3, 9));
    CHECK(std::isnan(at.ranker.score(0)) && std::isnan(at.ranker.score(9)));
    at.settle();
    CHECK(std::isnan(at.ranker.score(0)) && at.ranker.counters().scored == 0); // nothing is asked
    at.ranker.ask("about 2");
    at.settle();
    CHECK(at.ranker.score(1) > 0.0f && at.ranker.score(0) < 0.0f && at.ranker.score(2) < 0.0f);
    at.ranker.ask("about 1");
    at.settle();
    CHECK(at.ranker.score(0) > at.ranker.score(1) && at.ranker.score(1) > 0.0f && at.ranker.score(2) < 0.0f);
    // asked again, it is the newest, and nothing is read for it
    const size_t n_read = at.reader->n_pages, n_asked = at.reader->n_questions;
    at.ranker.ask("about 2");
    CHECK(at.ranker.score(1) > at.ranker.score(0) && at.reader->n_pages == n_read && at.reader->n_questions == n_asked);
    at.ranker.ask(" \n");
    CHECK(at.ranker.counters().questions == 2);
    // four questions count
    for (const char * text : { "about 4", "about 5", "about 6", "about 7" }) {
        at.ranker.ask(text);
    }
    at.settle();
    CHECK(at.ranker.counters().questions == 4 && !(at.ranker.score(1) > 0.1f));
}

static void test_qk() { test_the_one_that_is_asked_for(KVFLASH_POLICY_QK); }
static void test_drafter() { test_the_one_that_is_asked_for(KVFLASH_POLICY_DRAFTER); }

static void test_pages_are_read_once() {
    rig at(KVFLASH_POLICY_QK);
    const auto system = about(5, 16);
    at.ranker.hold(0, joined(system, about(1, 4)));
    at.settle();
    CHECK(at.reader->n_pages == 20);
    at.ranker.hold(1, joined(system, about(2, 8)));
    at.settle();
    CHECK(at.reader->n_pages == 28); // the shared ones are known
    at.ranker.hold(0, joined(system, joined(about(1, 4), about(1, 2, 1))));
    at.settle();
    CHECK(at.reader->n_pages == 34); // the last chunk is read anew
    at.ranker.hold(0, joined(system, joined(about(1, 4), about(1, 2, 1))));
    CHECK(at.ranker.counters().pending == 0);
    // a part of a page is no page
    at.ranker.hold(3, counted(0, TAU - 1));
    at.settle();
    CHECK(at.reader->n_pages == 34 && at.ranker.counters().prefixes == 3);
    at.ranker.drop(0);
    at.ranker.drop(1);
    at.ranker.drop(1);
    CHECK(at.ranker.counters().pages == 0 && at.ranker.counters().prefixes == 1);
}

static void test_what_changes_meanwhile() {
    rig at(KVFLASH_POLICY_QK);
    at.ranker.hold(0, about(1, 8));
    at.ranker.hold(1, about(2, 8));
    at.ranker.ask("about 1");
    at.settle();
    CHECK(at.ranker.score(0) > 0.0f);
    // another prefix in the slot has no score of the old one
    at.reader->blocked = true;
    at.ranker.hold(0, about(3, 8));
    CHECK(std::isnan(at.ranker.score(0)));
    sleep_ms(20);
    at.ranker.drop(0); // while it is read
    at.reader->blocked = false;
    at.settle();
    CHECK(std::isnan(at.ranker.score(0)) && at.ranker.counters().pages == 8);
    // one that grows keeps its score until its end is read
    at.ranker.hold(2, about(4, 8));
    at.settle();
    at.ranker.ask("about 2");
    CHECK(at.ranker.score(1) > 0.0f);
    at.reader->blocked = true;
    at.ranker.hold(1, joined(about(2, 8), about(2, 2, 1)));
    CHECK(at.ranker.score(1) > 0.0f);
    at.reader->blocked = false;
    at.settle();
    CHECK(at.ranker.score(1) > 0.0f);
}

static void test_failures() {
    auto made = std::make_unique<fake>();
    made->fails = true;
    rig at(KVFLASH_POLICY_QK, std::move(made));
    at.ranker.hold(0, about(1, 8));
    at.ranker.hold(1, about(2, 8));
    at.ranker.ask("about 1");
    at.settle();
    CHECK(at.ranker.counters().failed == 3 && std::isnan(at.ranker.score(0)));
    at.reader->fails = false;
    at.ranker.hold(2, about(3, 8));
    at.ranker.hold(3, about(4, 8));
    at.ranker.ask("about 3");
    at.settle();
    CHECK(at.ranker.score(2) > 0.0f && at.ranker.score(0) < 0.0f && at.ranker.counters().failed == 3);
}

// It ends at once, whatever is read.
static void test_end() {
    for (int i = 0; i < 20; i++) {
        auto made = std::make_unique<fake>();
        made->blocked = true;
        rig at(i % 2 ? KVFLASH_POLICY_QK : KVFLASH_POLICY_DRAFTER, std::move(made));
        at.ranker.hold(0, about(1, 30));
        at.ranker.ask("about 1");
        sleep_ms(i % 4);
        at.ranker.stop();
        at.ranker.ask("about 2"); // by a request that goes on
        at.ranker.hold(1, about(1, 2));
        CHECK(at.ranker.counters().failed == 0);
    }
}

static void test_threads() {
    for (const auto policy : { KVFLASH_POLICY_QK, KVFLASH_POLICY_DRAFTER }) {
        rig at(policy);
        std::vector<std::thread> threads;
        for (uint32_t t = 0; t < 4; t++) {
            threads.emplace_back([&at, t] {
                std::mt19937 random(t);
                for (int i = 0; i < 150; i++) {
                    const int slot = (int) (random() % 4);
                    switch (random() % 5) {
                        case 0: at.ranker.hold(slot, about((int32_t) (random() % DIMS), 1 + random() % 20, (int32_t) (random() % 3))); break;
                        case 1: at.ranker.drop(slot); break;
                        case 2: at.ranker.ask("about " + std::to_string(random() % DIMS)); break;
                        case 3: at.ranker.score(slot); break;
                        default: at.ranker.counters(); break;
                    }
                }
            });
        }
        for (auto & thread : threads) {
            thread.join();
        }
        for (int slot = 0; slot < 4; slot++) {
            at.ranker.hold(slot, about(slot, 6));
        }
        at.ranker.ask("about 2");
        at.settle();
        for (int slot = 0; slot < 4; slot++) {
            CHECK(slot == 2 ? at.ranker.score(slot) > 0.0f : at.ranker.score(slot) < at.ranker.score(2));
        }
    }
}

int main(int argc, char ** argv) {
    return run_groups(argc, argv, {
        { "qk", test_qk }, { "drafter", test_drafter }, { "once", test_pages_are_read_once }, { "meanwhile", test_what_changes_meanwhile },
        { "failures", test_failures }, { "end", test_end }, { "threads", test_threads } });
}
