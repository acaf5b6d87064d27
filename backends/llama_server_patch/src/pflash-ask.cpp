#include "pflash-spans.h"
#include "pflash-ask-blocks.h"
#include "pflash-chars.h"

#include <algorithm>

namespace {

constexpr size_t MAX_ASK_BYTES      = 1500; // at each end
constexpr size_t SHORT_BYTES        = 300;  // a paragraph that may be an ask without other signs
constexpr size_t WHOLE_BYTES        = 600;  // a message that is nothing but an ask
constexpr size_t MANY_BYTES         = 600;  // a paragraph of several sentences that may be mostly document
constexpr size_t MATERIAL_BYTES     = 120;  // so much beside an ask's own lines is no part of it
constexpr size_t COURTESY_BYTES     = 80;   // "Hello,", "Thanks!", a name
constexpr size_t MAX_CONTAINERS     = 8;    // more of them are the document's own
constexpr int    ENOUGH             = 3;    // score of an ask
constexpr int    CLEAR              = 5;    // score that makes a weak ask at the other end doubtful
constexpr int    NEVER              = -100;

bool is_question_mark(uint32_t code) {
    return code == '?' || code == 0xFF1F || code == 0x61F || code == 0x37E;
}

class ask_finder {
public:
    bool guessed = false;

    explicit ask_finder(std::string_view text) : text(text) {}

    std::vector<pflash_range> find() {
        const auto whole = trimmed(0, text.size());
        if (whole.begin == whole.end) {
            return {};
        }
        if (whole.end - whole.begin <= WHOLE_BYTES) {
            return { whole };
        }
        blocks = pflash_ask_blocks(text, whole.begin, whole.end);
        count_questions();
        if (around_containers()) {
            return result();
        }
        const int head_score = find_head(), tail_score = find_tail();
        // A document's first words may look like a weak ask, its last ones rarely do.
        if (tail_score >= CLEAR && head_score <= ENOUGH) {
            head = {};
        }
        if (head_score >= CLEAR && tail_score <= ENOUGH) {
            tail = {};
        }
        if (head.end == 0 && tail.end == 0) {
            guess();
        }
        return result();
    }

private:
    std::string_view   text;
    std::vector<pflash_ask_block> blocks;
    pflash_range head, tail; // end 0: none
    bool many_questions = false;

    pflash_range trimmed(size_t begin, size_t end) const { return pflash_trimmed(text, begin, end); }

    std::string_view of(size_t begin, size_t end) const { return text.substr(begin, end - begin); }

    std::vector<pflash_range> result() const {
        std::vector<pflash_range> ranges;
        if (head.end > 0) {
            ranges.push_back(head);
        }
        if (tail.end > 0 && tail.begin < head.end) {
            ranges.back().end = std::max(head.end, tail.end);
        } else if (tail.end > 0) {
            ranges.push_back(tail);
        }
        return ranges;
    }

    // Questions all over a text are the document's (a list of questions and answers, an interview).
    void count_questions() {
        size_t n = 0, n_text = 0;
        for (size_t b = 2; b + 2 < blocks.size(); b++) {
            n_text += blocks[b].kind == PFLASH_BLOCK_TEXT;
            n += blocks[b].kind == PFLASH_BLOCK_TEXT && ends_asking(blocks[b].begin, blocks[b].end);
        }
        many_questions = n >= 3 && 6 * n >= n_text;
    }

    // A message that is mostly fenced or tagged text: what is around it is the ask.
    bool around_containers() {
        size_t n = 0, bytes = 0, first = blocks.size(), last = 0;
        for (size_t b = 0; b < blocks.size(); b++) {
            if (blocks[b].kind == PFLASH_BLOCK_CONTAINER && blocks[b].label != PFLASH_LABEL_ASK) {
                n++;
                bytes += blocks[b].size();
                first = std::min(first, b);
                last  = b;
            }
        }
        if (n == 0 || n > MAX_CONTAINERS || 2 * bytes < text.size()) {
            return false;
        }
        const auto before = trimmed(blocks[0].begin, blocks[first].begin);
        const auto after  = trimmed(blocks[last].end, blocks.back().end);
        if (before.end > before.begin && before.end - before.begin <= MAX_ASK_BYTES) {
            head = before;
        }
        if (after.end > after.begin && after.end - after.begin <= MAX_ASK_BYTES) {
            tail = after;
        }
        return head.end > 0 || tail.end > 0;
    }

    //
    // evidence
    //

    bool ends_asking(size_t begin, size_t end) const {
        for (int i = 0; i < 4 && end > begin; i++) {
            const auto last = pflash_char_before(text, end);
            if (is_question_mark(last.code)) {
                return true;
            }
            if (pflash_is_word(last.code)) {
                return false;
            }
            end -= last.size;
        }
        return false;
    }

    int score(size_t begin, size_t end, pflash_label label, bool beside_structure) const {
        if (label == PFLASH_LABEL_DOCUMENT || end - begin > MAX_ASK_BYTES) {
            return NEVER;
        }
        if (label == PFLASH_LABEL_ASK) {
            return 2 * CLEAR;
        }
        const auto words = of(begin, end);
        std::vector<size_t> cuts;
        pflash_cut_sentences(text, begin, end, cuts);
        bool requests = false, asks = false, opens = false;
        size_t from = begin;
        for (size_t cut : cuts) {
            const auto sentence = trimmed(from, cut);
            const bool asking = ends_asking(sentence.begin, sentence.end);
            requests |= pflash_opens_request(of(sentence.begin, sentence.end));
            opens    |= asking && pflash_opens_question(of(sentence.begin, sentence.end));
            asks     |= asking;
            from = cut;
        }
        const bool first = pflash_opens_request(words);
        int value = 0;
        value += first ? 3 : requests ? 2 : 0;
        value += !asks ? 0 : many_questions ? 1 : ends_asking(begin, end) ? 3 : 2;
        value += opens && !many_questions;
        value += pflash_points_at_text(words);
        value += text[end - 1] == ':' || (end >= 3 && of(end - 3, end) == "：");
        value += beside_structure ? 2 : 0;
        value += end - begin <= SHORT_BYTES ? 1 : end - begin > MANY_BYTES && !asks ? -1 : 0;
        return value;
    }

    int score(size_t b) const {
        if (blocks[b].kind != PFLASH_BLOCK_TEXT) {
            return blocks[b].label == PFLASH_LABEL_ASK && blocks[b].size() <= MAX_ASK_BYTES ? 2 * CLEAR : NEVER;
        }
        const auto parts = [&](size_t other) {
            return blocks[other].kind == PFLASH_BLOCK_RULE || (blocks[other].kind == PFLASH_BLOCK_CONTAINER && blocks[other].size() > SHORT_BYTES);
        };
        const bool before = b < 3 && b + 1 < blocks.size() && (parts(b + 1) || blocks[b + 1].label == PFLASH_LABEL_DOCUMENT);
        const bool after  = b + 3 >= blocks.size() && b > 0 && parts(b - 1);
        return score(blocks[b].begin, blocks[b].end, blocks[b].label, before || after);
    }

    //
    // the two ends; each answers with its score, 0 for none
    //

    int find_head() {
        size_t b = 0;
        int best = score(0), value = 0;
        if (best < ENOUGH && blocks[0].size() <= COURTESY_BYTES && blocks.size() > 2 && score(1) > ENOUGH) {
            best = score(++b); // a greeting comes first
        }
        if (best < ENOUGH) {
            if (blocks[0].kind == PFLASH_BLOCK_TEXT && blocks[0].label != PFLASH_LABEL_DOCUMENT) {
                const auto part = first_part(blocks[0], value);
                head = value > 0 ? part : head;
            }
            return value;
        }
        while (b + 1 < blocks.size() && blocks[b + 1].end - blocks[0].begin <= MAX_ASK_BYTES && score(b + 1) >= ENOUGH) {
            best = std::max(best, score(++b));
        }
        head = { blocks[0].begin, blocks[b].end };
        if (may_be_mixed(blocks[b])) {
            const auto part = first_part(blocks[b], value);
            if (value > 0 && part.end + MATERIAL_BYTES < head.end) {
                head.end = part.end;
            }
        }
        return best;
    }

    // A paragraph that qualifies, but in which lines of the document may stand beside the ask's.
    bool may_be_mixed(const pflash_ask_block & b) const {
        return b.kind == PFLASH_BLOCK_TEXT && b.label == PFLASH_LABEL_NONE && (b.size() > MANY_BYTES || of(b.begin, b.end).find('\n') != std::string_view::npos);
    }

    // A question on the first line, or in the first sentence, of a paragraph. `best`: its score or 0.
    pflash_range first_part(const pflash_ask_block & b, int & best) const {
        best = 0;
        std::vector<size_t> ends = { std::min(text.find('\n', b.begin), b.end) };
        const size_t window = pflash_char_floor(text, std::min(b.end, b.begin + 2 * MAX_ASK_BYTES));
        pflash_cut_sentences(text, b.begin, window, ends);
        for (size_t i = 0; i < std::min<size_t>(2, ends.size()); i++) {
            auto part = trimmed(b.begin, ends[i]);
            const int value = part.end < b.end ? score(part.begin, part.end, b.label, false) : 0;
            if (value < ENOUGH) {
                continue;
            }
            for (size_t j = std::max<size_t>(i + 1, 2); j < ends.size() && ends[j] > part.end && ends[j] - b.begin <= MAX_ASK_BYTES; j++) {
                const auto more = trimmed(part.end, ends[j]);
                if (more.end >= b.end || score(more.begin, more.end, PFLASH_LABEL_NONE, false) < ENOUGH) {
                    break;
                }
                part.end = more.end;
            }
            best = value;
            return part;
        }
        return {};
    }

    int find_tail() {
        const size_t n = blocks.size(), end = blocks.back().end;
        // everything behind the last label that announces the ask
        for (size_t b = n; b-- > 0 && end - blocks[b].begin <= MAX_ASK_BYTES;) {
            if (blocks[b].label == PFLASH_LABEL_ASK && (b > 0 || n == 1)) {
                tail = { blocks[b].begin, end };
                return 2 * CLEAR;
            }
        }
        // thanks, a name, "Answer:" may follow it
        size_t b = n - 1;
        for (size_t back = 0; back < std::min<size_t>(3, n); back++) {
            const auto & last = blocks[n - 1 - back];
            if (score(n - 1 - back) >= ENOUGH + (back > 0)) {
                b = n - 1 - back;
                break;
            }
            if (last.kind != PFLASH_BLOCK_TEXT || last.size() > COURTESY_BYTES) {
                break;
            }
        }
        int best = score(b), value = 0;
        if (best < ENOUGH) {
            if (blocks[b].kind == PFLASH_BLOCK_TEXT) {
                const size_t begin = last_part(blocks[b], end, value);
                tail = value > 0 ? pflash_range { begin, end } : tail;
            }
            return value;
        }
        while (b > 0 && end - blocks[b - 1].begin <= MAX_ASK_BYTES && blocks[b - 1].kind == PFLASH_BLOCK_TEXT && score(b - 1) >= ENOUGH) {
            best = std::max(best, score(--b));
        }
        tail = { blocks[b].begin, end };
        if (may_be_mixed(blocks[b])) {
            const size_t begin = last_part(blocks[b], end, value);
            if (value > 0 && begin > tail.begin + MATERIAL_BYTES) {
                tail.begin = begin;
            }
        }
        return best;
    }

    // Of sentences, and of lines that do not go on with the sentence of the line before.
    std::vector<size_t> part_starts(size_t begin, size_t end) const {
        std::vector<size_t> cuts, starts = { begin };
        pflash_cut_sentences(text, begin, end, cuts);
        for (size_t cut : cuts) {
            for (size_t at = starts.back(); at + 1 < cut; at++) {
                if (text[at] == '\n' && !pflash_is_lower(pflash_char_at(text, at + 1).code)) {
                    starts.push_back(at + 1);
                }
            }
            starts.push_back(cut);
        }
        starts.pop_back();
        return starts;
    }

    // Where a question on the last lines, or in the last sentences, of a paragraph begins. `best`: its
    // score or 0.
    size_t last_part(const pflash_ask_block & b, size_t end, int & best) const {
        const size_t window = std::max(b.begin, b.end > 2 * MAX_ASK_BYTES ? pflash_char_floor(text, b.end - 2 * MAX_ASK_BYTES) : 0);
        const auto starts = part_starts(window, b.end);
        size_t part_end = b.end, first = 0;
        best = 0;
        for (size_t i = starts.size(); i-- > 0 && end - starts[i] <= MAX_ASK_BYTES;) {
            const auto part = trimmed(starts[i], part_end);
            const int value = part.end > part.begin && part.begin > b.begin ? score(part.begin, part.end, PFLASH_LABEL_NONE, false) : 0;
            if (value < ENOUGH) {
                break;
            }
            best     = std::max(best, value);
            first    = part.begin;
            part_end = starts[i];
        }
        return first;
    }

    // Nothing tells: the last paragraph if it is short, or the last two sentences; a short first one.
    void guess() {
        guessed = true;
        const auto & last = blocks.back();
        const auto & first = blocks.front();
        if (last.kind == PFLASH_BLOCK_TEXT && last.size() <= SHORT_BYTES) {
            tail = { last.begin, last.end };
        } else {
            const size_t window = last.end > 2 * MAX_ASK_BYTES ? pflash_char_floor(text, last.end - 2 * MAX_ASK_BYTES) : 0;
            const size_t begin  = std::max(last.begin, window);
            const auto spans = pflash_spans(of(begin, last.end));
            tail = trimmed(begin + spans[spans.size() - std::min<size_t>(2, spans.size())].begin, last.end);
        }
        if (blocks.size() > 1 && first.kind == PFLASH_BLOCK_TEXT && first.size() <= SHORT_BYTES) {
            head = { first.begin, first.end };
        }
    }
};

} // namespace

std::vector<pflash_range> pflash_find_ask(std::string_view message, bool * guessed) {
    ask_finder finder(message);
    auto ranges = finder.find();
    if (guessed) {
        *guessed = finder.guessed;
    }
    return ranges;
}
