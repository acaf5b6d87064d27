#include "pflash-scorer-impl.h"

#include "pflash-scorer-text.h"

#include "ggml.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>

static constexpr int32_t PROBE_TOKENS = 256;
static constexpr double  FIRST_DEPTH  = 0.455; // the layers that look answers up, as shares of the depth
static constexpr double  LAST_DEPTH   = 0.545;
static constexpr const char * ORIGINAL_LAYERS_KEY = "flashlane.original_layers"; // written by flashlane/scorer.py

static const std::string PROBE_SENTENCE = "The river runs past the mill and the old stone bridge. ";

// Returns an empty string, or what is wrong with the model.
std::string pflash_attention_scorer::impl::open_context(int32_t n_threads, int32_t window) {
    const int32_t n_extra = (int32_t) (start.size() + null_tail.size()) + PFLASH_MAX_QUESTION_TOKENS;
    info.window = std::min(window, llama_model_n_ctx_train(model.get()) - n_extra);
    if (info.window < 1) {
        return "is trained on too few tokens to hold a window";
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
    return ctx ? "" : "cannot be given a context";
}

bool pflash_attention_scorer::impl::load(const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error) {
    auto model_params = llama_model_default_params();
    model_params.n_gpu_layers = n_gpu_layers;
    model.reset(llama_model_load_from_file(file.c_str(), model_params), llama_model_free);
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
    null_tail = question_tail(PFLASH_NULL_QUESTION);

    error = open_context(n_threads, window);
    if (!error.empty()) {
        error = file + " " + error;
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
    const int64_t started_us = ggml_time_us();
    decode(PFLASH_READ_MASKS, text.data(), n, null_tail);
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
    std::string about = info.name + '\n' + PFLASH_QUESTION_BEFORE + '\n' + PFLASH_QUESTION_AFTER + '\n' + PFLASH_NULL_QUESTION;
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

std::unique_ptr<pflash_attention_scorer> pflash_attention_scorer::load(
        const std::string & file, int32_t n_threads, int32_t n_gpu_layers, int32_t window, std::string & error) {
    auto self = std::make_unique<impl>();
    if (!self->load(file, n_threads, n_gpu_layers, window, error)) {
        return nullptr;
    }
    return std::unique_ptr<pflash_attention_scorer>(new pflash_attention_scorer(std::move(self)));
}

std::unique_ptr<pflash_attention_scorer> pflash_attention_scorer::beside(int32_t n_threads, int32_t window) const {
    auto other = std::make_unique<impl>();
    other->model     = self->model;
    other->vocab     = self->vocab;
    other->info      = self->info;
    other->layers    = self->layers;
    other->start     = self->start;
    other->null_tail = self->null_tail;
    other->speed     = self->speed.load();
    if (!other->open_context(n_threads, window).empty()) {
        return nullptr;
    }
    return std::unique_ptr<pflash_attention_scorer>(new pflash_attention_scorer(std::move(other)));
}
