// What is recalled is dropped text that asks for it, in order, within the budget. Exits non-zero at the
// first breach.

#include "pflash-recall.h"

#include <cstdio>
#include <cstdlib>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); std::exit(1); } } while (0)

// one token per word, with the blank before it
static pflash_segment segment_of(size_t begin, const std::string & text, const std::string & ask) {
    pflash_segment segment;
    segment.begin = begin;
    segment.text  = text;
    segment.ask   = ask;
    for (size_t i = 1; i <= text.size(); i++) {
        if (i == text.size() || text[i] == ' ') {
            segment.token_end.push_back(i);
        }
    }
    segment.end = begin + segment.token_end.size();
    return segment;
}

static std::string said(const pflash_prompt & prompt, const std::vector<pflash_range> & ranges) {
    std::string text;
    const auto & first = prompt.segments[0];
    for (const auto & range : ranges) {
        const size_t b = range.begin - first.begin;
        const size_t e = range.end   - first.begin;
        text += first.text.substr(b == 0 ? 0 : first.token_end[b - 1], first.token_end[e - 1] - (b == 0 ? 0 : first.token_end[b - 1])) + "|";
    }
    return text;
}

int main() {
    const std::string document =
        "The mill burned down in the dry summer of that year. "
        "Ottilie moved the archive to the old customs house. "
        "Nobody saw the ferry leave before the morning bell. "
        "The pump was serviced under order number 7731-22 in May. "
        "A choir sang in the square until it began to rain.";
    pflash_prompt prompt;
    prompt.segments.push_back(segment_of(3, document, "Who saw the ferry leave?"));
    prompt.segments.push_back(segment_of(prompt.segments[0].end + 4, "Where is the archive now?", "Where is the archive now?"));
    std::vector<uint8_t> keep(prompt.segments[1].end + 2, 1);

    // everything is still there: nothing to recall
    CHECK(pflash_recall(prompt, keep, 100).empty());

    // all but the third sentence was dropped
    for (size_t i = 3; i < 3 + 20; i++) {
        keep[i] = 0;
    }
    for (size_t i = 3 + 29; i < prompt.segments[0].end; i++) {
        keep[i] = 0;
    }
    auto found = pflash_recall(prompt, keep, 100);
    CHECK(said(prompt, found) == " Ottilie moved the archive to the old customs house.|");
    CHECK(pflash_recall(prompt, keep, 5).empty());
    CHECK(pflash_recall(prompt, keep, 0).empty());

    // a literal brings its sentence back; words that mean nothing bring none
    prompt.segments[1].ask = "What was done under 7731-22?";
    CHECK(said(prompt, pflash_recall(prompt, keep, 100)) == " The pump was serviced under order number 7731-22 in May.|");
    prompt.segments[1].ask = "And then?";
    CHECK(pflash_recall(prompt, keep, 100).empty());

    // what answers it was kept: nothing is said twice
    prompt.segments[1].ask = "Who saw the ferry leave before the morning?";
    CHECK(pflash_recall(prompt, keep, 100).empty());

    // one message has nothing before it
    prompt.segments.pop_back();
    CHECK(pflash_recall(prompt, keep, 100).empty());
    return 0;
}
