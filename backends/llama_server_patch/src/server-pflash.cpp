#include "server-pflash.h"

#include "flashlane-args.h"
#include "flashlane-tokens.h"
#include "pflash-choose.h"
#include "pflash-debug.h"
#include "pflash-prompt.h"
#include "pflash-ranker.h"
#include "pflash-request.h"
#include "pflash-scorer.h"
#include "pflash-select.h"
#include "pflash-stats.h"
#include "server-gears.h"
#include "server-kvflash.h"
#include "server-kvflash-ranker.h"
#include "server-task.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

static constexpr const char * REASON_COMPRESSED = "compressed";
static constexpr size_t MAX_QUESTION_BYTES = 8192; // of /pflash/compress

namespace {

// What lives as long as the server.
struct pflash_server {
    const pflash_params params;
    pflash_stats   stats;
    pflash_ranker  ranker;
    pflash_chooser chooser;

    explicit pflash_server(pflash_params params) : params(params), chooser(params, ranker, stats) {}
};

} // namespace

static std::unique_ptr<pflash_server> & instance() {
    static std::unique_ptr<pflash_server> server;
    return server;
}

std::string server_pflash_start(int32_t n_threads) {
    const auto & params = flashlane_params_get().pflash;
    if (params.mode == PFLASH_MODE_OFF) {
        return "";
    }
    auto server = std::make_unique<pflash_server>(params);
    const std::string error = server->ranker.start(params, n_threads);
    if (error.empty()) {
        instance() = std::move(server);
    }
    return error;
}

void server_pflash_stop() {
    instance().reset();
}

std::unique_ptr<pflash_attention_scorer> server_pflash_beside(const std::string & file, int32_t n_threads, int32_t window) {
    return instance() ? instance()->ranker.beside(file, n_threads, window) : nullptr;
}

void server_pflash_saw_prefill(uint64_t n_tokens, int64_t time_us) {
    if (instance()) {
        instance()->stats.saw_prefill(n_tokens, time_us);
    }
}

void server_pflash_saw_prompt(const server_tokens & tokens, int32_t n_cached) {
    if (instance()) {
        llama_tokens text = flashlane_tokens(tokens);
        text.erase(std::find(text.begin(), text.end(), LLAMA_TOKEN_NULL), text.end()); // media look alike from here
        instance()->chooser.saw_prompt(std::move(text), n_cached);
    }
}

json pflash_report::to_json() const {
    json report = {
        {"mode",            mode},
        {"scorer",          scorer},
        {"original_tokens", original_tokens},
        {"kept_tokens",     kept_tokens},
        {"recalled_tokens", recalled_tokens},
        {"mask_hits",       mask_hits},
        {"raised",          raised},
        {"score_ms",        score_ms},
        {"reason",          reason},
    };
    if (!failure.empty()) {
        report["failure"] = failure;
    }
    return report;
}

static bool present(const json & data, const char * field) {
    if (!data.contains(field) || data.at(field).is_null()) {
        return false;
    }
    const json & value = data.at(field);
    return value.is_string() ? !value.get<std::string>().empty() : !value.is_array() || !value.empty();
}

// Whether a conversation holds calls of tools or what they answered: some templates show that as a user's words.
static bool tells_of_tools(const json & data) {
    if (!data.contains("messages") || !data.at("messages").is_array()) {
        return false;
    }
    for (const auto & message : data.at("messages")) {
        const std::string role = message.is_object() ? json_value(message, "role", std::string()) : "";
        if (role == "tool" || role == "function" || (message.is_object() && present(message, "tool_calls"))) {
            return true;
        }
    }
    return false;
}

static bool is_true(const json & data, const char * field) {
    return data.contains(field) && data.at(field).is_boolean() && data.at(field).get<bool>();
}

// A request whose answer has a fixed form is never compressed.
static const char * reason_to_refuse(const server_task & task, const json & data, pflash_mode mode) {
    if (present(data, "tools") || present(data, "functions") || tells_of_tools(data)) {
        return "tools";
    }
    if (present(data, "grammar") || present(data, "json_schema")) {
        return "response_format";
    }
    if (mode == PFLASH_MODE_AUTO && task.params.sampling.n_probs > 0) {
        return "logprobs";
    }
    if (mode == PFLASH_MODE_AUTO && task.params.n_cmpl > 1) {
        return "several_answers";
    }
    if (task.params.chat_parser_params.echo || is_true(data, "echo")) {
        return "echo";
    }
    return nullptr;
}

// The kept tokens, with the marker where text was dropped and the prompt gets shorter by it, and with what
// is recalled, each span on a line of its own.
static llama_tokens keep_tokens(
        const llama_tokens  & tokens,
        const pflash_choice & choice,
        const llama_tokens  & marker,
        const llama_tokens  & line_end) {
    const auto & keep = choice.keep;
    llama_tokens kept;
    size_t n_dropped = 0;
    auto recalled = choice.recalled.begin();
    for (size_t i = 0; i < tokens.size(); i++) {
        if (recalled != choice.recalled.end() && recalled->at == i) {
            for (const auto & range : recalled->tokens) {
                kept.insert(kept.end(), tokens.begin() + range.begin, tokens.begin() + range.end);
                kept.insert(kept.end(), line_end.begin(), line_end.end());
            }
            recalled++;
        }
        if (!keep[i]) {
            n_dropped++;
            continue;
        }
        if (n_dropped > marker.size()) {
            kept.insert(kept.end(), marker.begin(), marker.end());
        }
        n_dropped = 0;
        kept.push_back(tokens[i]);
    }
    return kept;
}

static pflash_prompt read_prompt(
        const server_task                & task,
        const json                       & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters,
        const llama_tokens               & tokens) {
    pflash_prompt prompt;
    if (flashlane_has_media(task.tokens)) {
        prompt.refused = "media";
        return prompt;
    }
    const auto & params    = flashlane_params_get().pflash;
    const auto & preserved = task.params.sampling.preserved_tokens;
    const pflash_guards guards = { (size_t) params.protected_prefix, (size_t) params.protected_suffix };
    return task.type == SERVER_TASK_TYPE_INFILL   ? pflash_read_infill(vocab, tokens, preserved) :
           data.contains("message_delimiters")    ? pflash_read_chat(vocab, tokens, delimiters, preserved, guards) :
                                                    pflash_read_text(vocab, tokens, preserved, guards);
}

static void compress(
        server_task                      & task,
        const json                       & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters,
        const llama_tokens               & tokens,
        const pflash_prompt              & prompt,
        const pflash_policy              & policy,
        pflash_report                    & report) {
    auto & server = *instance();
    if (prompt.refused == "media") {
        report.reason = prompt.refused;
        return;
    }
    const bool infill = task.type == SERVER_TASK_TYPE_INFILL;
    const char * refused = policy.mode == PFLASH_MODE_OFF ? "off" : reason_to_refuse(task, data, policy.mode);
    if (refused || !prompt.refused.empty()) {
        report.reason = refused ? refused : prompt.refused;
        server.chooser.saw_whole(prompt, tokens);
        return;
    }
    const auto choice = server.chooser.choose(policy, prompt, tokens, infill ? prompt.segments.empty() ? "" : prompt.segments[0].ask : "");
    report.reason    = choice.reason;
    report.failure   = choice.failure;
    report.mask_hits = choice.mask_hits;
    report.raised    = choice.raised;
    if (choice.reason != REASON_COMPRESSED) {
        return;
    }
    const llama_tokens marker = server.params.marker.empty() || infill ? llama_tokens() :
                                common_tokenize(vocab, server.params.marker, false, false);
    const llama_tokens kept = keep_tokens(tokens, choice, marker, common_tokenize(vocab, "\n", false, false));
    for (const auto & recalled : choice.recalled) {
        for (const auto & range : recalled.tokens) {
            report.recalled_tokens += (int32_t) (range.end - range.begin);
        }
    }
    if (kept.size() >= tokens.size()) {
        report.reason = "nothing_to_drop";
        return;
    }
    if (!server.params.debug_dir.empty()) {
        pflash_write_ranges(server.params.debug_dir, choice.keep, report.scorer);
    }
    report.kept_tokens = (int32_t) kept.size();
    task.tokens = server_tokens(kept, task.tokens.has_mtmd);
    task.params.message_spans = task.tokens.find_message_spans(delimiters);
}

void server_pflash_apply(
        server_task                      & task,
        const json                       & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters,
        const std::function<bool()>      & should_stop) {
    task.params.timings_on_finish = json_value(data, "timings_on_finish", false);

    const auto & params = flashlane_params_get().pflash;
    const auto request = pflash_request_read(data, params);
    const auto kvflash = server_kvflash_ranker();
    if (!instance() && !kvflash) {
        return;
    }

    const int64_t t_start = ggml_time_us();
    pflash_policy policy;
    policy.mode            = request.mode;
    policy.scorer          = params.scorer;
    policy.keep_ratio      = request.keep_ratio;
    policy.min_keep_tokens = request.min_keep_tokens;
    policy.recall          = data.contains("message_delimiters");
    policy.vocab           = vocab;
    policy.deadline_us     = t_start + 1000ll * params.timeout_ms;
    policy.should_stop     = should_stop;

    auto report = std::make_shared<pflash_report>();
    report->mode            = pflash_mode_name(request.mode);
    report->scorer          = pflash_scorer_name(params.scorer);
    report->original_tokens = (int32_t) task.tokens.size();
    report->kept_tokens     = report->original_tokens;
    try {
        const llama_tokens tokens = flashlane_tokens(task.tokens);
        const auto prompt = read_prompt(task, data, vocab, delimiters, tokens);
        if (kvflash && !prompt.segments.empty()) {
            kvflash->ask(prompt.segments.back().ask);
        }
        if (instance()) {
            compress(task, data, vocab, delimiters, tokens, prompt, policy, *report);
        }
    } catch (const std::exception & error) {
        SRV_WRN("pflash failed, the prompt goes through whole: %s\n", error.what());
        report->reason = "error";
    }
    if (!instance()) {
        return;
    }
    report->score_ms = (ggml_time_us() - t_start) / 1000.0;

    instance()->stats.count({ report->reason, report->original_tokens, report->kept_tokens, report->mask_hits, report->score_ms });
    SRV_INF("pflash: task %d, mode %s, %d -> %d tokens, %.2f ms, %s%s%s\n", task.id, report->mode.c_str(),
            report->original_tokens, report->kept_tokens, report->score_ms, report->reason.c_str(),
            report->failure.empty() ? "" : ", ", report->failure.c_str());
    task.params.pflash = std::move(report);
}

void flashlane_copy_fields(const json & from, json & to) {
    for (const auto & item : from.items()) {
        const std::string & field = item.key();
        if (field == "pflash" || field.rfind("pflash_", 0) == 0 || field.rfind("kvflash", 0) == 0 || field == "timings_on_finish" ||
            field == "speculative.n_max") {
            to[field] = item.value();
        }
    }
}

json flashlane_with_report(json answer, const server_slot_stats & stats) {
    if (!stats.pflash && !stats.kvflash) {
        return answer;
    }
    const auto report = [&](json & body, json & data) {
        data["timings"] = stats.to_json();
        if (stats.pflash && body.contains("usage")) {
            json & usage = body["usage"];
            (usage.contains("input_tokens_details") ? usage["input_tokens_details"] : usage)["original_tokens"] = stats.pflash->original_tokens;
        }
    };
    if (!answer.is_array()) {
        report(answer, answer);
        return answer;
    }
    for (auto & event : answer) {
        json & data = event["data"];
        const std::string type = json_value(data, "type", std::string());
        if (type == "response.completed") {
            report(data["response"], data);
        } else if (type == "message_delta") {
            report(data, data);
        }
    }
    return answer;
}

//
// POST /pflash/compress
//

namespace {

// One text of the body that may be shortened: `place` is where it stands there.
struct compress_text {
    std::string text;
    bool        is_user = true;
    json      * place   = nullptr;
    int         message = -1;
    int         part    = -1;
};

struct compress_body {
    json        body;
    std::string question;
    std::vector<compress_text> texts;
    bool        is_text = false;
};

} // namespace

static const std::vector<std::string> COMPRESS_KEYS = { "text", "messages", "question", "keep_ratio", "min_keep_tokens", "scorer" };

static void read_messages(json & messages, std::vector<compress_text> & texts) {
    if (!messages.is_array()) {
        throw std::invalid_argument("messages must be a list of objects with role and content");
    }
    int i = -1;
    for (auto & message : messages) {
        i++;
        if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
            throw std::invalid_argument("messages[" + std::to_string(i) + "] must be an object with role and content");
        }
        const bool is_user = message.at("role").get<std::string>() == "user";
        if (!message.contains("content") || message.at("content").is_null()) {
            continue;
        }
        json & content = message.at("content");
        if (content.is_string()) {
            texts.push_back({ content.get<std::string>(), is_user, &content, i, -1 });
        } else if (content.is_array()) {
            int p = -1;
            for (auto & part : content) {
                p++;
                if (part.is_object() && part.contains("text") && part.at("text").is_string()) {
                    texts.push_back({ part.at("text").get<std::string>(), is_user, &part.at("text"), i, p });
                }
            }
        } else {
            throw std::invalid_argument("messages[" + std::to_string(i) + "].content must be a text or a list of parts");
        }
    }
}

static pflash_scorer read_scorer(const json & body, const pflash_params & params, const pflash_ranker & ranker) {
    if (!body.contains("scorer") || body.at("scorer").is_null()) {
        return params.scorer;
    }
    const std::string name = body.at("scorer").is_string() ? body.at("scorer").get<std::string>() : "";
    std::string accepted;
    for (auto scorer : { PFLASH_SCORER_UNIFORM, PFLASH_SCORER_LEXICAL, PFLASH_SCORER_MODEL, PFLASH_SCORER_EXTERNAL_HELPER }) {
        if (!ranker.has(scorer)) {
            continue;
        }
        if (name == pflash_scorer_name(scorer)) {
            return scorer;
        }
        accepted += std::string(accepted.empty() ? "" : ", ") + pflash_scorer_name(scorer);
    }
    throw std::invalid_argument("scorer must be one of those that this server was started with: " + accepted);
}

json server_pflash_compress(
        const json                  & body,
        const llama_vocab           * vocab,
        const std::function<bool()> & should_stop) {
    if (!instance()) {
        throw std::invalid_argument("this server runs with --pflash-mode off; start it with auto or always");
    }
    auto & server = *instance();
    if (!body.is_object()) {
        throw std::invalid_argument("the body must be an object with text or messages");
    }
    for (const auto & item : body.items()) {
        if (std::find(COMPRESS_KEYS.begin(), COMPRESS_KEYS.end(), item.key()) == COMPRESS_KEYS.end()) {
            throw std::invalid_argument(pflash_shown(item.key()) + " is not known; accepted fields: text, messages, question, keep_ratio, min_keep_tokens, scorer");
        }
    }
    const auto given = [&](const char * field) { return body.contains(field) && !body.at(field).is_null(); };
    if (given("text") == given("messages")) {
        throw std::invalid_argument("text or messages is needed, and not both");
    }
    for (const char * field : { "text", "question" }) {
        if (given(field) && !body.at(field).is_string()) {
            throw std::invalid_argument(std::string(field) + " must be a text");
        }
    }
    const bool is_text = given("text");
    const std::string question = given("question") ? body.at("question").get<std::string>() : "";
    if (is_text && question.empty()) {
        throw std::invalid_argument("question is needed with text: what is the text read for?");
    }

    if (question.size() > MAX_QUESTION_BYTES) {
        throw std::invalid_argument("question has " + std::to_string(question.size()) + " bytes; at most " +
            std::to_string(MAX_QUESTION_BYTES) + " are read: put the material into text or messages");
    }

    json controls = json::object();
    for (const char * field : { "keep_ratio", "min_keep_tokens" }) {
        if (given(field)) {
            controls[field] = body.at(field);
        }
    }
    const auto request = pflash_request_read(json { { "pflash", controls } }, server.params);

    const int64_t t_start = ggml_time_us();
    pflash_policy policy;
    policy.mode            = PFLASH_MODE_ALWAYS;
    policy.scorer          = read_scorer(body, server.params, server.ranker);
    policy.keep_ratio      = request.keep_ratio;
    policy.min_keep_tokens = request.min_keep_tokens;
    policy.vocab           = vocab;
    policy.deadline_us     = t_start + 1000ll * server.params.timeout_ms;
    policy.should_stop     = should_stop;

    json result = json::object();
    std::vector<compress_text> texts;
    if (is_text) {
        result["text"] = body.at("text");
        texts.push_back({ body.at("text").get<std::string>(), true, &result["text"], -1, -1 });
    } else {
        result["messages"] = body.at("messages");
        read_messages(result["messages"], texts);
    }

    std::vector<pflash_text_part> parts;
    for (const auto & text : texts) {
        parts.push_back({ text.text, text.is_user });
    }
    std::vector<llama_token> tokens;
    const auto prompt = pflash_read_parts(vocab, parts, question, is_text, tokens);
    const auto choice = server.chooser.choose(policy, prompt, tokens, question);

    size_t n_original = 0;
    size_t n_kept     = 0;
    for (size_t i = 0; i < tokens.size(); i++) {
        n_original += tokens[i] != LLAMA_TOKEN_NULL;
        n_kept     += tokens[i] != LLAMA_TOKEN_NULL && choice.keep[i];
    }

    json spans = json::array();
    for (const auto & segment : prompt.segments) {
        json ranges = json::array();
        std::string kept;
        size_t byte = 0;
        for (size_t i = 0; i < segment.token_end.size();) {
            size_t j = i;
            const bool keep = choice.keep[segment.begin + i];
            while (j < segment.token_end.size() && (bool) choice.keep[segment.begin + j] == keep) {
                j++;
            }
            const size_t end = segment.token_end[j - 1];
            if (keep) {
                ranges.push_back(json::array({ byte, end }));
                kept += segment.text.substr(byte, end - byte);
            }
            byte = end;
            i = j;
        }
        const auto & text = texts[segment.part];
        if (choice.reason == REASON_COMPRESSED) {
            *text.place = kept;
        }
        if (is_text) {
            spans = ranges;
        } else {
            spans.push_back(json { { "message", text.message }, { "part", text.part < 0 ? json(nullptr) : json(text.part) }, { "spans", ranges } });
        }
    }
    const double score_ms = (ggml_time_us() - t_start) / 1000.0;
    result["spans"]           = spans;
    result["original_tokens"] = n_original;
    result["kept_tokens"]     = n_kept;
    result["scorer"]          = pflash_scorer_name(policy.scorer);
    result["mask_hits"]       = choice.mask_hits;
    result["raised"]          = choice.raised;
    result["score_ms"]        = score_ms;
    result["reason"]          = choice.reason;
    if (!choice.failure.empty()) {
        result["failure"] = choice.failure;
    }
    server.stats.count({ choice.reason, (int32_t) n_original, (int32_t) n_kept, choice.mask_hits, score_ms });
    SRV_INF("pflash: compress, %zu -> %zu tokens, %.2f ms, %s%s%s\n", n_original, n_kept, score_ms, choice.reason.c_str(),
            choice.failure.empty() ? "" : ", ", choice.failure.c_str());
    return result;
}

//
// /props and /metrics
//

void flashlane_add_props(json & props) {
    const auto & pflash = flashlane_params_get().pflash;

    json section = instance() ? instance()->stats.to_json() : json::object();
    section["configured"]       = pflash.mode != PFLASH_MODE_OFF;
    section["mode"]             = pflash_mode_name(pflash.mode);
    section["scorer"]           = pflash_scorer_name(pflash.scorer);
    section["keep_ratio"]       = pflash.keep_ratio;
    section["adaptive"]         = pflash.adaptive;
    section["recall_tokens"]    = pflash.recall_tokens;
    section["min_tokens"]       = pflash.min_tokens;
    section["min_keep_tokens"]  = pflash.min_keep_tokens;
    section["protected_prefix"] = pflash.protected_prefix;
    section["protected_suffix"] = pflash.protected_suffix;
    section["timeout_ms"]       = pflash.timeout_ms;
    if (instance()) {
        instance()->chooser.add_props(section);
        instance()->ranker.add_props(section);
    }
    props["flashlane_schema"] = FLASHLANE_SCHEMA_VERSION;
    props["pflash"]  = section;
    props["kvflash"] = server_kvflash_props();
    props["gears"]   = server_gears_props();
}

std::string flashlane_metrics() {
    return (instance() ? instance()->stats.to_metrics() + instance()->ranker.to_metrics() : "") + server_kvflash_metrics();
}
