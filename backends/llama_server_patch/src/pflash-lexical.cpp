#include "pflash-text.h"
#include "pflash-chars.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace {

constexpr size_t MAX_STEM_BYTES = 32;

uint64_t hash_of(std::string_view term) {
    uint64_t hash = 0xCBF29CE484222325u; // FNV-1a
    for (char c : term) {
        hash = (hash ^ (uint8_t) c) * 0x100000001B3u;
    }
    return hash;
}

bool ends_with(std::string_view word, std::string_view end) {
    return word.size() >= end.size() && word.substr(word.size() - end.size()) == end;
}

// Plural, past and -ing endings of English, the plural -s of Romance languages. What is left need
// be no word: it is only compared with other stems.
std::string_view stem(std::string & word) {
    std::string_view w = word;
    const bool latin = std::all_of(w.begin(), w.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (!latin || w.size() < 4 || w.size() > MAX_STEM_BYTES) {
        return w;
    }
    if (ends_with(w, "s") && !ends_with(w, "ss") && !ends_with(w, "us") && !ends_with(w, "is")) {
        const bool sibilant = ends_with(w, "xes") || ends_with(w, "ches") || ends_with(w, "shes") || ends_with(w, "sses");
        w.remove_suffix(sibilant ? 2 : 1);
    }
    const size_t before = w.size();
    if (ends_with(w, "ed")) {
        w.remove_suffix(w.size() >= 6 ? 2 : 1);
    } else if (ends_with(w, "ing") && w.size() >= 7) {
        w.remove_suffix(3);
    }
    const size_t n = w.size();
    if (n < before && n > 4 && w[n - 1] == w[n - 2] && std::string_view("lsz").find(w[n - 1]) == std::string_view::npos) {
        w.remove_suffix(1); // "stopped"
    }
    if (w.size() > 4 && w.back() == 'e') {
        w.remove_suffix(1);
    }
    if (w.size() > 3 && w.back() == 'y') {
        word[w.size() - 1] = 'i';
    }
    return w;
}

// Calls `take(hash, counts)` for each term; `counts` is false for one that repeats others.
template <typename F>
class term_reader {
public:
    term_reader(std::string_view text, F & take) : text(text), take(take) {}

    void read() {
        for (size_t i = 0; i < text.size();) {
            const auto c = pflash_char_at(text, i);
            const size_t next = i + c.size;
            const uint32_t code = pflash_fold(c.code);
            if (code == 0) {
                i = next; // a combining accent
                continue;
            }
            if (pflash_is_unspaced(code)) {
                end_whole();
                i = read_unspaced(i);
                continue;
            }
            if (pflash_is_word(code)) {
                const bool upper = pflash_is_upper(c.code);
                if (upper && !part.empty() && (!last_upper || followed_by_lower(next))) {
                    end_part();
                }
                pflash_append(part, code);
                pflash_append(whole, code);
                last_upper = upper;
            } else if (!part.empty() && std::string_view("_.-/@:").find((char) c.code) != std::string_view::npos && c.code < 0x80 &&
                    next < text.size() && pflash_is_word(pflash_char_at(text, next).code)) {
                end_part();
                whole += (char) c.code;
            } else {
                end_whole();
            }
            i = next;
        }
        end_whole();
    }

private:
    std::string_view text;
    F & take;
    std::string part, whole;
    size_t n_parts    = 0;
    bool   last_upper = true; // no part begins before a word's first capital

    bool followed_by_lower(size_t at) const {
        return at < text.size() && pflash_is_lower(pflash_char_at(text, at).code);
    }

    void end_part() {
        if (!part.empty()) {
            take(hash_of(stem(part)), true);
            part.clear();
            n_parts++;
        }
        last_upper = true;
    }

    void end_whole() {
        end_part();
        if (n_parts > 1) {
            take(hash_of(stem(whole)), false);
        }
        whole.clear();
        n_parts = 0;
    }

    // Bigrams, and the Han characters, which are words of their own.
    size_t read_unspaced(size_t i) {
        const size_t begin = i;
        size_t last = text.size();
        while (i < text.size()) {
            const auto c = pflash_char_at(text, i);
            if (!pflash_is_unspaced(c.code)) {
                break;
            }
            if (last != text.size()) {
                take(hash_of(text.substr(last, i + c.size - last)), true);
            }
            if (pflash_is_han(c.code)) {
                take(hash_of(text.substr(i, c.size)), false);
            }
            last = i;
            i += c.size;
        }
        if (last == begin) {
            take(hash_of(text.substr(begin, i - begin)), true);
        }
        return i;
    }
};

template <typename F>
void read_terms(std::string_view text, F take) {
    term_reader<F>(text, take).read();
}

} // namespace

std::vector<float> pflash_bm25(std::string_view text, const std::vector<pflash_range> & spans, std::string_view question) {
    constexpr double K1 = 1.2, B = 0.75;

    std::unordered_map<uint64_t, uint32_t> terms;
    read_terms(question, [&](uint64_t hash, bool) { terms.emplace(hash, (uint32_t) terms.size()); });

    struct hit {
        uint32_t span, term, count;
    };
    std::vector<hit>      hits; // by span
    std::vector<uint32_t> lengths(spans.size(), 0), holders(terms.size(), 0), counts(terms.size(), 0), found;
    double total = 0.0;
    for (size_t s = 0; s < spans.size(); s++) {
        found.clear();
        read_terms(text.substr(spans[s].begin, spans[s].end - spans[s].begin), [&](uint64_t hash, bool length) {
            lengths[s] += length;
            const auto term = terms.find(hash);
            if (term != terms.end() && counts[term->second]++ == 0) {
                found.push_back(term->second);
            }
        });
        for (uint32_t t : found) {
            hits.push_back({ (uint32_t) s, t, counts[t] });
            holders[t]++;
            counts[t] = 0;
        }
        total += lengths[s];
    }
    const double average = std::max(1.0, total / std::max<size_t>(1, spans.size()));
    std::vector<float> scores(spans.size(), 0.0f);
    for (const auto & h : hits) {
        const double idf  = std::log(1.0 + (spans.size() - holders[h.term] + 0.5) / (holders[h.term] + 0.5));
        const double norm = K1 * (1.0 - B + B * lengths[h.span] / average);
        scores[h.span] += (float) (idf * h.count * (K1 + 1.0) / (h.count + norm));
    }
    return scores;
}
