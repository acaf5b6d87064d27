#include "pflash-scorer-text.h"

#include "pflash-chars.h"

#include <algorithm>
#include <cstdint>
#include <string>

static constexpr size_t PIECE_BYTES       = 4096;
static constexpr size_t SMOOTHED_TOKENS   = 17;
static constexpr size_t CUT_SEARCH_TOKENS = 64; // how far back a window looks for the end of a line or sentence
static constexpr size_t WORD_BYTES        = 32; // a piece this short is not cut further to find its tokens' places;
                                               // nor may a vocabulary lack more bytes in a row

// Bytes of the well-formed character at the start of `text`; 0 if there is none.
// Source: table 3-7 of the Unicode standard.
static size_t character_size(std::string_view text) {
    const auto byte = [&](size_t i) { return i < text.size() ? (uint8_t) text[i] : (uint8_t) 0; };
    const uint8_t lead = byte(0);
    if (lead < 0x80) {
        return 1;
    }
    const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || text.size() < size) {
        return 0;
    }
    const uint8_t low  = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(1) < low || byte(1) > high) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if (!pflash_is_continuation(text[i])) {
            return 0;
        }
    }
    return size;
}

// As long as `bytes`, so that offsets stay true.
static std::string readable(std::string_view bytes) {
    std::string result(bytes);
    for (size_t i = 0; i < result.size();) {
        const size_t size = result[i] == '\0' ? 0 : character_size(bytes.substr(i));
        if (size == 0) {
            result[i] = '?';
        }
        i += std::max<size_t>(1, size);
    }
    return result;
}

// Where to cut `text` so that the first part has at most `limit` bytes: after its last line end, else
// before its last blank (most vocabularies join a blank to the word that follows), else between
// characters.
static size_t cut(std::string_view text, size_t limit) {
    if (text.size() <= limit) {
        return text.size();
    }
    const std::string_view head = text.substr(0, limit);
    const size_t line = head.rfind('\n');
    if (line != std::string_view::npos) {
        return line + 1;
    }
    const size_t blank = head.rfind(' ');
    if (blank != std::string_view::npos && blank > 0) {
        return blank;
    }
    size_t end = limit;
    while (end > 0 && limit - end < 3 && pflash_is_continuation(text[end])) {
        end--;
    }
    return pflash_is_continuation(text[end]) || end == 0 ? limit : end;
}

static std::vector<llama_token> tokens_of(const llama_vocab * vocab, std::string_view text) {
    std::vector<llama_token> tokens(text.size() + 8);
    for (int attempt = 0; attempt < 2; attempt++) {
        const int32_t n = llama_tokenize(vocab, text.data(), (int32_t) text.size(), tokens.data(), (int32_t) tokens.size(), false, false);
        if (n >= 0) {
            tokens.resize(n);
            return tokens;
        }
        tokens.resize((size_t) -(int64_t) n);
    }
    return {};
}

static std::string bytes_of(const llama_vocab * vocab, llama_token token) {
    std::string bytes(64, '\0');
    int32_t n = llama_token_to_piece(vocab, token, bytes.data(), (int32_t) bytes.size(), 0, true);
    if (n < 0) {
        bytes.resize(-n);
        n = llama_token_to_piece(vocab, token, bytes.data(), (int32_t) bytes.size(), 0, true);
    }
    bytes.resize(std::max(0, n));
    return bytes;
}

// Offsets from the tokens' own bytes, where these give `text` again but for a few bytes that the
// vocabulary lacks. Some vocabularies change more (lower case, other blanks): then shorter parts are
// tried, and the tokens of a changed word end with the word.
static void append(const llama_vocab * vocab, std::string_view text, size_t offset, pflash_text_tokens & result) {
    const auto tokens = tokens_of(vocab, text);
    std::vector<size_t> ends;
    size_t end = 0;
    for (const llama_token token : tokens) {
        std::string bytes = bytes_of(vocab, token);
        if (ends.empty() && !bytes.empty() && bytes[0] == ' ' && text[0] != ' ') {
            bytes.erase(0, 1); // the blank that some vocabularies put before a text
        }
        const size_t skipped = text.substr(end, WORD_BYTES + bytes.size()).find(bytes);
        if (skipped == std::string_view::npos) {
            break;
        }
        end += skipped + bytes.size();
        ends.push_back(offset + end);
    }
    if (text.size() - end > WORD_BYTES || ends.size() != tokens.size()) {
        if (text.size() > WORD_BYTES) {
            const size_t half = cut(text, text.size()/2);
            append(vocab, text.substr(0, half), offset, result);
            append(vocab, text.substr(half), offset + half, result);
            return;
        }
        ends.assign(tokens.size(), offset + text.size());
    }
    result.id.insert(result.id.end(), tokens.begin(), tokens.end());
    result.end.insert(result.end.end(), ends.begin(), ends.end());
}

pflash_text_tokens pflash_tokenize(const llama_vocab * vocab, std::string_view text, const std::function<void()> & check) {
    pflash_text_tokens result;
    for (size_t offset = 0; offset < text.size();) {
        check();
        const size_t size = cut(text.substr(offset), PIECE_BYTES);
        append(vocab, readable(text.substr(offset, size)), offset, result);
        offset += size;
    }
    if (!result.end.empty()) {
        result.end.back() = text.size();
    }
    return result;
}

// Whether a line or sentence ends before byte `end`.
static bool ends_part(std::string_view text, size_t end) {
    const std::string_view head = text.substr(0, end);
    const auto ends_with = [&](std::string_view mark) {
        return head.size() >= mark.size() && head.substr(head.size() - mark.size()) == mark;
    };
    if (ends_with("\n") || ends_with("。") || ends_with("！") || ends_with("？")) {
        return true;
    }
    const bool blank_follows = end >= text.size() || text[end] == ' ' || text[end] == '\n' || text[end] == '\r';
    return blank_follows && (ends_with(".") || ends_with("!") || ends_with("?"));
}

std::vector<float> pflash_smoothed(std::string_view text, const pflash_text_tokens & tokens, const std::vector<float> & raw) {
    const size_t half = SMOOTHED_TOKENS/2;
    std::vector<float>  result(raw.size());
    std::vector<double> sums;
    for (size_t begin = 0; begin < raw.size();) {
        size_t end = begin;
        sums.assign(1, 0.0);
        do {
            sums.push_back(sums.back() + raw[end++]);
        } while (end < raw.size() && !ends_part(text, tokens.end[end - 1]));
        const size_t n = end - begin;
        for (size_t i = 0; i < n; i++) {
            const size_t first = i > half ? i - half : 0;
            const size_t last  = std::min(n, i + half + 1);
            result[begin + i] = (float) ((sums[last] - sums[first])/(double) (last - first));
        }
        begin = end;
    }
    return result;
}

size_t pflash_window_end(std::string_view text, const pflash_text_tokens & tokens, size_t begin, size_t window) {
    const size_t left = tokens.id.size() - begin;
    if (left <= window) {
        return tokens.id.size();
    }
    const size_t n_windows = (left + window - 1)/window;
    const size_t end  = std::min(begin + window, begin + (left + n_windows - 1)/n_windows + CUT_SEARCH_TOKENS/2);
    const size_t stop = end - std::min<size_t>(end - begin - 1, CUT_SEARCH_TOKENS);
    for (size_t i = end; i > stop; i--) {
        if (ends_part(text, tokens.end[i - 1])) {
            return i;
        }
    }
    return end;
}
