#include "pflash-scorer.h"

#include "pflash-scorer-attention.h"
#include "pflash-scorer-text.h"

#include "ggml.h"
#include "llama-cpp.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>

static constexpr int32_t MAX_QUESTION_TOKENS = 256;   // of a longer one, the first and the last 128
static constexpr int32_t PROBE_TOKENS        = 256;
static constexpr int64_t CANCEL_POLL_US      = 10000;
static constexpr double  FIRST_DEPTH         = 0.455; // the layers that look answers up, as shares of the depth
static constexpr double  LAST_DEPTH          = 0.545;
static constexpr const char * ORIGINAL_LAYERS_KEY = "flashlane.original_layers"; // written by flashlane/scorer.py
static constexpr double  SPEED_WEIGHT        = 0.3;  // of the newest call in the running average

// The null question asks for nothing in particular: what it attends to is salient for any question.
static const std::string QUESTION_BEFORE = "\n\nQuestion: ";
static const std::string QUESTION_AFTER  = "\nAnswer:";
static const std::string NULL_QUESTION   = "What is written here?";
static const std::string PROBE_SENTENCE  = "The river runs past the mill and the old stone bridge. ";

struct pflash_attention_scorer::impl {
    llama_model_ptr     model;
    llama_context_ptr   ctx;
    const llama_vocab * vocab = nullptr;
    pflash_scorer_info  info;

    std::vector<int32_t>     layers; // ascending
    std::vector<llama_token> start;  // takes the attention that belongs to no token
    std::vector<llama_token> null_tail;

    std::timed_mutex    mutex;         // guards the context and what follows
    std::atomic<double> speed { 0.0 }; // tokens/s
    pflash_reading      current;
    bool                probing = false;
    std::vector<int32_t> global_layers; // found while probing
    int64_t             deadline_us   = 0;
    int64_t             next_poll_us  = 0;
    bool                was_cancelled = false;
    const std::function<bool()> * cancelled = nullptr;

    static bool on_node(ggml_tensor * node, bool ask, void * data) {
        return ((impl *) data)->visit(node, ask);
    }

    static bool on_abort(void * data) {
        return ((impl *) data)->must_stop();
    }

    // Called with `ask` for each node of the graph, then without it for a node that was asked for, after
    // its computation. Returning false then ends the forward pass.
    bool visit(const ggml_tensor * node, bool ask) {
        if (node->op != GGML_OP_FLASH_ATTN_EXT) {
            return false;
        }
        const int32_t layer = pflash_attention_layer(node);
        const auto    found = std::find(layers.begin(), layers.end(), layer);
        if (ask) {
            return probing ? layer >= 0 : found != layers.end();
        }
        const int64_t started_us = ggml_time_us();
        if (probing) {
            if (pflash_attention_is_global(node, current, PFLASH_TAIL_QUESTION)) {
                global_layers.push_back(layer);
            }
            return true;
        }
        pflash_read_attention(node, found - layers.begin(), current);
        current.host_us += ggml_time_us() - started_us;
        return current.error.empty() && layer != layers.back();
    }

    bool must_stop() {
        const int64_t now_us = ggml_time_us();
        if (!was_cancelled && cancelled && *cancelled && now_us >= next_poll_us) {
            next_poll_us  = now_us + CANCEL_POLL_US;
            was_cancelled = (*cancelled)();
        }
        return was_cancelled || now_us >= deadline_us;
    }

    void check() {
        if (must_stop()) {
            throw std::runtime_error(was_cancelled ? "cancelled" : "timeout");
        }
    }

    // One forward pass over start, `window` and both tails.
    void decode(const llama_token * window, int32_t n_window, const std::vector<llama_token> & question) {
        const int32_t n_context = (int32_t) start.size() + n_window;
        current.n_start   = (int32_t) start.size();
        current.n_context = n_context;
        current.n_tail[PFLASH_TAIL_QUESTION] = (int32_t) question.size();
        current.n_tail[PFLASH_TAIL_NULL]     = (int32_t) null_tail.size();

        const int32_t n = n_context + (int32_t) (question.size() + null_tail.size());
        struct batch_guard {
            llama_batch batch;
            ~batch_guard() { llama_batch_free(batch); }
        } guard { llama_batch_init(n, 0, PFLASH_N_TAILS) };
        llama_batch & batch = guard.batch;

        const auto add = [&](llama_token token, int32_t pos, bool in_question, bool in_null) {
            const int32_t i = batch.n_tokens++;
            batch.token[i]  = token;
            batch.pos[i]    = pos;
            batch.logits[i] = 0;
            batch.n_seq_id[i] = 0;
            if (in_question) {
                batch.seq_id[i][batch.n_seq_id[i]++] = PFLASH_TAIL_QUESTION;
            }
            if (in_null) {
                batch.seq_id[i][batch.n_seq_id[i]++] = PFLASH_TAIL_NULL;
            }
        };
        int32_t pos = 0;
        for (const llama_token token : start) {
            add(token, pos++, true, true);
        }
        for (int32_t i = 0; i < n_window; i++) {
            add(window[i], pos++, true, true);
        }
        for (size_t i = 0; i < question.size(); i++) {
            add(question[i], pos + (int32_t) i, true, false);
        }
        for (size_t i = 0; i < null_tail.size(); i++) {
            add(null_tail[i], pos + (int32_t) i, false, true);
        }
        llama_memory_clear(llama_get_memory(ctx.get()), false);
        const int32_t result = llama_decode(ctx.get(), batch);
        check();
        if (result != 0) {
            throw std::runtime_error("decode: llama_decode returned " + std::to_string(result));
        }
        if (!current.error.empty()) {
            throw std::runtime_error(current.error);
        }
        if (!probing && (current.best[PFLASH_TAIL_NULL].empty() ||
                current.best[PFLASH_TAIL_NULL].size() != layers.size()*current.n_heads*n_window)) {
            throw std::runtime_error("layout");
        }
    }

    bool load(const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error);
    void probe();
    void choose_layers();
    void describe();
    std::vector<llama_token> question_tail(std::string_view question) const;
    void combine(float * out) const;
    pflash_scores score(std::string_view text, std::string_view question, const pflash_text_tokens * given);
};

bool pflash_attention_scorer::impl::load(const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error) {
    auto model_params = llama_model_default_params();
    model_params.n_gpu_layers = n_gpu_layers;
    model.reset(llama_model_load_from_file(file.c_str(), model_params));
    if (!model) {
        error = "cannot load " + file + " as a model";
        return false;
    }
    vocab = llama_model_get_vocab(model.get());
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE || !llama_model_has_decoder(model.get()) || llama_model_has_encoder(model.get())) {
        error = file + " is no model that reads and continues text";
        return false;
    }
    const llama_token first = llama_vocab_bos(vocab) != LLAMA_TOKEN_NULL ? llama_vocab_bos(vocab) : llama_vocab_eos(vocab);
    if (first != LLAMA_TOKEN_NULL) {
        start.push_back(first);
    }
    null_tail = question_tail(NULL_QUESTION);

    const int32_t n_extra = (int32_t) (start.size() + null_tail.size()) + MAX_QUESTION_TOKENS;
    info.window = std::min(window, llama_model_n_ctx_train(model.get()) - n_extra);
    if (info.window < 1) {
        error = file + " is trained on too few tokens to hold a window";
        return false;
    }
    auto params = llama_context_default_params();
    params.n_ctx           = info.window + n_extra;
    params.n_batch         = params.n_ctx; // a window and its tails are one batch
    params.n_ubatch        = params.n_ctx;
    params.n_seq_max       = PFLASH_N_TAILS;
    params.n_outputs_max   = PFLASH_N_TAILS;
    params.kv_unified      = true;
    params.n_threads       = n_threads;
    params.n_threads_batch = n_threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k          = GGML_TYPE_F16;
    params.type_v          = GGML_TYPE_F16;
    params.no_perf         = true;
    params.cb_eval             = on_node;
    params.cb_eval_user_data   = this;
    params.abort_callback      = on_abort;
    params.abort_callback_data = this;
    ctx.reset(llama_init_from_model(model.get(), params));
    if (!ctx) {
        error = "cannot make a context for " + file;
        return false;
    }
    try {
        probe();
    } catch (const std::runtime_error & failure) {
        error = file + ": " + failure.what();
        return false;
    }
    return true;
}

// A short pass tells which layers see a whole window, and how fast the model is.
void pflash_attention_scorer::impl::probe() {
    deadline_us = std::numeric_limits<int64_t>::max();
    const bool all_global = llama_model_n_swa(model.get()) == 0;
    const int32_t n = all_global ? std::min(PROBE_TOKENS, info.window) : info.window;
    const auto sentence = pflash_tokenize(vocab, PROBE_SENTENCE, [] {}).id;
    if (sentence.empty() || null_tail.empty()) {
        throw std::runtime_error("its vocabulary has no tokens for plain text");
    }
    std::vector<llama_token> text;
    while ((int32_t) text.size() < n) {
        text.push_back(sentence[text.size() % sentence.size()]);
    }
    current = {};
    probing = true;
    const int64_t started_us = ggml_time_us();
    decode(text.data(), n, null_tail);
    probing = false;
    const double seconds = (double) (ggml_time_us() - started_us)/1e6;

    choose_layers();
    speed = n/seconds*llama_model_n_layer(model.get())/(info.last_layer + 1);
    describe();
}

// Those that see everything and whose middle lies in the range of depths, or the nearest one.
void pflash_attention_scorer::impl::choose_layers() {
    info.n_layers = llama_model_n_layer(model.get());
    char value[32];
    if (llama_model_meta_val_str(model.get(), ORIGINAL_LAYERS_KEY, value, sizeof(value)) > 0) {
        info.n_layers = std::max(info.n_layers, atoi(value)); // the file lacks its upper layers
    }
    const double first = FIRST_DEPTH*info.n_layers;
    const double last  = LAST_DEPTH*info.n_layers;
    double nearest = std::numeric_limits<double>::infinity();
    for (const int32_t layer : global_layers) {
        const double distance = std::max({ 0.0, first - (layer + 0.5), layer + 0.5 - last });
        if (distance < nearest) {
            layers.clear();
        }
        if (layers.empty() || distance == 0.0) {
            layers.push_back(layer);
            nearest = distance;
        }
    }
    if (layers.empty()) {
        throw std::runtime_error("no layer attends to a whole window");
    }
    info.first_layer = layers.front();
    info.last_layer  = layers.back();
}

void pflash_attention_scorer::impl::describe() {
    char text[256] = {};
    llama_model_desc(model.get(), text, sizeof(text));
    info.name = text;
    if (llama_model_meta_val_str(model.get(), "general.name", text, sizeof(text)) > 0) {
        info.name = std::string(text) + ", " + info.name;
    }
    std::string about = info.name + '\n' + QUESTION_BEFORE + '\n' + QUESTION_AFTER + '\n' + NULL_QUESTION;
    for (const uint64_t number : { llama_model_size(model.get()), llama_model_n_params(model.get()), (uint64_t) info.window }) {
        about += '\n' + std::to_string(number);
    }
    for (const int32_t layer : layers) {
        about += ' ' + std::to_string(layer);
    }
    uint64_t hash = 0xcbf29ce484222325; // FNV-1a
    for (const char c : about) {
        hash = (hash ^ (uint8_t) c)*0x100000001b3;
    }
    char hex[17];
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long) hash);
    info.fingerprint = hex;
}

std::vector<llama_token> pflash_attention_scorer::impl::question_tail(std::string_view question) const {
    const size_t half_bytes = MAX_QUESTION_TOKENS*16; // more than half of the tokens that are kept can hold
    std::string asked(question);
    if (asked.size() > 2*half_bytes) {
        asked = asked.substr(0, half_bytes) + asked.substr(asked.size() - half_bytes);
    }
    auto tokens = pflash_tokenize(vocab, QUESTION_BEFORE + asked + QUESTION_AFTER, [] {}).id;
    if ((int32_t) tokens.size() > MAX_QUESTION_TOKENS) {
        tokens.erase(tokens.begin() + MAX_QUESTION_TOKENS/2, tokens.end() - MAX_QUESTION_TOKENS/2);
    }
    return tokens;
}

// Per token of the window: its share of the divergence (Kullback-Leibler) between the question's attention
// and the null question's, by the head where that is largest.
void pflash_attention_scorer::impl::combine(float * out) const {
    const int32_t n_window = current.n_context - current.n_start;
    const size_t  n_rows   = layers.size()*current.n_heads;
    std::fill(out, out + n_window, 0.0f);
    for (size_t row = 0; row < n_rows; row++) {
        const float * asked = current.best[PFLASH_TAIL_QUESTION].data() + row*n_window;
        const float * plain = current.best[PFLASH_TAIL_NULL].data()     + row*n_window;
        for (int32_t i = 0; i < n_window; i++) {
            out[i] = std::max(out[i], pflash_exp_negative(asked[i])*(asked[i] - plain[i]));
        }
    }
}

pflash_scores pflash_attention_scorer::impl::score(std::string_view text, std::string_view question, const pflash_text_tokens * given) {
    const int64_t started_us = ggml_time_us();
    pflash_scores result;
    if (question.find_first_not_of(" \t\r\n") == std::string_view::npos) {
        throw std::runtime_error("no question");
    }
    const auto asked = question_tail(question);
    auto tokens = given ? *given : pflash_tokenize(vocab, text, [this] { check(); });
    if (tokens.id.empty() && !text.empty()) {
        throw std::runtime_error("vocabulary");
    }
    std::vector<float> raw(tokens.id.size());
    int64_t decode_us = 0;
    size_t  n_decoded = 0;
    for (size_t begin = 0; begin < tokens.id.size();) {
        const size_t end = pflash_window_end(text, tokens, begin, info.window);
        check();
        current = {};
        const int64_t decode_started_us = ggml_time_us();
        decode(tokens.id.data() + begin, (int32_t) (end - begin), asked);
        decode_us += ggml_time_us() - decode_started_us - current.host_us;
        n_decoded += current.n_context + asked.size() + null_tail.size();
        combine(raw.data() + begin);
        result.n_windows++;
        begin = end;
    }
    result.score     = pflash_smoothed(text, tokens, raw);
    result.token_end = std::move(tokens.end);

    const double total_ms = (double) (ggml_time_us() - started_us)/1e3;
    if (n_decoded > 0) {
        // one forward pass reads both, so its time is shared out by tokens
        result.prefill_ms  = (double) decode_us/1e3*(double) tokens.id.size()/(double) n_decoded;
        result.question_ms = (double) decode_us/1e3 - result.prefill_ms;
        if (result.n_windows > 1 || (int32_t) tokens.id.size() > info.window/2) {
            speed = (1.0 - SPEED_WEIGHT)*speed + SPEED_WEIGHT*(double) tokens.id.size()/total_ms*1e3;
        }
    }
    result.host_ms = total_ms - (double) decode_us/1e3;
    return result;
}

pflash_attention_scorer::pflash_attention_scorer(std::unique_ptr<impl> self) : self(std::move(self)) {
}

pflash_attention_scorer::~pflash_attention_scorer() = default;

std::unique_ptr<pflash_attention_scorer> pflash_attention_scorer::load(
        const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error) {
    auto self = std::make_unique<impl>();
    if (!self->load(file, n_threads, n_gpu_layers, window, error)) {
        return nullptr;
    }
    return std::unique_ptr<pflash_attention_scorer>(new pflash_attention_scorer(std::move(self)));
}

pflash_scores pflash_attention_scorer::score(
        std::string_view text, std::string_view question, int64_t deadline_us, const std::function<bool()> & cancelled,
        const pflash_text_tokens * tokens) {
    std::unique_lock<std::timed_mutex> lock(self->mutex, std::defer_lock);
    while (!lock.try_lock_for(std::chrono::microseconds(CANCEL_POLL_US))) {
        if (cancelled && cancelled()) {
            throw std::runtime_error("cancelled");
        }
        if (ggml_time_us() >= deadline_us) {
            throw std::runtime_error("timeout");
        }
    }
    self->deadline_us   = deadline_us;
    self->cancelled     = &cancelled;
    self->next_poll_us  = 0;
    self->was_cancelled = false;
    return self->score(text, question, tokens);
}

bool pflash_attention_scorer::reads(const llama_vocab * vocab) const {
    const int32_t n = llama_vocab_n_tokens(self->vocab);
    if (llama_vocab_type(vocab) != llama_vocab_type(self->vocab) || llama_vocab_n_tokens(vocab) != n) {
        return false;
    }
    for (llama_token token = 0; token < n; token++) {
        if (strcmp(llama_vocab_get_text(vocab, token), llama_vocab_get_text(self->vocab, token)) != 0 ||
                llama_vocab_get_attr(vocab, token) != llama_vocab_get_attr(self->vocab, token)) {
            return false;
        }
    }
    return true;
}

const pflash_scorer_info & pflash_attention_scorer::info() const {
    return self->info;
}

double pflash_attention_scorer::tokens_per_second() const {
    return self->speed;
}
