#include "kvflash-ranker.h"

#include "kvflash-pages.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <unordered_set>

#ifdef __linux__
#include <sys/resource.h>
#endif

static constexpr size_t MAX_QUESTIONS  = 4;
static constexpr size_t CHUNK_TOKENS   = 512;        // read at once, in whole pages; one window of the scorer in most texts
static constexpr size_t MAX_KEYS_BYTES = 64u << 20;  // beyond, pages are not read and their prefixes go by recency
static constexpr int    LOWEST_PRIORITY = 19;

using steady = std::chrono::steady_clock;

static double ms_since(steady::time_point start) {
    return std::chrono::duration<double, std::milli>(steady::now() - start).count();
}

kvflash_ranker::kvflash_ranker(kvflash_policy policy, size_t tau, std::unique_ptr<kvflash_reader> reader) :
        policy(policy), tau(tau), chunk_pages(std::max<size_t>(1, CHUNK_TOKENS / tau)), reader(std::move(reader)) {
    thread = std::thread(&kvflash_ranker::read_pages, this);
}

kvflash_ranker::~kvflash_ranker() {
    stop();
}

void kvflash_ranker::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        stopping = true;
    }
    changed.notify_all();
    if (thread.joinable()) {
        thread.join();
    }
}

//
// Prefixes and questions
//

void kvflash_ranker::hold(int slot, const std::vector<int32_t> & tokens) {
    std::lock_guard<std::mutex> lock(mutex);
    auto & held = prefixes[slot];
    if (held.tokens == tokens) {
        return;
    }
    auto names = kvflash_page_names(kvflash_seed(), tokens.data(), tokens.size(), tau);
    const size_t most   = std::min(names.size(), held.names.size());
    const size_t common = std::mismatch(names.begin(), names.begin() + most, held.names.begin()).first - names.begin();
    if (common == 0 || common + chunk_pages < held.names.size()) {
        for (const auto & asks : questions) {
            asks->found.erase(slot); // of another prefix
        }
    }
    held.tokens = tokens;
    held.names  = std::move(names);
    stale = true;
    forget();
    rescore();
    changed.notify_all();
}

void kvflash_ranker::drop(int slot) {
    std::lock_guard<std::mutex> lock(mutex);
    if (prefixes.erase(slot) > 0) {
        for (const auto & asks : questions) {
            asks->found.erase(slot);
        }
        forget();
        rescore();
    }
}

void kvflash_ranker::ask(const std::string & text) {
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
        return;
    }
    const auto start = steady::now();
    std::shared_ptr<question> asked;
    view at;
    {
        std::lock_guard<std::mutex> lock(mutex);
        const auto same = std::find_if(questions.begin(), questions.end(), [&](const auto & asks) { return asks->text == text; });
        if (same != questions.end()) {
            asked = *same;
            questions.erase(same);
            questions.push_front(asked);
            rescore();
            return;
        }
    }
    asked = std::make_shared<question>();
    asked->text = text;
    try {
        if (policy == KVFLASH_POLICY_QK) {
            asked->asked = reader->queries(text, asked->plain);
            {
                std::lock_guard<std::mutex> lock(mutex);
                at = look(*asked);
            }
            asked->found = compare(*asked, at);
        }
    } catch (const std::exception &) {
        std::lock_guard<std::mutex> lock(mutex);
        counted.failed++;
        return;
    }
    std::lock_guard<std::mutex> lock(mutex);
    for (auto it = asked->found.begin(); it != asked->found.end();) {
        it = prefixes.count(it->first) ? std::next(it) : asked->found.erase(it);
    }
    questions.push_front(std::move(asked));
    questions.resize(std::min(questions.size(), MAX_QUESTIONS));
    counted.questions_ms += ms_since(start);
    stale = true; // pages may have been read meanwhile
    rescore();
    changed.notify_all();
}

float kvflash_ranker::score(int slot) const {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = scores.find(slot);
    return found == scores.end() ? KVFLASH_UNKNOWN : found->second;
}

kvflash_rank_counters kvflash_ranker::counters() const {
    std::lock_guard<std::mutex> lock(mutex);
    auto now = counted;
    now.prefixes  = prefixes.size();
    now.scored    = scores.size();
    now.questions = questions.size();
    now.pages     = keys.size();
    const question none;
    for (const auto & [slot, held] : prefixes) {
        for (const uint64_t name : held.names) {
            if (policy == KVFLASH_POLICY_QK) {
                now.pending += !is_full() && !is_read(name, none);
            } else {
                now.pages += std::any_of(questions.begin(), questions.end(), [&](const auto & asks) { return is_read(name, *asks); });
                for (const auto & asks : questions) {
                    now.pending += !is_read(name, *asks);
                }
            }
        }
    }
    now.pending += stale || comparing;
    return now;
}

//
// With the mutex held
//

bool kvflash_ranker::is_read(uint64_t name, const question & asks) const {
    return policy == KVFLASH_POLICY_QK ? keys.count(name) > 0 : asks.attention.count(name) > 0;
}

size_t kvflash_ranker::n_read(const prefix & of, const question & asks) const {
    return std::find_if(of.names.begin(), of.names.end(), [&](uint64_t name) { return !is_read(name, asks); }) - of.names.begin();
}

bool kvflash_ranker::is_full() const {
    return policy == KVFLASH_POLICY_QK && keys_bytes >= MAX_KEYS_BYTES;
}

bool kvflash_ranker::next_chunk(chunk & next) const {
    if (is_full()) {
        return false;
    }
    const auto find = [&](const std::shared_ptr<question> & asks) {
        const question none;
        for (const auto & [slot, held] : prefixes) {
            const size_t at = n_read(held, asks ? *asks : none);
            if (at == held.names.size()) {
                continue;
            }
            const size_t begin = at / chunk_pages * chunk_pages;
            const size_t end   = std::min(begin + chunk_pages, held.names.size());
            next.slot = slot;
            next.tokens.assign(held.tokens.begin() + begin * tau, held.tokens.begin() + end * tau);
            next.names.assign(held.names.begin() + begin, held.names.begin() + end);
            next.asks = asks;
            return true;
        }
        return false;
    };
    return policy == KVFLASH_POLICY_QK ? find(nullptr) : std::any_of(questions.begin(), questions.end(), find);
}

// A prefix is known when all of it is read, or all but its last chunk, which grows with every turn.
kvflash_ranker::view kvflash_ranker::look(const question & asks) const {
    view at;
    for (const auto & [slot, held] : prefixes) {
        const size_t n = n_read(held, asks);
        if (n == 0 || n + chunk_pages < held.names.size()) {
            continue;
        }
        at.prefixes.push_back({ slot, { held.names.begin(), held.names.begin() + n } });
        for (const uint64_t name : at.prefixes.back().names) {
            if (policy == KVFLASH_POLICY_QK) {
                at.keys.push_back(keys.at(name));
            } else {
                at.values.push_back(asks.attention.at(name));
            }
        }
    }
    return at;
}

void kvflash_ranker::store(const chunk & done, const kvflash_page_keys & read_keys, const std::vector<float> & read_attention) {
    for (size_t i = 0; i < done.names.size(); i++) {
        if (policy == KVFLASH_POLICY_DRAFTER) {
            done.asks->attention[done.names[i]] = i < read_attention.size() ? read_attention[i] : 0.0f;
        } else {
            keys[done.names[i]] = i < read_keys.size() ? read_keys[i] : nullptr;
        }
    }
    forget(); // of prefixes that left meanwhile
}

// What belongs to no prefix that is held.
void kvflash_ranker::forget() {
    std::unordered_set<uint64_t> held;
    for (const auto & [slot, prefix] : prefixes) {
        held.insert(prefix.names.begin(), prefix.names.end());
    }
    for (auto it = keys.begin(); it != keys.end();) {
        it = held.count(it->first) ? std::next(it) : keys.erase(it);
    }
    keys_bytes = 0;
    for (const auto & [name, key] : keys) {
        keys_bytes += key ? key->size() * sizeof(float) : 0;
    }
    for (const auto & asks : questions) {
        for (auto it = asks->attention.begin(); it != asks->attention.end();) {
            it = held.count(it->first) ? std::next(it) : asks->attention.erase(it);
        }
    }
}

void kvflash_ranker::rescore() {
    std::vector<const kvflash_found *> found;
    for (const auto & asks : questions) {
        found.push_back(&asks->found);
    }
    scores = kvflash_scores(found);
}

//
// Reading
//

kvflash_found kvflash_ranker::compare(const question & asks, const view & at) const {
    const auto values = policy == KVFLASH_POLICY_QK ? kvflash_page_shares(asks.asked, asks.plain, at.keys) : at.values;
    return kvflash_best_pages(at.prefixes, values);
}

void kvflash_ranker::read_pages() {
#ifdef __linux__
    setpriority(PRIO_PROCESS, 0, LOWEST_PRIORITY); // on Linux of the calling thread alone
#endif
    const auto gives_up = [this] {
        std::lock_guard<std::mutex> lock(mutex);
        return stopping;
    };
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        chunk next;
        bool  reads = false;
        changed.wait(lock, [&] { return stopping || (reads = next_chunk(next)) || stale; });
        if (stopping) {
            return;
        }
        if (reads) {
            lock.unlock();
            const auto start = steady::now();
            kvflash_page_keys  read_keys;
            std::vector<float> read_attention;
            bool failed = false;
            try {
                if (policy == KVFLASH_POLICY_QK) {
                    read_keys = reader->keys(next.tokens.data(), next.names.size(), tau, gives_up);
                } else {
                    read_attention = reader->attention(next.tokens.data(), next.names.size(), tau, next.asks->text, gives_up);
                }
            } catch (const std::exception &) {
                failed = true; // its pages match nothing, and are not tried again
            }
            lock.lock();
            counted.pages_ms += ms_since(start);
            counted.failed   += failed && !stopping;
            store(next, read_keys, read_attention);
            chunk after;
            if (next_chunk(after) && after.slot == next.slot && after.asks == next.asks) {
                continue; // the prefix is not read to its end
            }
        }
        stale     = false;
        comparing = true;
        for (const auto & asks : std::deque<std::shared_ptr<question>>(questions)) {
            const auto at = look(*asks);
            lock.unlock();
            auto found = compare(*asks, at);
            lock.lock();
            for (const auto & prefix : at.prefixes) {
                const auto held = prefixes.find(prefix.slot);
                const bool same = held != prefixes.end() && held->second.names.size() >= prefix.names.size() &&
                                  std::equal(prefix.names.begin(), prefix.names.end(), held->second.names.begin());
                if (same) {
                    asks->found[prefix.slot] = found[prefix.slot];
                }
            }
        }
        rescore();
        comparing = false;
    }
}
