#include "pflash-text.h"
#include "pflash-chars.h"

#include <algorithm>
#include <deque>

namespace {

constexpr size_t MAX_LITERALS      = 64;
constexpr size_t MAX_LITERAL_BYTES = 128;

bool is_word_at(std::string_view text, size_t at) {
    return at < text.size() && pflash_is_word(pflash_char_at(text, at).code);
}

bool is_word_before(std::string_view text, size_t at) {
    return at > 0 && pflash_is_word(pflash_char_before(text, at).code);
}

struct quote_pair {
    std::string_view open, close;
};

constexpr quote_pair QUOTES[] = {
    { "\"", "\"" }, { "'", "'" }, { "`", "`" }, { "«", "»" }, { "»", "«" }, { "“", "”" }, { "„", "“" }, { "‘", "’" }, { "「", "」" }, { "『", "』" },
    { "《", "》" },
};

// The quoted string that begins at `at`, or nothing. An apostrophe within a word opens none.
std::string_view quoted_at(std::string_view text, size_t at) {
    if (is_word_before(text, at) && (uint8_t) text[at] < 0x80) {
        return {};
    }
    for (const auto & quote : QUOTES) {
        if (!pflash_starts_with(text.substr(at), quote.open)) {
            continue;
        }
        const size_t begin  = at + quote.open.size();
        const auto   window = text.substr(begin, MAX_LITERAL_BYTES + quote.close.size());
        size_t end = window.find(quote.close);
        while (quote.open == "'" && end != std::string_view::npos && is_word_at(text, begin + end + 1)) {
            end = window.find(quote.close, end + 1);
        }
        const auto inside = window.substr(0, std::min(end, window.size()));
        if (end == std::string_view::npos || inside.size() < 2 || inside.find('\n') != std::string_view::npos ||
                pflash_is_blank(inside.front()) || pflash_is_blank(inside.back())) {
            continue;
        }
        return inside;
    }
    return {};
}

struct token_shape {
    size_t digits = 0, uppers = 0, lowers = 0, others = 0, marks = 0, slashes = 0;
    bool   camel = false, underscore = false, at_sign = false, dotted = false;

    explicit token_shape(std::string_view token) {
        uint32_t before = 0;
        size_t   run    = 0; // letters since the last mark
        for (size_t i = 0; i < token.size();) {
            const auto c = pflash_char_at(token, i);
            i += c.size;
            const bool upper = pflash_is_upper(c.code), word = pflash_is_word(c.code);
            digits += pflash_is_digit(c.code);
            uppers += upper;
            lowers += pflash_is_lower(c.code);
            others += word && !upper && !pflash_is_lower(c.code) && !pflash_is_digit(c.code);
            marks  += !word;
            slashes += c.code == '/' || c.code == '\\';
            camel      |= upper && pflash_is_lower(before);
            underscore |= c.code == '_';
            at_sign    |= c.code == '@' && before != 0;
            dotted     |= c.code == '.' && run >= 2 && i + 1 < token.size() && is_word_at(token, i) && is_word_at(token, i + 1);
            run = word ? run + 1 : 0;
            before = c.code;
        }
    }

    size_t letters() const { return uppers + lowers + others; }
};

bool is_ordinal(std::string_view token) {
    const size_t digits = std::find_if(token.begin(), token.end(), [](char c) { return !pflash_is_digit((uint8_t) c); }) - token.begin();
    const auto end = pflash_folded(token.substr(digits));
    return end == "st" || end == "nd" || end == "rd" || end == "th" || end == "s";
}

bool is_literal(std::string_view token, bool shouted) {
    const token_shape shape(token);
    if (shape.digits > 0 && shape.letters() == 0) {
        return shape.digits >= 3 || (shape.digits >= 2 && shape.marks > 0);
    }
    if (shape.digits > 0) {
        return token.size() >= 3 && shape.others == 0 && !is_ordinal(token);
    }
    const bool capitals = shape.uppers >= 3 && shape.lowers == 0 && !shouted;
    const bool path     = shape.slashes >= 2 || (shape.slashes == 1 && (shape.dotted || token[0] == '/'));
    return shape.letters() >= 2 && (capitals || path || shape.camel || shape.underscore || shape.at_sign || shape.dotted ||
        pflash_starts_with(token, "--"));
}

// A token without the marks around it that no identifier has.
std::string_view trimmed(std::string_view token) {
    static constexpr std::string_view leading = "_-/.~$@#";
    while (!token.empty()) {
        const auto c = pflash_char_at(token, 0);
        if (pflash_is_word(c.code) || (c.code < 0x80 && leading.find((char) c.code) != std::string_view::npos && token.size() > 1 && token[0] != '.')) {
            break;
        }
        token.remove_prefix(c.size);
    }
    while (!token.empty()) {
        const auto c = pflash_char_before(token, token.size());
        if (pflash_is_word(c.code) || c.code == '_') {
            break;
        }
        token.remove_suffix(c.size);
    }
    return token;
}

bool is_all_capitals(std::string_view text) {
    const token_shape shape(text);
    return shape.uppers > 0 && shape.lowers == 0 && shape.digits == 0;
}

char lower_byte(char c) {
    return c >= 'A' && c <= 'Z' ? (char) (c + 0x20) : c;
}

// Finds many literals in one pass, whatever they are. Source: Aho and Corasick, Efficient String
// Matching (1975), with the table of a deterministic machine. Bytes are taken in lower case.
class literal_machine {
public:
    explicit literal_machine(const std::vector<std::string> & literals) {
        for (const auto & literal : literals) {
            for (char c : literal) {
                auto & symbol = symbols[(uint8_t) lower_byte(c)];
                symbol = symbol == 0 ? (uint8_t) n_symbols++ : symbol;
            }
        }
        for (char c = 'A'; c <= 'Z'; c++) {
            symbols[(uint8_t) c] = symbols[(uint8_t) lower_byte(c)];
        }
        add_state();
        for (size_t l = 0; l < literals.size(); l++) {
            uint32_t state = 0;
            for (char c : literals[l]) {
                const size_t edge = state * n_symbols + symbols[(uint8_t) c];
                if (next[edge] == 0) {
                    const uint32_t made = add_state();
                    next[edge] = made;
                }
                state = next[edge];
            }
            if (!literals[l].empty()) {
                ends[state].push_back((uint32_t) l);
            }
        }
        link();
    }

    // Calls `found(literal, end)` for each occurrence.
    template <typename F>
    void run(std::string_view text, F found) const {
        uint32_t state = 0;
        for (size_t i = 0; i < text.size(); i++) {
            state = next[state * n_symbols + symbols[(uint8_t) text[i]]];
            for (uint32_t s = ends[state].empty() ? shorter[state] : state; s != 0; s = shorter[s]) {
                for (uint32_t literal : ends[s]) {
                    found(literal, i + 1);
                }
            }
        }
    }

private:
    uint8_t symbols[256] = {}; // 0: in no literal
    size_t  n_symbols    = 1;
    std::vector<uint32_t> next;
    std::vector<uint32_t> shorter; // the longest proper suffix at which a literal ends
    std::vector<std::vector<uint32_t>> ends;

    uint32_t add_state() {
        next.resize(next.size() + n_symbols, 0);
        ends.emplace_back();
        return (uint32_t) ends.size() - 1;
    }

    void link() {
        std::vector<uint32_t> fallback(ends.size(), 0);
        shorter.assign(ends.size(), 0);
        std::deque<uint32_t> queue = { 0 };
        while (!queue.empty()) {
            const uint32_t state = queue.front();
            queue.pop_front();
            for (size_t c = 0; c < n_symbols; c++) {
                uint32_t & target = next[state * n_symbols + c];
                const uint32_t other = state == 0 ? 0 : next[fallback[state] * n_symbols + c];
                if (target == 0) {
                    target = other;
                    continue;
                }
                fallback[target] = other;
                shorter[target]  = ends[other].empty() ? shorter[other] : other;
                queue.push_back(target);
            }
        }
    }
};

// No word or number goes on beyond the edges of [begin, end).
bool is_whole_word(std::string_view text, size_t begin, size_t end) {
    const uint32_t first = pflash_char_at(text, begin).code, last = pflash_char_before(text, end).code;
    if (pflash_is_word(first) && !pflash_is_unspaced(first) && begin > 0) {
        const uint32_t before = pflash_char_before(text, begin).code;
        if ((pflash_is_word(before) && !pflash_is_unspaced(before)) || before == '_') {
            return false;
        }
        if (pflash_is_digit(first) && (before == '.' || before == ',') && begin > 1 && pflash_is_digit((uint8_t) text[begin - 2])) {
            return false;
        }
    }
    if (pflash_is_word(last) && !pflash_is_unspaced(last) && end < text.size()) {
        const uint32_t after = pflash_char_at(text, end).code;
        if ((pflash_is_word(after) && !pflash_is_unspaced(after)) || after == '_') {
            return false;
        }
        if (pflash_is_digit(last) && (after == '.' || after == ',') && end + 1 < text.size() && pflash_is_digit((uint8_t) text[end + 1])) {
            return false;
        }
    }
    return true;
}

struct word {
    size_t begin, end; // bytes
    bool   capital;
};

// Words with their inner hyphens, apostrophes and dots.
std::vector<word> words_of(std::string_view text) {
    std::vector<word> words;
    for (size_t i = 0; i < text.size();) {
        const auto c = pflash_char_at(text, i);
        if (!pflash_is_word(c.code)) {
            i += c.size;
            continue;
        }
        const size_t begin = i;
        while (i < text.size()) {
            const auto next = pflash_char_at(text, i);
            const bool joint = next.code == '-' || next.code == '.' || next.code == '\'' || next.code == 0x2019;
            if (!pflash_is_word(next.code) && !(joint && is_word_at(text, i + next.size))) {
                break;
            }
            i += next.size;
        }
        words.push_back({ begin, i, pflash_is_upper(c.code) });
    }
    return words;
}

// "Ada's" is about Ada.
std::string_view without_possessive(std::string_view name) {
    for (const std::string_view end : { "'s", "\xE2\x80\x99s" }) {
        if (name.size() > end.size() && name.substr(name.size() - end.size()) == end) {
            return name.substr(0, name.size() - end.size());
        }
    }
    return name;
}

} // namespace

std::vector<std::string> pflash_names(std::string_view span, std::string_view question) {
    constexpr size_t MIN_NAME_BYTES = 3, MIN_LAST_BYTES = 4;
    std::vector<std::string> names;
    const auto add = [&](std::string_view name) {
        if (name.size() >= MIN_NAME_BYTES && name.size() <= MAX_LITERAL_BYTES && names.size() < MAX_LITERALS &&
                std::find(names.begin(), names.end(), name) == names.end()) {
            names.emplace_back(name);
        }
    };
    const auto words = words_of(span);
    for (size_t first = 0; first < words.size(); first++) {
        if (!words[first].capital) {
            continue;
        }
        size_t last = first;
        while (last + 1 < words.size()) {
            const auto between = span.substr(words[last].end, words[last + 1].begin - words[last].end);
            const bool initial = between == ". " && words[last].end - words[last].begin == 1;
            if (!(between == " " || initial) || !(words[last + 1].capital || pflash_is_digit((uint8_t) span[words[last + 1].begin]))) {
                break;
            }
            last++;
        }
        const auto run = [&](size_t from) {
            return without_possessive(span.substr(words[from].begin, words[last].end - words[from].begin));
        };
        if (first > 0 || last > 0) {
            add(run(first));
        }
        if (first == 0 && last > 0) {
            add(run(1)); // the first word may be a capital for its place alone
        }
        if (last > first && words[last].capital && run(last).size() >= MIN_LAST_BYTES) {
            add(run(last));
        }
        first = last;
    }
    for (const auto & literal : pflash_literals(span)) {
        add(literal);
    }
    const auto asked = pflash_literal_spans(question, { { 0, question.size() } }, names);
    std::vector<std::string> news;
    for (size_t i = 0; i < names.size(); i++) {
        if (asked[i].empty()) {
            news.push_back(std::move(names[i]));
        }
    }
    return news;
}

std::vector<std::string> pflash_literals(std::string_view question) {
    std::vector<std::string> literals;
    const auto add = [&](std::string_view literal) {
        if (literal.size() >= 2 && literal.size() <= MAX_LITERAL_BYTES && literals.size() < MAX_LITERALS &&
                std::find(literals.begin(), literals.end(), literal) == literals.end()) {
            literals.emplace_back(literal);
        }
    };
    const token_shape whole(question);
    const bool shouted = whole.uppers > whole.lowers;

    size_t token = 0; // where the current run without blanks began
    for (size_t i = 0; i <= question.size();) {
        const auto c = i < question.size() ? pflash_char_at(question, i) : pflash_char { ' ', 1 };
        const bool breaks = c.code == ' ' || c.code == '\t' || c.code == '\n' || c.code == '\r' || std::string_view("\"'`()[]{}<>;!?=|&*").find((char) c.code) != std::string_view::npos;
        const bool mark   = c.code >= 0x80 && (!pflash_is_word(c.code) || pflash_is_unspaced(c.code));
        if ((c.code < 0x80 && breaks) || mark) {
            const auto word = trimmed(question.substr(token, i - token));
            const bool call = c.code == '(' && i + 1 < question.size() && question[i + 1] == ')';
            if (word.size() <= MAX_LITERAL_BYTES && !word.empty() && (call || is_literal(word, shouted))) {
                add(word);
            }
            if (i < question.size()) {
                add(quoted_at(question, i));
            }
            token = i + c.size;
        }
        i += c.size;
    }
    return literals;
}

std::vector<std::vector<uint32_t>> pflash_literal_spans(
        std::string_view text,
        const std::vector<pflash_range> & spans,
        const std::vector<std::string>  & literals,
        bool as_written) {
    std::vector<std::vector<uint32_t>> holders(literals.size());
    std::vector<uint8_t> exact(literals.size());
    for (size_t l = 0; l < literals.size(); l++) {
        exact[l] = as_written || is_all_capitals(literals[l]);
    }
    size_t span = 0;
    literal_machine(literals).run(text, [&](uint32_t l, size_t end) {
        const size_t begin = end - literals[l].size();
        while (span < spans.size() && spans[span].end < end) {
            span++;
        }
        if (span == spans.size() || (exact[l] && text.substr(begin, end - begin) != literals[l]) || !is_whole_word(text, begin, end)) {
            return;
        }
        size_t first = span;
        while (first > 0 && spans[first].begin > begin) {
            first--;
        }
        auto & held = holders[l];
        for (size_t s = first; s <= span; s++) {
            if (spans[s].end > begin && (held.empty() || held.back() < s)) {
                held.push_back((uint32_t) s);
            }
        }
    });
    return holders;
}
