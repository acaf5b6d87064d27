// The attention scorer for tests: one line of JSON for the model, then one for each text and question.
// usage: pflash_scorer MODEL [--window N] [--threads N] [--gpu-layers N] [--deadline-ms N] [--cancel] [--together] [--given VOCABULARY]
//                      [--parts BYTES] [TEXT_FILE QUESTION_FILE]...
// With --parts the line tells the shares that parts of so many bytes have of the question, by their mean keys.

#include "kvflash-match.h"
#include "pflash-scorer.h"
#include "pflash-scorer-text.h"

#include "ggml.h"
#include "llama-cpp.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::string read_file(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path.c_str());
        exit(2);
    }
    return { std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>() };
}

static std::string to_json(const pflash_scores & scores) {
    std::string ends;
    std::string values;
    for (size_t i = 0; i < scores.score.size(); i++) {
        char number[32];
        snprintf(number, sizeof(number), "%s%.7g", i ? "," : "", scores.score[i]);
        values += number;
        ends   += (i ? "," : "") + std::to_string(scores.token_end[i]);
    }
    char head[256];
    snprintf(head, sizeof(head), "{\"n_windows\":%d,\"prefill_ms\":%.1f,\"question_ms\":%.1f,\"host_ms\":%.1f,",
            scores.n_windows, scores.prefill_ms, scores.question_ms, scores.host_ms);
    return head + ("\"token_end\":[" + ends) + "],\"score\":[" + values + "]}";
}

// The question is read by another scorer of the model, which has no room for a text.
static std::string shares_of_parts(
        pflash_attention_scorer & scorer, const std::string & text, const std::string & question, size_t part_bytes, int64_t deadline_us) {
    std::vector<size_t> ends;
    for (size_t end = part_bytes; end < text.size(); end += part_bytes) {
        ends.push_back(end);
    }
    ends.push_back(text.size());
    const auto keys = scorer.mean_keys(text, ends, deadline_us, nullptr);
    pflash_vectors plain;
    const auto asked = scorer.beside(1, 1)->queries(question, plain, deadline_us, nullptr);
    kvflash_page_keys parts;
    const size_t n = keys.values.size()/keys.n_rows;
    for (size_t i = 0; i < keys.n_rows; i++) {
        parts.push_back(std::make_shared<const std::vector<float>>(keys.values.begin() + i*n, keys.values.begin() + (i + 1)*n));
    }
    std::string shares;
    for (const float share : kvflash_page_shares(asked, plain, parts)) {
        shares += (shares.empty() ? "" : ",") + std::to_string(share);
    }
    return "{\"shares\":[" + shares + "]}";
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL [option]... [TEXT_FILE QUESTION_FILE]...\n", argv[0]);
        return 2;
    }
    int32_t window     = PFLASH_SCORER_WINDOW;
    int32_t n_threads  = 2;
    int32_t gpu_layers = 0;
    int64_t limit_ms   = 0;
    bool    cancel     = false;
    bool    together   = false;
    int64_t part_bytes = 0;
    bool    given      = false; // the text's tokens, as one who has them would
    std::string vocabulary;     // whose tokens they are
    std::vector<std::string> files;
    for (int i = 2; i < argc; i++) {
        const std::string arg = argv[i];
        const auto number = [&] { return i + 1 < argc ? atoi(argv[++i]) : 0; };
        if (arg == "--window") {
            window = number();
        } else if (arg == "--threads") {
            n_threads = number();
        } else if (arg == "--gpu-layers") {
            gpu_layers = number();
        } else if (arg == "--deadline-ms") {
            limit_ms = number();
        } else if (arg == "--parts") {
            part_bytes = number();
        } else if (arg == "--cancel") {
            cancel = true;
        } else if (arg == "--together") {
            together = true;
        } else if (arg == "--given") {
            given      = true;
            vocabulary = i + 1 < argc ? argv[++i] : "";
        } else {
            files.push_back(arg);
        }
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();

    std::string error;
    const auto scorer = pflash_attention_scorer::load(argv[1], n_threads, gpu_layers, window, error);
    if (!scorer) {
        fprintf(stderr, "%s\n", error.c_str());
        return 1;
    }
    auto vocab_params = llama_model_default_params();
    vocab_params.vocab_only = true;
    llama_model_ptr words(given ? llama_model_load_from_file(vocabulary.empty() ? argv[1] : vocabulary.c_str(), vocab_params) : nullptr);
    const llama_vocab * vocab = words ? llama_model_get_vocab(words.get()) : nullptr;
    if (given && !scorer->reads(vocab)) {
        fprintf(stderr, "another vocabulary\n");
        return 1;
    }
    const auto & info = scorer->info();
    printf("{\"name\":\"%s\",\"fingerprint\":\"%s\",\"n_layers\":%d,\"first_layer\":%d,\"last_layer\":%d,\"window\":%d,\"tokens_per_second\":%.1f}\n",
            info.name.c_str(), info.fingerprint.c_str(), info.n_layers, info.first_layer, info.last_layer, info.window, scorer->tokens_per_second());

    const size_t n = files.size()/2;
    std::vector<std::string> lines(n);
    const auto run = [&](size_t i) {
        const int64_t deadline_us = limit_ms ? ggml_time_us() + limit_ms*1000 : std::numeric_limits<int64_t>::max();
        try {
            const std::string text = read_file(files[2*i]);
            if (part_bytes) {
                lines[i] = shares_of_parts(*scorer, text, read_file(files[2*i + 1]), part_bytes, deadline_us);
                return;
            }
            const auto tokens = given ? pflash_tokenize(vocab, text, [] {}) : pflash_text_tokens();
            lines[i] = to_json(scorer->score(text, read_file(files[2*i + 1]), deadline_us, [&] { return cancel; }, given ? &tokens : nullptr));
        } catch (const std::runtime_error & failure) {
            lines[i] = std::string("{\"error\":\"") + failure.what() + "\"}";
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < n; i++) {
        if (together) {
            threads.emplace_back(run, i);
        } else {
            run(i);
        }
    }
    for (auto & thread : threads) {
        thread.join();
    }
    for (const auto & line : lines) {
        puts(line.c_str());
    }
    llama_backend_free();
    return 0;
}
