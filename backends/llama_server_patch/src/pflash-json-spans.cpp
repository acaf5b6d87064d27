#include "pflash-spans.h"
#include "pflash-chars.h"

#include <algorithm>

namespace {

constexpr size_t ATOM_BYTES        = 160; // a container this small is one item whatever it holds
constexpr size_t SCALAR_RUN_BYTES  = 120; // scalars of a long array are taken together
constexpr size_t MAX_DEPTH         = 64;  // what is nested deeper belongs to its ancestor there
constexpr size_t BROKEN_MIN_COMMAS = 4;   // so many items make broken JSON still JSON

struct container {
    size_t   begin;
    size_t   end;
    uint32_t parent;
    bool     object;
    bool     nests;  // holds another container
    bool     whole;  // is one item, or lies in one
};

struct comma {
    size_t   at; // behind it and its blanks
    uint32_t owner;
    bool     in_scalars;
};

// A JSON reader that remembers where containers and commas are, and stops where JSON stops.
class json_reader {
public:
    json_reader(std::string_view text, size_t begin) : text(text), at(begin) {}

    // False where the text breaks the grammar or ends within a value.
    bool read() {
        while (true) {
            skip_blanks();
            if (at >= text.size() || !read_value()) {
                return false;
            }
            if (stack.empty()) {
                return true;
            }
        }
    }

    std::string_view text;
    size_t at;
    std::vector<container> containers;
    std::vector<comma>     commas;

private:
    struct level {
        uint32_t owner;
        bool     object;
        bool     owns;
    };

    std::vector<level> stack;

    void skip_blanks() {
        while (at < text.size() && pflash_is_blank(text[at])) {
            at++;
        }
    }

    // One value or the start of one; then everything up to the place of the next value.
    bool read_value() {
        const char c = text[at];
        if (c == '{' || c == '[') {
            open(c == '{');
            skip_blanks();
            const char close = c == '{' ? '}' : ']';
            if (at < text.size() && text[at] == close) {
                return close_levels();
            }
            return c == '[' || read_key();
        }
        const size_t begin = at;
        if (c == '"' ? !read_string() : !read_scalar()) {
            at = begin;
            return false;
        }
        return close_levels(true);
    }

    // Closing brackets, then a comma and the next key where more is to come.
    bool close_levels(bool scalar = false) {
        while (!stack.empty()) {
            skip_blanks();
            if (at >= text.size()) {
                return false;
            }
            const level top = stack.back();
            if (text[at] == (top.object ? '}' : ']')) {
                at++;
                stack.pop_back();
                if (top.owns) {
                    containers[top.owner].end = at;
                }
                scalar = false;
                continue;
            }
            if (text[at] != ',') {
                return false;
            }
            at++;
            commas.push_back({ pflash_after_blanks(text, at, text.size()), top.owner, scalar && !top.object });
            return !top.object || read_key();
        }
        return true;
    }

    void open(bool object) {
        const bool owns = stack.size() < MAX_DEPTH;
        if (!stack.empty()) {
            containers[stack.back().owner].nests = true;
        }
        if (owns) {
            const uint32_t parent = stack.empty() ? 0 : stack.back().owner;
            containers.push_back({ at, text.size(), parent, object, false, false });
        }
        stack.push_back({ owns ? (uint32_t) containers.size() - 1 : stack.back().owner, object, owns });
        at++;
    }

    bool read_key() {
        skip_blanks();
        if (at >= text.size() || text[at] != '"' || !read_string()) {
            return false;
        }
        skip_blanks();
        if (at >= text.size() || text[at] != ':') {
            return false;
        }
        at++;
        return true;
    }

    bool read_string() {
        for (at++; at < text.size() && text[at] != '\n'; at++) {
            if (text[at] == '\\') {
                at++;
            } else if (text[at] == '"') {
                at++;
                return true;
            }
        }
        at = std::min(at, text.size());
        return false;
    }

    bool read_scalar() {
        for (const char * name : { "true", "false", "null", "NaN" }) {
            if (pflash_starts_with(text.substr(at), name)) {
                at += std::string_view(name).size();
                return true;
            }
        }
        const size_t begin = at;
        while (at < text.size() && (pflash_is_digit((uint8_t) text[at]) || std::string_view("+-.eE").find(text[at]) != std::string_view::npos)) {
            at++;
        }
        return at > begin;
    }
};

} // namespace

pflash_json_cuts pflash_cut_json(std::string_view text, size_t begin) {
    json_reader reader(text, begin);
    const bool whole = reader.read();

    pflash_json_cuts result;
    result.end = std::max(reader.at, begin + 1);
    if (whole) {
        // the end of an enclosing array of which the beginning is missing
        size_t end = reader.at;
        while (end < text.size() && text[end] != '\n' && (pflash_is_blank(text[end]) || std::string_view(",;]}").find(text[end]) != std::string_view::npos)) {
            end++;
        }
        const bool ends_line = end >= text.size() || text[end] == '\n';
        if (!ends_line && reader.at - begin <= PFLASH_SPAN_MAX_BYTES) {
            return result; // a bracketed word of some other text
        }
        result.end = ends_line ? std::min(end + 1, text.size()) : reader.at;
    } else {
        if (reader.commas.size() < BROKEN_MIN_COMMAS) {
            return result;
        }
        result.end = reader.at >= text.size() ? text.size() : reader.commas.back().at;
    }
    result.found = true;

    for (size_t i = 0; i < reader.containers.size(); i++) {
        auto & c = reader.containers[i];
        const size_t size = c.end - c.begin;
        c.whole = size <= ATOM_BYTES || (c.object && !c.nests && size <= PFLASH_SPAN_MAX_BYTES) || (i > 0 && reader.containers[c.parent].whole);
    }
    size_t last = begin;
    for (const auto & c : reader.commas) {
        if (reader.containers[c.owner].whole || c.at >= result.end || (c.in_scalars && c.at - last < SCALAR_RUN_BYTES)) {
            continue;
        }
        result.cuts.push_back(c.at);
        last = c.at;
    }
    result.cuts.push_back(result.end);
    return result;
}
