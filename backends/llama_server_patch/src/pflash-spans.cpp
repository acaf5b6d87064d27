#include "pflash-spans.h"
#include "pflash-chars.h"

#include <algorithm>

namespace {

constexpr size_t MAX_JOINED_SHORT = 2;  // so many short pieces join one span; a list stays a list
constexpr size_t MIN_WRAPPED_BYTES = 32; // lines of wrapped prose are at least this long on average
constexpr size_t MAX_CODE_LINE_BYTES = 200;
constexpr size_t MAX_CELL_BYTES      = 80; // of a table, on average

struct piece {
    size_t begin;
    size_t end;
    bool   leads    = false; // a heading, a fence: belongs with what follows
    bool   heading  = false;
    bool   starts   = false; // a paragraph
    size_t n_joined = 0;
};

struct text_line {
    size_t begin;
    size_t end;  // behind the line end
    std::string_view content; // without the blanks around it

    size_t indent() const { return (size_t) (content.data() - source) - begin; }
    const char * source;
};

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

bool is_fence(std::string_view line) {
    return pflash_starts_with(line, "```") || pflash_starts_with(line, "~~~");
}

bool is_heading(std::string_view line) {
    const size_t level = line.find_first_not_of('#');
    return level != std::string_view::npos && level > 0 && level <= 6 && line[level] == ' ';
}

// "- ", "* ", "1. ", "2) "
bool is_list_item(std::string_view line) {
    size_t mark = 0;
    while (mark < line.size() && mark < 4 && pflash_is_digit((uint8_t) line[mark])) {
        mark++;
    }
    if (mark + 1 >= line.size()) {
        return false;
    }
    if (mark == 0) {
        return std::string_view("-*+").find(line[0]) != std::string_view::npos ? line[1] == ' ' : pflash_starts_with(line, "\xE2\x80\xA2");
    }
    return (line[mark] == '.' || line[mark] == ')') && line[mark + 1] == ' ';
}

// A line of a log or a table: one span whatever sentences it holds.
bool is_record(std::string_view line) {
    if (line.empty() || is_list_item(line)) {
        return false;
    }
    if (line[0] == '|' || line[0] == '<') {
        return true;
    }
    const auto head = line.substr(0, 48);
    size_t digits = 0, marks = 0;
    for (char c : head.substr(line[0] == '[' ? 1 : 0)) {
        if (pflash_is_digit((uint8_t) c)) {
            digits++;
        } else if (std::string_view("-/:.T,").find(c) != std::string_view::npos) {
            marks++;
        } else {
            break;
        }
    }
    if (digits >= 4 && marks >= 2) {
        return true; // a date, a time, an address
    }
    size_t n_cells = 1;
    for (size_t i = 0; i + 1 < line.size(); i++) {
        n_cells += (line[i] == ',' || line[i] == ';' || line[i] == '\t') && line[i + 1] != ' ';
    }
    if (n_cells >= 4 && line.size() <= MAX_CELL_BYTES * n_cells) {
        return true;
    }
    for (const char * level : { "INFO", "WARN", "ERROR", "DEBUG", "TRACE", "FATAL", "CRITICAL", "NOTICE" }) {
        const size_t at = head.find(level);
        if (at != std::string_view::npos && (at == 0 || !pflash_is_word((uint8_t) head[at - 1]))) {
            return true;
        }
    }
    return false;
}

bool is_code(std::string_view line) {
    if (line.empty() || line.size() > MAX_CODE_LINE_BYTES) {
        return false;
    }
    const char last = line.back();
    if (last == ';' || last == '{' || last == '}' || last == '\\' || (last == ':' && line.size() > 1 && line[line.size() - 2] == ')')) {
        return true;
    }
    for (const char * part : { " = ", " == ", " != ", "->", "=>", "::", "();", "+=", "()", " := ", " && ", " || " }) {
        if (has(line, part)) {
            return true;
        }
    }
    for (const char * start : { "def ", "class ", "return", "import ", "from ", "elif ", "else:", "try:", "except", "func ", "fn ", "const ",
            "public ", "private ", "static ", "#include", "#define", "#if", "#endif", "//", "/*", "*/", "#!", "@", "raise ", "async ", "await " }) {
        if (pflash_starts_with(line, start)) {
            return !pflash_starts_with(line, "from ") || has(line, " import ");
        }
    }
    return false;
}

class span_cutter {
public:
    explicit span_cutter(std::string_view text) : text(text) {}

    std::vector<pflash_range> cut() {
        size_t at = 0;
        bool fenced = false;
        while (at < text.size()) {
            const text_line line = line_at(at);
            if (line.content.empty()) {
                if (!pieces.empty()) {
                    pieces.back().end = line.end;
                }
                starts = true;
                at = line.end;
            } else if (is_fence(line.content)) {
                add(line.end);
                pieces.back().leads = !fenced;
                fenced = !fenced;
                at = line.end;
            } else if (const size_t json_end = cut_json(line)) {
                at = json_end;
            } else if (fenced) {
                at = cut_code(line);
            } else if (is_heading(line.content)) {
                add(line.end);
                pieces.back().leads   = true;
                pieces.back().heading = true;
                at = line.end;
            } else if (is_record(line.content)) {
                add(line.end);
                at = line.end;
            } else {
                at = cut_paragraph(line);
            }
        }
        if (!pieces.empty()) {
            pieces.back().end = text.size();
        } else if (!text.empty()) {
            add(text.size());
        }
        return joined();
    }

private:
    std::string_view   text;
    std::vector<piece> pieces;
    bool   starts       = true;
    size_t json_barrier = 0; // no JSON begins before: it was looked at already

    text_line line_at(size_t begin) const {
        size_t end = text.find('\n', begin);
        end = end == std::string_view::npos ? text.size() : end + 1;
        size_t first = begin, last = end;
        while (first < last && pflash_is_blank(text[first])) {
            first++;
        }
        while (last > first && pflash_is_blank(text[last - 1])) {
            last--;
        }
        return { begin, end, text.substr(first, last - first), text.data() };
    }

    void add(size_t end) {
        pieces.push_back({ pieces.empty() ? 0 : pieces.back().end, end });
        pieces.back().starts = starts;
        starts = false;
    }

    size_t cut_json(const text_line & line) {
        if ((line.content[0] != '{' && line.content[0] != '[') || line.begin < json_barrier) {
            return 0;
        }
        const auto json = pflash_cut_json(text, (size_t) (line.content.data() - text.data()));
        json_barrier = json.end;
        for (size_t cut : json.cuts) {
            add(cut);
        }
        return json.found ? json.end : 0;
    }

    // A statement: a line and those that continue it, while brackets are open.
    size_t cut_code(text_line line) {
        const size_t begin = line.begin;
        int depth = 0;
        while (true) {
            for (char c : line.content) {
                depth += (c == '(' || c == '[') - (c == ')' || c == ']');
            }
            const bool goes_on = depth > 0 || (!line.content.empty() && std::string_view("\\=,").find(line.content.back()) != std::string_view::npos);
            if (!goes_on || line.end >= text.size()) {
                break;
            }
            const text_line next = line_at(line.end);
            if (next.content.empty() || is_fence(next.content) || next.end - begin > PFLASH_SPAN_MAX_BYTES) {
                break;
            }
            line = next;
        }
        add(line.end);
        return line.end;
    }

    // Lines up to a blank one or another kind of text.
    size_t cut_paragraph(const text_line & first) {
        std::vector<text_line> lines = { first };
        while (lines.back().end < text.size()) {
            const text_line next = line_at(lines.back().end);
            if (next.content.empty() || is_fence(next.content) || is_heading(next.content) || is_record(next.content) ||
                    next.content[0] == '{' || next.content[0] == '[' || is_list_item(next.content)) {
                break;
            }
            lines.push_back(next);
        }
        const size_t n = lines.size();
        size_t n_code = 0, n_flowing = 0, n_full = 0, n_alike = 0, n_bytes = 0, longest = 0;
        for (const auto & line : lines) {
            n_code += is_code(line.content);
            n_bytes += line.content.size();
            longest = std::max(longest, line.content.size());
        }
        if (2 * n_code >= n) {
            size_t at = first.begin;
            while (at < lines.back().end) {
                at = cut_code(line_at(at));
            }
            return at;
        }
        for (size_t i = 1; i < n; i++) {
            const auto before = lines[i - 1].content, line = lines[i].content;
            const auto next   = pflash_char_at(line, 0).code;
            n_flowing += pflash_is_lower(next) || pflash_is_unspaced(next) || before.back() == '-';
            n_alike += before.substr(0, before.find(' ')) == line.substr(0, line.find(' ')); // as lines of a log are
            // the next word would not have fitted
            n_full += before.size() + 1 + std::min(line.find(' '), (size_t) 12) + 4 >= longest;
        }
        n_bytes -= lines.back().content.size();
        const bool wrapped = n > 1 && n_bytes >= MIN_WRAPPED_BYTES * (n - 1) && 5 * n_flowing >= 2 * (n - 1) && 4 * n_full >= 3 * (n - 1) &&
            2 * n_alike < n - 1;
        std::vector<size_t> cuts;
        if (wrapped) {
            pflash_cut_sentences(text, first.begin, lines.back().end, cuts);
        } else {
            for (const auto & line : lines) {
                pflash_cut_sentences(text, line.begin, line.end, cuts);
            }
        }
        for (size_t cut : cuts) {
            add(cut);
        }
        return lines.back().end;
    }

    // Where to cut a piece that is too long: behind the strongest separator in the bound's second
    // half. A few bytes are left for the next piece, so that no crumb remains.
    size_t long_cut(size_t begin, size_t end) const {
        const size_t first = begin + PFLASH_SPAN_MAX_BYTES / 2;
        const size_t last  = std::min(begin + PFLASH_SPAN_MAX_BYTES, end - PFLASH_SPAN_MIN_BYTES);
        size_t best = 0;
        int    rank = 0;
        for (size_t i = last; i > first && rank < 6; i--) {
            const char c = text[i - 1], before = text[i - 2];
            const int found =
                c == '\n' ? 6 :
                c == ' ' && (before == '.' || before == '!' || before == '?') ? 5 :
                c == ',' && (before == '}' || before == ']') ? 4 :
                c == ';' || (c == '>' && text[i] == '<') ? 3 :
                c == ' ' || c == '\t' ? 2 :
                c == ',' ? 1 : 0;
            if (found > rank) {
                rank = found;
                best = i;
            }
        }
        return rank > 0 ? best : pflash_char_floor(text, last);
    }

    static bool fits(const piece & a, const piece & b) {
        return b.end - a.begin <= PFLASH_SPAN_MAX_BYTES;
    }

    bool is_short(const piece & p) const {
        size_t end = p.end;
        const size_t enough = p.begin + PFLASH_SPAN_MIN_BYTES;
        while (end > p.begin && pflash_is_blank(text[end - 1])) {
            end--;
        }
        return end < enough;
    }

    std::vector<pflash_range> joined() const {
        std::vector<piece> spans;
        // A short span that nothing joined goes to the one before it.
        const auto settle = [&] {
            const size_t n = spans.size();
            if (n > 1 && is_short(spans[n - 1]) && !spans[n - 1].heading && fits(spans[n - 2], spans[n - 1])) {
                spans[n - 2].end = spans[n - 1].end;
                spans.pop_back();
            }
        };
        const auto take = [&](const piece & p) {
            const bool is_crumb = is_short(p);
            if (!spans.empty() && fits(spans.back(), p)) {
                auto & last = spans.back();
                const bool joins = is_crumb && !p.leads && !p.starts && last.n_joined < MAX_JOINED_SHORT;
                if (last.leads || joins || (is_short(last) && !last.heading)) {
                    last.n_joined = last.leads ? 0 : last.n_joined + is_crumb;
                    last.leads    = p.leads;
                    last.heading  = p.heading && last.heading;
                    last.end      = p.end;
                    return;
                }
            }
            settle();
            spans.push_back(p);
        };
        for (piece p : pieces) {
            while (p.end - p.begin > PFLASH_SPAN_MAX_BYTES) {
                piece part = p;
                part.end = long_cut(p.begin, p.end);
                take(part);
                p.begin  = part.end;
                p.starts = false;
            }
            take(p);
        }
        settle();

        std::vector<pflash_range> ranges;
        ranges.reserve(spans.size());
        for (const auto & span : spans) {
            ranges.push_back({ span.begin, span.end });
        }
        return ranges;
    }
};

} // namespace

std::vector<pflash_range> pflash_spans(std::string_view text) {
    return span_cutter(text).cut();
}
