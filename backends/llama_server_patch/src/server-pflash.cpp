#include "server-pflash.h"

#include "flashlane-args.h"
#include "pflash-select.h"
#include "server-task.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

static constexpr size_t BLOCK_TOKENS     = 32; // of the uniform scorer
static constexpr size_t GUARD_TOKENS     = 8;  // at each edge of a user message
static constexpr size_t FILE_NAME_TOKENS = 64; // at most this long is an infill file name

static constexpr const char * REASON_COMPRESSED = "compressed";

//
// counters
//

struct pflash_counters {
    std::mutex mutex;
    uint64_t requests        = 0;
    uint64_t compressed      = 0;
    uint64_t original_tokens = 0; // of compressed prompts
    uint64_t kept_tokens     = 0; // of compressed prompts
    double   score_ms        = 0.0;
    std::map<std::string, uint64_t> skipped;
};

static pflash_counters & counters() {
    static pflash_counters counters;
    return counters;
}

static void count(const pflash_report & report) {
    auto & c = counters();
    std::lock_guard<std::mutex> lock(c.mutex);
    c.requests++;
    c.score_ms += report.score_ms;
    if (report.reason == REASON_COMPRESSED) {
        c.compressed++;
        c.original_tokens += report.original_tokens;
        c.kept_tokens     += report.kept_tokens;
    } else {
        c.skipped[report.reason]++;
    }
}

json pflash_report::to_json() const {
    return json {
        {"mode",            mode},
        {"scorer",          scorer},
        {"original_tokens", original_tokens},
        {"kept_tokens",     kept_tokens},
        {"score_ms",        score_ms},
        {"reason",          reason},
    };
}

//
// request fields
//

struct pflash_request {
    bool    given = false;
    bool    mode_given = false;
    pflash_mode mode;
    float   keep_ratio;
    int32_t min_keep_tokens;
};

static void read_field(pflash_request & request, const std::string & key, const std::string & field, const json & value) {
    const auto refuse = [&](const std::string & accepted) {
        throw std::invalid_argument(field + " is " + value.dump() + "; it must be " + accepted);
    };
    if (key == "mode") {
        if (!value.is_string()) {
            refuse("off, auto or always");
        }
        request.mode       = pflash_mode_parse(field, value.get<std::string>());
        request.mode_given = true;
    } else if (key == "keep_ratio") {
        if (!value.is_number() || !(value.get<double>() > 0.0 && value.get<double>() <= 1.0)) {
            refuse("above 0 and at most 1");
        }
        request.keep_ratio = (float) value.get<double>();
    } else {
        if (!value.is_number_integer() || value.get<double>() < 0.0 || value.get<double>() > (double) INT32_MAX) {
            refuse("a whole number from 0 to " + std::to_string(INT32_MAX));
        }
        request.min_keep_tokens = value.get<int32_t>();
    }
    request.given = true;
}

// "pflash": {"mode": …} and "pflash_mode": … say the same; saying both differently is refused
static pflash_request read_request(const json & data, const pflash_params & params) {
    pflash_request request;
    request.mode            = params.mode;
    request.keep_ratio      = params.keep_ratio;
    request.min_keep_tokens = params.min_keep_tokens;

    const bool nested = data.contains("pflash") && !data.at("pflash").is_null();
    const std::vector<std::string> keys = { "mode", "keep_ratio", "min_keep_tokens" };
    if (nested) {
        const json & fields = data.at("pflash");
        if (!fields.is_object()) {
            throw std::invalid_argument("pflash is " + fields.dump() + "; it must be an object with mode, keep_ratio or min_keep_tokens");
        }
        for (const auto & item : fields.items()) {
            if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
                throw std::invalid_argument("pflash." + item.key() + " is not known; accepted keys: mode, keep_ratio, min_keep_tokens");
            }
            if (!item.value().is_null()) {
                read_field(request, item.key(), "pflash." + item.key(), item.value());
            }
        }
    }
    for (const auto & item : data.items()) {
        const std::string & field = item.key();
        const bool ours = field.rfind("pflash_", 0) == 0 || field.rfind("kvflash", 0) == 0;
        if (ours && !item.value().is_null() &&
            std::none_of(keys.begin(), keys.end(), [&](const auto & key) { return field == "pflash_" + key; })) {
            throw std::invalid_argument(field + " is not known; accepted fields: pflash, pflash_mode, pflash_keep_ratio, pflash_min_keep_tokens");
        }
    }
    for (const auto & key : keys) {
        const std::string flat = "pflash_" + key;
        if (!data.contains(flat) || data.at(flat).is_null()) {
            continue;
        }
        if (nested && data.at("pflash").contains(key) && !data.at("pflash").at(key).is_null() &&
            data.at("pflash").at(key).dump() != data.at(flat).dump()) {
            throw std::invalid_argument(flat + " is " + data.at(flat).dump() + " and pflash." + key + " is " +
                                        data.at("pflash").at(key).dump() + "; send one of them");
        }
        read_field(request, key, flat, data.at(flat));
    }
    if (params.mode == PFLASH_MODE_OFF && request.given && !(request.mode_given && request.mode == PFLASH_MODE_OFF)) {
        throw std::invalid_argument("pflash is asked for, but this server runs with --pflash-mode off; start it with auto or always");
    }
    return request;
}

//
// protection
//

static bool never_drop(const llama_vocab * vocab, llama_token token) {
    const auto attr = llama_vocab_get_attr(vocab, token);
    return (attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED)) || llama_vocab_is_eog(vocab, token);
}

static bool is_control(const llama_vocab * vocab, llama_token token) {
    return (llama_vocab_get_attr(vocab, token) & LLAMA_TOKEN_ATTR_CONTROL) || llama_vocab_is_eog(vocab, token);
}

static std::string piece_of(const llama_vocab * vocab, llama_token token) {
    char buffer[256];
    const int32_t n = llama_token_to_piece(vocab, token, buffer, sizeof(buffer), 0, true);
    return n > 0 ? std::string(buffer, n) : std::string();
}

static bool is_blank(const std::string & piece) {
    return !piece.empty() && piece.find_first_not_of(" \t\r\n") == std::string::npos;
}

// the tokens that announce a message
struct role_mark {
    common_chat_role role;
    llama_tokens     tokens;
};

// llama.cpp finds a delimiter by rendering a message, and a default system text of the template then
// stands in it. The mark is what repeats at each message: the delimiter from its last control token on
// that tells the roles apart. Blanks at its end may have merged with the message's first ones.
static std::vector<role_mark> role_marks(const llama_vocab * vocab, const common_chat_msg_delimiters & delimiters) {
    const auto ends_with = [](const llama_tokens & tokens, const llama_tokens & end) {
        return end.size() <= tokens.size() && std::equal(end.rbegin(), end.rend(), tokens.rbegin());
    };
    std::vector<role_mark> marks;
    for (const auto & delimiter : delimiters.delimiters) {
        llama_tokens mark = delimiter.tokens;
        for (size_t i = delimiter.tokens.size(); i-- > 0;) {
            const llama_tokens end(delimiter.tokens.begin() + i, delimiter.tokens.end());
            if (is_control(vocab, end[0]) &&
                std::none_of(delimiters.delimiters.begin(), delimiters.delimiters.end(), [&](const auto & other) {
                    return other.role != delimiter.role && ends_with(other.tokens, end);
                })) {
                mark = end;
                break;
            }
        }
        while (mark.size() > 1 && is_blank(piece_of(vocab, mark.back()))) {
            mark.pop_back();
        }
        if (!mark.empty()) {
            marks.push_back({ delimiter.role, std::move(mark) });
        }
    }
    return marks;
}

struct pflash_prompt {
    const llama_vocab   * vocab;
    const llama_tokens  & tokens;
    const pflash_params & params;
    std::vector<uint8_t>  protect; // starts with everything protected

    // opens [begin, end) for compression, without its edges
    void open(size_t begin, size_t end, size_t head, size_t tail) {
        const size_t first = begin + std::max(head, GUARD_TOKENS);
        const size_t guard = std::max(tail, GUARD_TOKENS);
        for (size_t i = first; i + guard < end; i++) {
            protect[i] = 0;
        }
    }

    // Opens what the user wrote and returns whether there is any. A message ends at its first control
    // token: what follows is template, or text that imitates it.
    bool open_user_messages(const std::vector<role_mark> & marks) {
        bool found = false;
        for (size_t i = 0; i < tokens.size();) {
            const role_mark * longest = nullptr;
            for (const auto & mark : marks) {
                if (mark.tokens.size() <= tokens.size() - i && (!longest || mark.tokens.size() > longest->tokens.size()) &&
                    std::equal(mark.tokens.begin(), mark.tokens.end(), tokens.begin() + i)) {
                    longest = &mark;
                }
            }
            if (!longest) {
                i++;
                continue;
            }
            const size_t begin = i + longest->tokens.size();
            i = begin;
            if (longest->role == COMMON_CHAT_ROLE_USER) {
                found = true;
                while (i < tokens.size() && !is_control(vocab, tokens[i])) {
                    i++;
                }
                open(begin, i, params.protected_prefix, params.protected_suffix);
            }
        }
        return found;
    }

    // the extra files before the prefix; file names stay
    void open_infill_extra() {
        const auto marks = { llama_vocab_fim_pre(vocab), llama_vocab_fim_suf(vocab), llama_vocab_fim_mid(vocab) };
        const auto is_mark = [&](llama_token t) { return std::find(marks.begin(), marks.end(), t) != marks.end(); };
        const size_t end = std::find_if(tokens.begin(), tokens.end(), is_mark) - tokens.begin();
        size_t begin = 0;
        for (size_t i = 0; i < end; i++) {
            if (tokens[i] != llama_vocab_fim_sep(vocab) && tokens[i] != llama_vocab_fim_rep(vocab)) {
                continue;
            }
            open(begin, i, 0, 0);
            begin = i + 1;
            while (begin < end && begin - i < FILE_NAME_TOKENS && piece_of(vocab, tokens[begin - 1]).find('\n') == std::string::npos) {
                begin++;
            }
        }
        open(begin, end, 0, 0);
    }

    void close_special_tokens(const std::set<llama_token> & preserved) {
        for (size_t i = 0; i < tokens.size(); i++) {
            if (!never_drop(vocab, tokens[i]) && preserved.count(tokens[i]) == 0) {
                continue;
            }
            protect[i] = 1;
            for (size_t j = i; j-- > 0 && is_blank(piece_of(vocab, tokens[j]));) {
                protect[j] = 1;
            }
            for (size_t j = i + 1; j < tokens.size() && is_blank(piece_of(vocab, tokens[j])); j++) {
                protect[j] = 1;
            }
        }
    }

    void close_ends() {
        const size_t n = protect.size();
        std::fill_n(protect.begin(), std::min<size_t>(params.protected_prefix, n), (uint8_t) 1);
        std::fill_n(protect.rbegin(), std::min<size_t>(params.protected_suffix, n), (uint8_t) 1);
    }

    // 1 where a token starts with a whole character
    std::vector<uint8_t> char_starts() const {
        std::vector<uint8_t> starts(tokens.size(), 0);
        for (size_t i = 0; i < tokens.size(); i++) {
            if (!protect[i]) {
                const std::string piece = piece_of(vocab, tokens[i]);
                starts[i] = piece.empty() || ((unsigned char) piece[0] & 0xC0) != 0x80;
            }
        }
        return starts;
    }
};

static bool present(const json & data, const char * field) {
    return data.contains(field) && !data.at(field).is_null() &&
           !((data.at(field).is_array() || data.at(field).is_object() || data.at(field).is_string()) && data.at(field).empty());
}

static bool present_true(const json & data, const char * field) {
    return data.contains(field) && data.at(field).is_boolean() && data.at(field).get<bool>();
}

// A request whose answer has a fixed form is never compressed.
static const char * reason_to_refuse(const server_task & task, const json & data, pflash_mode mode) {
    if (present(data, "tools") || present(data, "functions")) {
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
    if (task.params.chat_parser_params.echo || present_true(data, "echo")) {
        return "echo";
    }
    return nullptr;
}

// Returns the kept tokens, or nothing with `report.reason` saying why not.
static llama_tokens compress(
        const server_task                & task,
        const json                       & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters,
        const pflash_request             & request,
        pflash_report                    & report) {
    const auto & params = flashlane_params_get().pflash;
    const llama_tokens & tokens = task.tokens.get_tokens();

    if (const char * reason = reason_to_refuse(task, data, request.mode)) {
        report.reason = reason;
        return {};
    }
    if (std::find(tokens.begin(), tokens.end(), LLAMA_TOKEN_NULL) != tokens.end()) {
        report.reason = "media";
        return {};
    }

    pflash_prompt prompt { vocab, tokens, params, std::vector<uint8_t>(tokens.size(), 1) };
    if (task.type == SERVER_TASK_TYPE_INFILL) {
        prompt.open_infill_extra();
    } else if (data.contains("message_delimiters")) {
        if (!prompt.open_user_messages(role_marks(vocab, delimiters))) {
            report.reason = "no_role_boundaries";
            return {};
        }
        prompt.close_ends();
    } else {
        // Control tokens in a bare prompt are a chat template of the client's: its roles are unknown.
        if (tokens.size() > 1 && std::any_of(tokens.begin() + 1, tokens.end(), [&](llama_token t) { return is_control(vocab, t); })) {
            report.reason = "no_role_boundaries";
            return {};
        }
        prompt.open(0, tokens.size(), 0, 0);
        prompt.close_ends();
    }
    prompt.close_special_tokens(task.params.sampling.preserved_tokens);

    const size_t n_open = std::count(prompt.protect.begin(), prompt.protect.end(), (uint8_t) 0);
    if (request.mode == PFLASH_MODE_AUTO && n_open < (size_t) params.min_tokens) {
        report.reason = "below_min_tokens";
        return {};
    }
    const size_t budget = pflash_budget(tokens.size(), n_open, request.keep_ratio, request.min_keep_tokens);
    if (n_open > 0 && budget == n_open) {
        report.reason = "nothing_to_drop";
        return {};
    }
    // Less than a block at each end of the middle would be a deleted middle.
    if (budget < 2 * BLOCK_TOKENS) {
        report.reason = "insufficient_middle_budget";
        return {};
    }

    const auto blocks = pflash_blocks(prompt.protect, prompt.char_starts(), BLOCK_TOKENS);
    const auto keep   = pflash_select(pflash_uniform_scores(blocks.size()), blocks, prompt.protect, budget);
    if (!pflash_validate(keep, prompt.protect, budget).empty()) {
        report.reason = "invalid_selection";
        return {};
    }

    llama_tokens kept;
    kept.reserve(keep.size());
    for (int32_t i : keep) {
        kept.push_back(tokens[i]);
    }
    report.reason = REASON_COMPRESSED;
    return kept;
}

void server_pflash_apply(
        server_task                      & task,
        const json                       & data,
        const llama_vocab                * vocab,
        const common_chat_msg_delimiters & delimiters) {
    task.params.timings_on_finish = json_value(data, "timings_on_finish", false);

    const auto & params = flashlane_params_get().pflash;
    const auto request = read_request(data, params);
    if (params.mode == PFLASH_MODE_OFF) {
        return;
    }

    auto report = std::make_shared<pflash_report>();
    report->mode            = pflash_mode_name(request.mode);
    report->scorer          = pflash_scorer_name(params.scorer);
    report->original_tokens = (int32_t) task.tokens.size();
    report->kept_tokens     = report->original_tokens;
    report->reason          = "off";

    const int64_t t_start = ggml_time_us();
    if (request.mode != PFLASH_MODE_OFF) {
        llama_tokens kept;
        try {
            kept = compress(task, data, vocab, delimiters, request, *report);
        } catch (const std::exception & error) {
            SRV_WRN("pflash failed, the prompt goes through whole: %s\n", error.what());
            report->reason = "error";
        }
        if (!kept.empty()) {
            report->kept_tokens = (int32_t) kept.size();
            task.tokens = server_tokens(kept, task.tokens.has_mtmd);
            task.params.message_spans = task.tokens.find_message_spans(delimiters);
        }
    }
    report->score_ms = (ggml_time_us() - t_start) / 1000.0;

    count(*report);
    SRV_INF("pflash: task %d, mode %s, %d -> %d tokens, %.2f ms, %s\n", task.id, report->mode.c_str(),
            report->original_tokens, report->kept_tokens, report->score_ms, report->reason.c_str());
    task.params.pflash = std::move(report);
}

//
// /props
//

void flashlane_add_props(json & props) {
    const auto & pflash  = flashlane_params_get().pflash;
    const auto & kvflash = flashlane_params_get().kvflash;

    json skipped = json::object();
    auto & c = counters();
    std::lock_guard<std::mutex> lock(c.mutex);
    for (const auto & item : c.skipped) {
        skipped[item.first] = item.second;
    }

    props["flashlane_schema"] = FLASHLANE_SCHEMA_VERSION;
    props["pflash"] = json {
        {"configured",       pflash.mode != PFLASH_MODE_OFF},
        {"mode",             pflash_mode_name(pflash.mode)},
        {"scorer",           pflash_scorer_name(pflash.scorer)},
        {"keep_ratio",       pflash.keep_ratio},
        {"min_tokens",       pflash.min_tokens},
        {"min_keep_tokens",  pflash.min_keep_tokens},
        {"protected_prefix", pflash.protected_prefix},
        {"protected_suffix", pflash.protected_suffix},
        {"timeout_ms",       pflash.timeout_ms},
        {"requests",         c.requests},
        {"compressed",       c.compressed},
        {"skipped",          skipped},
        {"original_tokens",  c.original_tokens},
        {"kept_tokens",      c.kept_tokens},
        {"score_ms",         c.score_ms},
    };
    props["kvflash"] = json {
        {"configured", kvflash.budget != 0},
        {"active",     false},
        {"policy",     kvflash_policy_name(kvflash.policy)},
        {"tau",        kvflash.tau},
        {"note",       "resident budgets are not part of this build"},
    };
}
