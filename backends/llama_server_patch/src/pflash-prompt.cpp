#include "pflash-prompt.h"

#include "common.h"
#include "pflash-chars.h"
#include "pflash-text.h"

#include <algorithm>

static constexpr size_t GUARD_TOKENS      = 8;   // at each edge of a segment
static constexpr size_t MAX_CHARACTER_TOKENS = 3; // after its first; more are bytes of no character
static constexpr size_t FILE_NAME_TOKENS  = 64;  // at most this long is an infill file name
static constexpr size_t INFILL_ASK_TOKENS = 128; // on each side of the gap

std::string pflash_piece(const llama_vocab * vocab, llama_token token) {
    char buffer[256];
    int32_t n = llama_token_to_piece(vocab, token, buffer, sizeof(buffer), 0, true);
    if (n >= 0) {
        return std::string(buffer, n);
    }
    std::string piece(-n, '\0');
    n = llama_token_to_piece(vocab, token, piece.data(), (int32_t) piece.size(), 0, true);
    piece.resize(std::max(n, 0));
    return piece;
}

static bool is_control(const llama_vocab * vocab, llama_token token) {
    return (llama_vocab_get_attr(vocab, token) & LLAMA_TOKEN_ATTR_CONTROL) || llama_vocab_is_eog(vocab, token);
}

static bool never_drop(const llama_vocab * vocab, llama_token token) {
    return is_control(vocab, token) || (llama_vocab_get_attr(vocab, token) & LLAMA_TOKEN_ATTR_USER_DEFINED);
}

static bool is_blank(const std::string & piece) {
    return !piece.empty() && piece.find_first_not_of(" \t\r\n") == std::string::npos;
}

size_t pflash_prompt::n_open() const {
    return std::count(protect.begin(), protect.end(), (uint8_t) 0);
}

size_t pflash_prompt::n_open(const pflash_segment & segment) const {
    return std::count(protect.begin() + segment.begin, protect.begin() + segment.end, (uint8_t) 0);
}

namespace {

struct reader {
    const llama_vocab              * vocab;
    const std::vector<llama_token> & tokens;
    pflash_prompt prompt;

    reader(const llama_vocab * vocab, const std::vector<llama_token> & tokens) : vocab(vocab), tokens(tokens) {
        prompt.protect.assign(tokens.size(), 1);
    }

    // Opens [begin, end) without its edges. Returns the new segment.
    pflash_segment & open(size_t begin, size_t end, size_t edge = GUARD_TOKENS) {
        pflash_segment segment;
        segment.begin = begin;
        segment.end   = end;
        segment.token_end.reserve(end - begin);
        for (size_t i = begin; i < end; i++) {
            segment.text += pflash_piece(vocab, tokens[i]);
            segment.token_end.push_back(segment.text.size());
        }
        for (size_t i = begin + edge; i + edge < end; i++) {
            prompt.protect[i] = 0;
        }
        prompt.segments.push_back(std::move(segment));
        return prompt.segments.back();
    }

    // finds what a message asks and protects it
    void close_ask(pflash_segment & segment) {
        for (const auto & range : pflash_find_ask(segment.text, &segment.guessed)) {
            segment.ask += (segment.ask.empty() ? "" : "\n") + segment.text.substr(range.begin, range.end - range.begin);
            // with the blanks around it, which may have merged with the end of what is before
            size_t begin = range.begin;
            size_t end   = range.end;
            while (begin > 0 && is_blank(segment.text.substr(begin - 1, 1))) {
                begin--;
            }
            while (end < segment.text.size() && is_blank(segment.text.substr(end, 1))) {
                end++;
            }
            size_t token_begin = 0;
            for (size_t i = 0; i < segment.token_end.size(); i++) {
                if (token_begin < end && segment.token_end[i] > begin) {
                    prompt.protect[segment.begin + i] = 1;
                }
                token_begin = segment.token_end[i];
            }
        }
    }

    void close_special(const std::set<llama_token> & preserved) {
        std::vector<uint8_t> special(tokens.size());
        for (size_t i = 0; i < tokens.size(); i++) {
            special[i] = never_drop(vocab, tokens[i]) || preserved.count(tokens[i]) > 0;
        }
        // with the blanks around it, up to the next one: some vocabularies have runs of blanks as such tokens
        const auto is_beside = [&](size_t i) { return !special[i] && is_blank(pflash_piece(vocab, tokens[i])); };
        for (size_t i = 0; i < tokens.size(); i++) {
            if (!special[i]) {
                continue;
            }
            prompt.protect[i] = 1;
            for (size_t j = i; j-- > 0 && is_beside(j);) {
                prompt.protect[j] = 1;
            }
            for (size_t j = i + 1; j < tokens.size() && is_beside(j); j++) {
                prompt.protect[j] = 1;
            }
        }
    }

    void close_ends(pflash_guards guards) {
        const size_t n = prompt.protect.size();
        std::fill_n(prompt.protect.begin(),  std::min(guards.prefix, n), (uint8_t) 1);
        std::fill_n(prompt.protect.rbegin(), std::min(guards.suffix, n), (uint8_t) 1);
    }

    pflash_prompt done() {
        for (const auto & segment : prompt.segments) {
            close_characters(segment);
        }
        return std::move(prompt);
    }

private:
    // What is protected ends with a character, also where a character is several tokens.
    void close_characters(const pflash_segment & segment) {
        const size_t n = segment.token_end.size();
        const auto joined = [&](size_t i) { // to the token before
            const size_t at = segment.token_end[i - 1];
            return at < segment.text.size() && pflash_is_continuation(segment.text[at]);
        };
        uint8_t * const protect = prompt.protect.data() + segment.begin;
        for (size_t i = 1, run = 0; i < n; i++) {
            run = protect[i - 1] && !protect[i] && joined(i) && run < MAX_CHARACTER_TOKENS ? run + 1 : 0;
            protect[i] |= run > 0;
        }
        for (size_t i = n, run = 0; i-- > 1;) {
            run = protect[i] && !protect[i - 1] && joined(i) && run < MAX_CHARACTER_TOKENS ? run + 1 : 0;
            protect[i - 1] |= run > 0;
        }
    }
};

// the tokens that announce a message
struct role_mark {
    common_chat_role role;
    std::vector<llama_token> tokens;
};

} // namespace

// llama.cpp finds a delimiter by rendering a message, and a default system text of the template then
// stands in it. The mark is what repeats at each message: the delimiter from its last control token on
// that tells the roles apart. Blanks at its end may have merged with the message's first ones.
static std::vector<role_mark> role_marks(const llama_vocab * vocab, const common_chat_msg_delimiters & delimiters) {
    const auto ends_with = [](const std::vector<llama_token> & tokens, const std::vector<llama_token> & end) {
        return end.size() <= tokens.size() && std::equal(end.rbegin(), end.rend(), tokens.rbegin());
    };
    std::vector<role_mark> marks;
    for (const auto & delimiter : delimiters.delimiters) {
        std::vector<llama_token> mark = delimiter.tokens;
        for (size_t i = delimiter.tokens.size(); i-- > 0;) {
            const std::vector<llama_token> end(delimiter.tokens.begin() + i, delimiter.tokens.end());
            if (is_control(vocab, end[0]) &&
                std::none_of(delimiters.delimiters.begin(), delimiters.delimiters.end(), [&](const auto & other) {
                    return other.role != delimiter.role && ends_with(other.tokens, end);
                })) {
                mark = end;
                break;
            }
        }
        while (mark.size() > 1 && is_blank(pflash_piece(vocab, mark.back()))) {
            mark.pop_back();
        }
        if (!mark.empty()) {
            marks.push_back({ delimiter.role, std::move(mark) });
        }
    }
    return marks;
}

pflash_prompt pflash_read_chat(
        const llama_vocab                * vocab,
        const std::vector<llama_token>   & tokens,
        const common_chat_msg_delimiters & delimiters,
        const std::set<llama_token>      & preserved,
        pflash_guards guards) {
    reader read(vocab, tokens);
    const auto marks = role_marks(vocab, delimiters);
    for (const auto & mark : marks) {
        if (std::none_of(mark.tokens.begin(), mark.tokens.end(), [&](llama_token token) { return never_drop(vocab, token); })) {
            read.prompt.refused = "no_role_boundaries"; // words that any text may hold
            return read.done();
        }
    }
    const auto mark_at = [&](size_t i) {
        const role_mark * longest = nullptr;
        for (const auto & mark : marks) {
            if (mark.tokens.size() <= tokens.size() - i && (!longest || mark.tokens.size() > longest->tokens.size()) &&
                std::equal(mark.tokens.begin(), mark.tokens.end(), tokens.begin() + i)) {
                longest = &mark;
            }
        }
        return longest;
    };
    for (size_t i = 0; i < tokens.size();) {
        const role_mark * mark = mark_at(i);
        if (!mark) {
            i++;
            continue;
        }
        const size_t begin = i + mark->tokens.size();
        i = begin;
        if (mark->role == COMMON_CHAT_ROLE_USER) {
            // A message ends at its first control token, or the next mark: what follows is template, or text that
            // imitates it.
            while (i < tokens.size() && !is_control(vocab, tokens[i]) && !mark_at(i)) {
                i++;
            }
            read.close_ask(read.open(begin, i));
        }
    }
    if (read.prompt.segments.empty()) {
        read.prompt.refused = "no_role_boundaries";
    }
    read.close_special(preserved);
    read.close_ends(guards);
    return read.done();
}

pflash_prompt pflash_read_text(
        const llama_vocab              * vocab,
        const std::vector<llama_token> & tokens,
        const std::set<llama_token>    & preserved,
        pflash_guards guards) {
    reader read(vocab, tokens);
    const size_t begin = !tokens.empty() && is_control(vocab, tokens[0]) ? 1 : 0; // BOS
    if (std::any_of(tokens.begin() + begin, tokens.end(), [&](llama_token token) { return is_control(vocab, token); })) {
        read.prompt.refused = "no_role_boundaries";
        return read.done();
    }
    read.close_ask(read.open(begin, tokens.size()));
    read.close_special(preserved);
    read.close_ends(guards);
    return read.done();
}

pflash_prompt pflash_read_infill(
        const llama_vocab              * vocab,
        const std::vector<llama_token> & tokens,
        const std::set<llama_token>    & preserved) {
    reader read(vocab, tokens);
    const auto marks = { llama_vocab_fim_pre(vocab), llama_vocab_fim_suf(vocab), llama_vocab_fim_mid(vocab) };
    const auto is_mark = [&](llama_token token) { return std::find(marks.begin(), marks.end(), token) != marks.end(); };
    const size_t end = std::find_if(tokens.begin(), tokens.end(), is_mark) - tokens.begin();

    // what stands around the gap: the tail of the prefix and the head of the suffix
    std::string ask;
    for (size_t i = end; i < tokens.size(); i++) {
        size_t stop = i + 1;
        while (stop < tokens.size() && !is_mark(tokens[stop])) {
            stop++;
        }
        size_t first = i + 1;
        if (tokens[i] == llama_vocab_fim_pre(vocab)) {
            first = std::max(first, stop - std::min(stop, INFILL_ASK_TOKENS));
        } else {
            stop = std::min(stop, first + INFILL_ASK_TOKENS);
        }
        for (size_t j = first; j < stop; j++) {
            ask += pflash_piece(vocab, tokens[j]);
        }
        while (i + 1 < tokens.size() && !is_mark(tokens[i + 1])) {
            i++;
        }
    }

    const auto open = [&](size_t begin, size_t stop) {
        if (begin < stop) {
            read.open(begin, stop).ask = ask;
        }
    };
    size_t begin = 0;
    for (size_t i = 0; i < end; i++) {
        if (tokens[i] != llama_vocab_fim_sep(vocab) && tokens[i] != llama_vocab_fim_rep(vocab)) {
            continue;
        }
        open(begin, i);
        begin = i + 1;
        while (begin < end && begin - i < FILE_NAME_TOKENS && pflash_piece(vocab, tokens[begin - 1]).find('\n') == std::string::npos) {
            begin++;
        }
    }
    open(begin, end);
    read.close_special(preserved);
    return read.done();
}

pflash_prompt pflash_read_parts(
        const llama_vocab                   * vocab,
        const std::vector<pflash_text_part> & parts,
        const std::string                   & question,
        bool                                  whole,
        std::vector<llama_token>            & tokens) {
    std::vector<std::pair<size_t, size_t>> places;
    for (const auto & part : parts) {
        const size_t begin = tokens.size();
        const auto text = common_tokenize(vocab, part.text, false, false);
        tokens.insert(tokens.end(), text.begin(), text.end());
        places.emplace_back(begin, tokens.size());
        tokens.push_back(LLAMA_TOKEN_NULL);
    }
    reader read(vocab, tokens);
    for (size_t i = 0; i < parts.size(); i++) {
        if (!parts[i].is_user || places[i].first == places[i].second) {
            continue;
        }
        auto & segment = read.open(places[i].first, places[i].second, 0); // no template beside it
        segment.part = i;
        if (segment.text.size() == parts[i].text.size() + 1 && segment.text.compare(1, std::string::npos, parts[i].text) == 0) {
            segment.text.erase(0, 1); // the blank that some vocabularies put before a text
            for (size_t & end : segment.token_end) {
                end -= std::min<size_t>(end, 1);
            }
        }
        if (segment.text != parts[i].text) { // a vocabulary that writes some characters otherwise: nothing is cut
            std::fill_n(read.prompt.protect.begin() + segment.begin, segment.end - segment.begin, (uint8_t) 1);
        }
        if (!whole) {
            read.close_ask(segment);
        }
        if (!question.empty()) {
            segment.ask = question;
        }
    }
    return read.done();
}
