#pragma once

#include "flashlane-args.h"
#include "kvflash-match.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

// Reads prefixes and questions with a scorer model and tells which prefixes match, for the policies `qk` and
// `drafter`. No llama objects: a kvflash_reader has them.

class kvflash_reader {
public:
    virtual ~kvflash_reader() = default;

    // Of each of the `n_pages` pages of `tau` tokens: its mean key, or null for a page without text; for the
    // attention, the highest score of its tokens. Called by one thread, and given up when `stopping` is true.
    // Both throw std::runtime_error.
    virtual kvflash_page_keys  keys(const int32_t * tokens, size_t n_pages, size_t tau, const std::function<bool()> & stopping) = 0;
    virtual std::vector<float> attention(
            const int32_t * tokens, size_t n_pages, size_t tau, const std::string & question, const std::function<bool()> & stopping) = 0;

    // The queries of a question and of the null question. Any thread; throws std::runtime_error.
    virtual pflash_vectors queries(const std::string & question, pflash_vectors & plain) = 0;
};

struct kvflash_rank_counters {
    size_t   prefixes  = 0; // held
    size_t   scored    = 0; // of these, those with a score
    size_t   questions = 0; // that count
    size_t   pages     = 0; // read and kept
    size_t   pending   = 0; // pages to be read, `drafter`: for each question
    uint64_t failed    = 0; // readings
    double   pages_ms    = 0.0; // spent on reading pages, in the background
    double   questions_ms = 0.0; // spent on reading questions, in their requests
};

// Locking: one mutex guards all that is kept, and is held for copies and sums alone. Reading and comparing go on
// without it, on what was copied: pages in a thread of the ranker's own, of the lowest priority, a question in the
// thread that asks. A question's text and queries never change; its maps do, with the mutex held. What was read for a
// prefix that is gone meanwhile is dropped. Every function but `stop` may be called by any thread.
class kvflash_ranker {
public:
    kvflash_ranker(kvflash_policy policy, size_t tau, std::unique_ptr<kvflash_reader> reader);
    ~kvflash_ranker();

    // Gives up what is being read and ends the thread; nothing more is read. By the thread that made it.
    void stop();

    // What a slot holds, or is about to; whole pages count. Those that another slot holds too, and those that
    // this one held before, are not read again.
    void hold(int slot, const std::vector<int32_t> & tokens);
    void drop(int slot);

    // A question that was asked just now.
    void ask(const std::string & question);

    // KVFLASH_UNKNOWN until it is read.
    float score(int slot) const;

    kvflash_rank_counters counters() const;

private:
    struct prefix {
        std::vector<int32_t>  tokens;
        std::vector<uint64_t> names; // of its pages
    };
    struct question {
        std::string    text;
        pflash_vectors asked, plain; // `qk`
        kvflash_found  found;
        std::unordered_map<uint64_t, float> attention; // `drafter`: of a page's name
    };
    struct chunk { // pages that are read at once
        int slot = -1;
        std::vector<int32_t>  tokens;
        std::vector<uint64_t> names;
        std::shared_ptr<question> asks; // `drafter`
    };
    struct view { // of what is read, at one time
        std::vector<kvflash_prefix_pages> prefixes;
        kvflash_page_keys  keys;   // `qk`: of all pages, one prefix after the other
        std::vector<float> values; // `drafter`: the same
    };

    const kvflash_policy policy;
    const size_t tau;
    const size_t chunk_pages;
    const std::unique_ptr<kvflash_reader> reader;

    mutable std::mutex mutex;
    std::condition_variable changed;
    bool stopping = false;
    bool stale     = false; // prefixes or questions changed since they were compared
    bool comparing = false; // with the mutex let go
    std::map<int, prefix> prefixes;
    std::unordered_map<uint64_t, std::shared_ptr<const std::vector<float>>> keys; // of a page's name
    size_t keys_bytes = 0;
    std::deque<std::shared_ptr<question>> questions; // the newest in front
    std::map<int, float> scores;
    kvflash_rank_counters counted;
    std::thread thread;

    void read_pages();
    kvflash_found compare(const question & asks, const view & at) const;

    // what follows is called with the mutex held
    bool is_full() const;
    bool next_chunk(chunk & next) const;
    bool is_read(uint64_t name, const question & asks) const;
    size_t n_read(const prefix & of, const question & asks) const;
    view look(const question & asks) const;
    void store(const chunk & done, const kvflash_page_keys & read_keys, const std::vector<float> & read_attention);
    void forget();
    void rescore();
};
