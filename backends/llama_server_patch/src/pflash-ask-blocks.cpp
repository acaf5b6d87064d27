#include "pflash-ask-blocks.h"
#include "pflash-chars.h"

#include <algorithm>

// Searches for the end of a container run through the rest of the text, so there are few of them.
static constexpr size_t MAX_SEARCHES = 16;

pflash_range pflash_trimmed(std::string_view text, size_t begin, size_t end) {
    while (begin < end && pflash_is_blank(text[begin])) {
        begin++;
    }
    while (end > begin && pflash_is_blank(text[end - 1])) {
        end--;
    }
    return { begin, end };
}

static pflash_label tag_label(std::string_view line) {
    if (line[0] != '<') {
        return PFLASH_LABEL_NONE;
    }
    return pflash_label_of(std::string(line.substr(1, line.find_first_of(" >") - 1)) + ":");
}

static bool is_rule(std::string_view line) {
    return line.size() >= 3 && line.find_first_not_of(line[0]) == std::string_view::npos && std::string_view("-=*_#~").find(line[0]) != std::string_view::npos;
}

// The end of the container that the line at `begin` opens: a fence, or a tag that is closed. 0: it
// opens none.
static size_t container_end(std::string_view text, size_t begin, size_t line_end, size_t end, size_t & n_searches) {
    const auto line = text.substr(begin, line_end - begin);
    size_t from = line_end;
    std::string close;
    if (pflash_starts_with(line, "```") || pflash_starts_with(line, "~~~") || pflash_starts_with(line, "\"\"\"")) {
        close = "\n" + std::string(line.substr(0, 3));
    } else if (line.size() > 2 && line[0] == '<' && pflash_is_word((uint8_t) line[1])) {
        const size_t name = line.find_first_of(" >/", 1);
        if (name == std::string_view::npos || line[name] == '/') {
            return 0;
        }
        close = "</" + std::string(line.substr(1, name - 1)) + ">";
        from  = begin + name;
    } else {
        return 0;
    }
    if (n_searches++ >= MAX_SEARCHES) {
        return 0;
    }
    const size_t found = text.find(close, from);
    return found == std::string_view::npos || found + close.size() > end ? 0 : found + close.size();
}

std::vector<pflash_ask_block> pflash_ask_blocks(std::string_view text, size_t begin, size_t end) {
    std::vector<pflash_ask_block> blocks;
    size_t n_searches = 0;
    bool   open = false; // the last block goes on
    for (size_t at = begin; at < end;) {
        const size_t next = std::min(end, std::min(text.find('\n', at), end - 1) + 1);
        const auto range = pflash_trimmed(text, at, next);
        const auto line  = text.substr(range.begin, range.end - range.begin);
        if (line.empty()) {
            open = false;
        } else if (const size_t closed = container_end(text, range.begin, range.end, end, n_searches)) {
            blocks.push_back({ range.begin, closed, PFLASH_BLOCK_CONTAINER, tag_label(line) });
            open = false;
            at = closed;
            continue;
        } else if (is_rule(line)) {
            blocks.push_back({ range.begin, range.end, PFLASH_BLOCK_RULE });
            open = false;
        } else {
            const auto label = pflash_label_of(line);
            if (!open || label != PFLASH_LABEL_NONE) {
                blocks.push_back({ range.begin, range.end, PFLASH_BLOCK_TEXT, label });
            } else {
                blocks.back().end = range.end;
            }
            open = true;
        }
        at = next;
    }
    return blocks;
}
