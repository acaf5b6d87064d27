#include "pflash-spans.h"
#include "pflash-chars.h"

#include <algorithm>
#include <unordered_set>

namespace {

constexpr size_t MAX_ABBREVIATION_BYTES = 24;

// Words that end in a dot within a sentence, folded. German, French, Spanish, Portuguese, Italian
// and Russian ones beside the English.
bool is_abbreviation(const std::string & word) {
    static const std::unordered_set<std::string> words = {
        "mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "cf", "fig", "figs", "eq", "sec", "no", "nos", "vol", "pp", "ed",
        "eds", "al", "approx", "dept", "est", "inc", "ltd", "co", "corp", "gen", "col", "capt", "lt", "sgt", "rev", "hon", "gov",
        "sen", "rep", "pres", "mt", "ave", "blvd", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov",
        "dec", "ca", "incl", "resp", "viz", "ph", "bzw", "evtl", "ggf", "nr", "abs", "art", "str", "vgl", "hr", "fr", "dipl", "ing",
        "inkl", "zzgl", "mme", "mlle", "mm", "av", "env", "sra", "srta", "ud", "uds", "pag", "num", "dra", "exmo", "sig", "dott", "ecc",
        "г", "ул", "им", "руб", "тыс", "млн", "млрд", "см", "рис", "стр", "гл", "проф",
    };
    return words.count(word) > 0;
}

bool is_unspaced_stop(uint32_t c) {
    return c == 0x3002 || c == 0xFF01 || c == 0xFF1F || c == 0xFF61 || c == 0xFF0E;
}

bool is_spaced_stop(uint32_t c) {
    switch (c) {
        case '.': case '!': case '?': case 0x2026: case 0x203C: case 0x2047: case 0x2049: case 0x61F: case 0x6D4:
        case 0x964: case 0x965: case 0x589: case 0x1362: case 0x17D4: return true;
        default: return false;
    }
}

bool is_closer(uint32_t c) {
    switch (c) {
        case '"': case '\'': case ')': case ']': case '}': case '*': case '_': case '`': case 0xAB: case 0xBB: case 0x2019: case 0x201C:
        case 0x201D: case 0x300B: case 0x3009: case 0x300D: case 0x300F: case 0x3011: case 0xFF09: case 0xFF3D: case 0xFF5D: return true;
        default: return false;
    }
}

// Whether the dot at `dot` belongs to the word before it: an abbreviation, an initial, an ordinal.
bool dot_of_word(std::string_view text, size_t begin, size_t dot) {
    size_t first = dot;
    while (first > begin) {
        const auto c = pflash_char_before(text, first);
        if (dot - first > MAX_ABBREVIATION_BYTES || !(pflash_is_word(c.code) || c.code == '.')) {
            break;
        }
        first -= c.size;
    }
    const std::string_view word = text.substr(first, dot - first);
    if (word.empty() || word.size() > MAX_ABBREVIATION_BYTES || word.back() == '.') {
        return false;
    }
    size_t letters = 0, digits = 0, longest = 0, n_characters = 0;
    for (size_t i = 0; i < word.size();) {
        const auto c = pflash_char_at(word, i);
        i += c.size;
        n_characters++;
        letters = c.code == '.' ? 0 : letters + 1;
        longest = std::max(longest, letters);
        digits += pflash_is_digit(c.code);
    }
    if (digits > 0) {
        return digits == n_characters && digits <= 2; // "3. Oktober", "1. item"
    }
    return longest == 1 || is_abbreviation(pflash_folded(word)); // "J.", "e.g.", "U.S."
}

} // namespace

size_t pflash_after_blanks(std::string_view text, size_t at, size_t end) {
    size_t after = at, line = 0;
    for (; after < end && pflash_is_blank(text[after]); after++) {
        if (text[after] == '\n') {
            line = after + 1;
        }
    }
    return line > 0 && after < end ? line : after;
}

void pflash_cut_sentences(std::string_view text, size_t begin, size_t end, std::vector<size_t> & cuts) {
    for (size_t i = begin; i < end;) {
        const auto c = pflash_char_at(text, i);
        const size_t stop = i;
        i += c.size;
        const bool unspaced = is_unspaced_stop(c.code);
        if (!unspaced && !is_spaced_stop(c.code)) {
            continue;
        }
        // the rest of "?!" and "...", then quotes and brackets that close
        while (i < end) {
            const auto next = pflash_char_at(text, i);
            if (!is_unspaced_stop(next.code) && !is_spaced_stop(next.code) && !is_closer(next.code)) {
                break;
            }
            i += next.size;
        }
        if (i >= end) {
            break;
        }
        const size_t after = pflash_after_blanks(text, i, end);
        if (after >= end) {
            break;
        }
        size_t next = after;
        while (next < end && pflash_is_blank(text[next])) {
            next++;
        }
        const auto follower = pflash_char_at(text, next);
        if (unspaced) {
            if (c.code == 0xFF0E && after == i && pflash_is_digit(pflash_fold(follower.code))) {
                continue;
            }
        } else if (next == i || pflash_is_lower(follower.code)) {
            continue;
        } else if (c.code == '.' && dot_of_word(text, begin, stop) && i == stop + 1) {
            continue;
        }
        cuts.push_back(after);
        i = after;
    }
    cuts.push_back(end);
}

static bool ends_paragraph(std::string_view span) {
    const size_t content = span.find_last_not_of(" \t\r\n");
    const auto   tail    = span.substr(content == std::string_view::npos ? 0 : content);
    return std::count(tail.begin(), tail.end(), '\n') > 1;
}

std::vector<uint32_t> pflash_paragraphs(std::string_view text, const std::vector<pflash_range> & spans) {
    std::vector<uint32_t> paragraphs;
    for (size_t s = 0; s < spans.size(); s++) {
        const bool starts = s > 0 && ends_paragraph(text.substr(spans[s - 1].begin, spans[s - 1].end - spans[s - 1].begin));
        paragraphs.push_back((s == 0 ? 0 : paragraphs.back()) + starts);
    }
    return paragraphs;
}

std::vector<uint8_t> pflash_leans(std::string_view text, const std::vector<pflash_range> & spans) {
    constexpr size_t SHORT_BYTES = 32;
    static const std::vector<std::string> words = [] {
        std::vector<std::string> folded;
        for (const char * word : {
            "it", "its", "he", "she", "they", "his", "her", "their", "them", "this", "that", "these", "those", "such", "both", "however",
            "therefore", "thus", "then", "also", "but", "and", "so", "because", "moreover", "furthermore", "meanwhile", "otherwise",
            "afterwards", "later", "instead", "the latter", "the former", "er", "sie", "es", "dies", "diese", "dieser", "dieses",
            "jedoch", "daher", "deshalb", "dann", "auch", "aber", "und", "denn", "dabei", "damit", "danach", "außerdem", "il", "elle",
            "ils", "elles", "ce", "cela", "cette", "ces", "celui", "mais", "donc", "alors", "ensuite", "cependant", "él", "ella",
            "ellos", "ellas", "este", "esta", "esto", "estos", "pero", "entonces", "luego", "también", "además", "ele", "ela", "eles",
            "isso", "isto", "mas", "então", "também", "lui", "lei", "loro", "questo", "questa", "ciò", "ma", "quindi", "poi", "inoltre",
            "он", "она", "оно", "они", "это", "этот", "эта", "но", "поэтому", "затем", "также", "однако" }) {
            folded.push_back(pflash_folded(word));
        }
        return folded;
    }();
    static const char * const unspaced[] = {
        "他", "她", "它", "这", "這", "那", "但", "因此", "所以", "然后", "此外", "これ", "それ", "この", "その", "彼", "しかし", "だから",
        "また", "そして", "그는", "그녀", "그것", "이것", "그러나", "그래서", "또한", "하지만" };

    std::vector<uint8_t> leans(spans.size(), 0);
    for (size_t s = 1; s < spans.size(); s++) {
        if (ends_paragraph(text.substr(spans[s - 1].begin, spans[s - 1].end - spans[s - 1].begin))) {
            continue;
        }
        auto span = text.substr(spans[s].begin, spans[s].end - spans[s].begin);
        while (!span.empty() && !pflash_is_word(pflash_char_at(span, 0).code)) {
            span.remove_prefix(pflash_char_at(span, 0).size);
        }
        while (!span.empty() && pflash_is_blank(span.back())) {
            span.remove_suffix(1);
        }
        const auto start = pflash_folded(span.substr(0, pflash_char_floor(span, 24)));
        leans[s] = span.size() < SHORT_BYTES ||
            std::any_of(words.begin(), words.end(), [&](const std::string & word) {
                return pflash_starts_with(start, word) && (start.size() == word.size() || !pflash_is_word(pflash_char_at(start, word.size()).code));
            }) ||
            std::any_of(std::begin(unspaced), std::end(unspaced), [&](const char * word) { return pflash_starts_with(span, word); });
    }
    return leans;
}
