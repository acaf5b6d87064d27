#include "server-kvflash-ranker.h"

#include "common.h"
#include "flashlane-args.h"
#include "flashlane-tokens.h"
#include "kvflash-reader.h"
#include "log.h"
#include "server-common.h"
#include "server-pflash.h"

#include <sstream>

static constexpr int32_t PAGE_THREADS = 1;      // the ranker's own, of the lowest priority
static constexpr int32_t QUESTION_WINDOW = 1;   // questions are read without a text
static constexpr int32_t SCORER_GPU_LAYERS = 999; // all, where there is a GPU

namespace {

// Guards the pointer alone: HTTP threads take it while the main loop replaces it.
struct holder {
    std::mutex mutex;
    std::shared_ptr<kvflash_ranker> ranker;
};

} // namespace

static holder & held() {
    static holder one;
    return one;
}

std::string server_kvflash_ranker_start(const common_params & params, const llama_vocab * vocab) {
    const auto & all     = flashlane_params_get();
    const auto & kvflash = all.kvflash;
    if (kvflash.policy == KVFLASH_POLICY_LRU) {
        return "";
    }
    const std::string file = kvflash.scorer(all.pflash);
    const int32_t n_threads = params.cpuparams_batch.n_threads;
    std::string error;
    auto pages = server_pflash_beside(file, PAGE_THREADS, PFLASH_SCORER_WINDOW);
    if (!pages) {
        pages = pflash_attention_scorer::load(file, PAGE_THREADS, SCORER_GPU_LAYERS, PFLASH_SCORER_WINDOW, error);
    }
    auto questions = pages ? pages->beside(n_threads, QUESTION_WINDOW) : nullptr;
    if (!questions) {
        return std::string("--kvflash-policy ") + kvflash_policy_name(kvflash.policy) + " cannot read with " + file + ": " +
               (error.empty() ? "no memory for a context" : error);
    }
    SRV_INF("kvflash: %s reads prefixes with %s\n", kvflash_policy_name(kvflash.policy), pages->info().name.c_str());
    auto ranker = std::make_shared<kvflash_ranker>(
        kvflash.policy, kvflash.tau, kvflash_make_reader(std::move(pages), std::move(questions), vocab));
    std::lock_guard<std::mutex> lock(held().mutex);
    held().ranker = std::move(ranker);
    return "";
}

void server_kvflash_ranker_stop() {
    std::shared_ptr<kvflash_ranker> ranker;
    {
        std::lock_guard<std::mutex> lock(held().mutex);
        ranker = std::move(held().ranker);
    }
    if (ranker) {
        ranker->stop(); // a request may still hold it
    }
}

std::shared_ptr<kvflash_ranker> server_kvflash_ranker() {
    std::lock_guard<std::mutex> lock(held().mutex);
    return held().ranker;
}

void server_kvflash_holds(int slot, const server_tokens & tokens) {
    if (const auto ranker = server_kvflash_ranker()) {
        if (tokens.empty()) {
            ranker->drop(slot);
        } else {
            ranker->hold(slot, flashlane_tokens(tokens));
        }
    }
}

void server_kvflash_ranker_props(common_json & kvflash) {
    const auto ranker = server_kvflash_ranker();
    if (!ranker) {
        return;
    }
    const auto now = ranker->counters();
    kvflash["ranker"] = common_json {
        { "prefixes",     now.prefixes },
        { "scored",       now.scored },
        { "questions",    now.questions },
        { "pages",        now.pages },
        { "pending",      now.pending },
        { "failed",       now.failed },
        { "pages_ms",     now.pages_ms },
        { "questions_ms", now.questions_ms },
    };
}

std::string server_kvflash_ranker_metrics() {
    common_json props = common_json::object();
    server_kvflash_ranker_props(props);
    if (!props.contains("ranker")) {
        return "";
    }
    std::ostringstream out;
    const auto add = [&](const std::string & field, const std::string & name, const char * kind, const char * help) {
        out << "# HELP llamacpp:kvflash_ranker_" << name << " " << help << "\n# TYPE llamacpp:kvflash_ranker_" << name << " " << kind << "\n"
            << "llamacpp:kvflash_ranker_" << name << " " << props.at("ranker").at(field).dump() << "\n";
    };
    add("prefixes",     "prefixes",           "gauge",   "Prefixes that the policy looks at");
    add("scored",       "scored",             "gauge",   "Prefixes with a score");
    add("questions",    "questions",          "gauge",   "Newest questions, for which prefixes are kept");
    add("pages",        "pages",              "gauge",   "Pages that are read");
    add("pending",      "pending",            "gauge",   "Pages that wait to be read");
    add("failed",       "failed_total",       "counter", "Readings that failed");
    add("pages_ms",     "pages_ms_total",     "counter", "Milliseconds spent on reading pages, in the background");
    add("questions_ms", "questions_ms_total", "counter", "Milliseconds spent on reading questions");
    return out.str();
}
