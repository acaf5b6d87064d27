#include "pflash-scorer-impl.h"

#include "pflash-scorer-text.h"

#include "ggml.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

static constexpr int64_t CANCEL_POLL_US  = 10000;
static constexpr int64_t LONGEST_WAIT_US = 3600 * 1000000ll;
static constexpr double  SPEED_WEIGHT   = 0.3; // of the newest call in the running average

// Called with `ask` for each node of the graph, then without it for a node that was asked for, after
// its computation. Returning false then ends the forward pass.
bool pflash_attention_scorer::impl::visit(const ggml_tensor * node, bool ask) {
    if (ask && node->op == GGML_OP_ROPE && (kind == PFLASH_READ_KEYS || kind == PFLASH_READ_QUERIES)) {
        rotation.see(node);
    }
    if (node->op != GGML_OP_FLASH_ATTN_EXT) {
        return false;
    }
    const int32_t layer = pflash_attention_layer(node);
    const auto    found = std::find(layers.begin(), layers.end(), layer);
    if (ask) {
        return kind == PFLASH_READ_MASKS ? layer >= 0 : found != layers.end();
    }
    const int64_t started_us = ggml_time_us();
    if (kind == PFLASH_READ_MASKS) {
        if (pflash_attention_is_global(node, current, PFLASH_TAIL_QUESTION)) {
            global_layers.push_back(layer);
        }
        return true;
    }
    if (kind == PFLASH_READ_ATTENTION) {
        pflash_read_attention(node, found - layers.begin(), current);
    } else {
        read_rows(node, found - layers.begin());
    }
    current.host_us += ggml_time_us() - started_us;
    return current.error.empty() && layer != layers.back();
}

bool pflash_attention_scorer::impl::must_stop() {
    const int64_t now_us = ggml_time_us();
    if (!was_cancelled && cancelled && *cancelled && now_us >= next_poll_us) {
        next_poll_us  = now_us + CANCEL_POLL_US;
        was_cancelled = (*cancelled)();
    }
    return was_cancelled || now_us >= deadline_us;
}

void pflash_attention_scorer::impl::check() {
    if (must_stop()) {
        throw std::runtime_error(was_cancelled ? "cancelled" : "timeout");
    }
}

// One forward pass over start, `window` and both tails; `question` may be empty.
void pflash_attention_scorer::impl::decode(
        pflash_reading_kind wanted, const llama_token * window, int32_t n_window, const std::vector<llama_token> & question) {
    kind     = wanted;
    current  = {};
    rotation = {};
    for (auto & of_layers : rows) {
        of_layers.assign(layers.size(), {});
    }
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
    if (kind == PFLASH_READ_ATTENTION && (current.best[PFLASH_TAIL_NULL].empty() ||
            current.best[PFLASH_TAIL_NULL].size() != layers.size()*current.n_heads*n_window)) {
        throw std::runtime_error("layout");
    }
}

std::vector<llama_token> pflash_attention_scorer::impl::question_tail(std::string_view question) const {
    if (question.find_first_not_of(" \t\r\n") == std::string_view::npos) {
        throw std::runtime_error("no question");
    }
    const size_t half_bytes = PFLASH_MAX_QUESTION_TOKENS*16; // more than half of the tokens that are kept can hold
    std::string asked(question);
    if (asked.size() > 2*half_bytes) {
        asked = asked.substr(0, half_bytes) + asked.substr(asked.size() - half_bytes);
    }
    auto tokens = pflash_tokenize(vocab, PFLASH_QUESTION_BEFORE + asked + PFLASH_QUESTION_AFTER, [] {}).id;
    if ((int32_t) tokens.size() > PFLASH_MAX_QUESTION_TOKENS) {
        tokens.erase(tokens.begin() + PFLASH_MAX_QUESTION_TOKENS/2, tokens.end() - PFLASH_MAX_QUESTION_TOKENS/2);
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
        const int64_t decode_started_us = ggml_time_us();
        decode(PFLASH_READ_ATTENTION, tokens.id.data() + begin, (int32_t) (end - begin), asked);
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

pflash_turn::guard pflash_attention_scorer::impl::begin(int64_t deadline, const std::function<bool()> & asked_to_stop) {
    const int64_t left_us = std::min(deadline - ggml_time_us(), LONGEST_WAIT_US);
    if (!turn.take(pflash_turn::clock::now() + std::chrono::microseconds(left_us), asked_to_stop)) {
        throw std::runtime_error(asked_to_stop && asked_to_stop() ? "cancelled" : "timeout");
    }
    pflash_turn::guard guard(turn);
    deadline_us   = deadline;
    cancelled     = &asked_to_stop;
    next_poll_us  = 0;
    was_cancelled = false;
    return guard;
}

pflash_scores pflash_attention_scorer::score(
        std::string_view text, std::string_view question, int64_t deadline_us, const std::function<bool()> & cancelled,
        const pflash_text_tokens * tokens) {
    const auto turn = self->begin(deadline_us, cancelled);
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
