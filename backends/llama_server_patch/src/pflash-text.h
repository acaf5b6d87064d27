#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The text core of PFlash: bytes in, byte ranges out. No llama objects, no I/O, no clock. Text is
// UTF-8 and may be invalid; every function takes time linear in the text's size.

struct pflash_range {
    size_t begin = 0;
    size_t end   = 0; // exclusive
};

constexpr size_t PFLASH_SPAN_MAX_BYTES = 600;
constexpr size_t PFLASH_SPAN_MIN_BYTES = 16;

// Cuts text into natural spans that cover it wholly and in order: sentences of prose, lines of logs,
// tables and code, items of JSON. No span is longer than PFLASH_SPAN_MAX_BYTES or cuts a character.
// A span of fewer than PFLASH_SPAN_MIN_BYTES joins a neighbour where the bound allows; a Markdown
// heading joins the span after it. Blanks after a span belong to it; a line's indentation to the line.
std::vector<pflash_range> pflash_spans(std::string_view text);

// One flag per span: it reads as a continuation of the span before it, in the same paragraph (it
// starts with a pronoun or a connective, or is very short).
std::vector<uint8_t> pflash_leans(std::string_view text, const std::vector<pflash_range> & spans);

// The number of each span's paragraph; a blank line ends one.
std::vector<uint32_t> pflash_paragraphs(std::string_view text, const std::vector<pflash_range> & spans);

// Where the ask is in a user message that may also hold a document: its head, its tail, or both, at
// most about 1,500 bytes each, ascending. All of a short message; nothing of an empty one. `guessed`: no
// words or marks told of an ask, its short ends are taken for one.
std::vector<pflash_range> pflash_find_ask(std::string_view message, bool * guessed = nullptr);

// BM25 of each span for the question, k1 = 1.2 and b = 0.75. Terms are words, folded and without
// plural and past endings; identifiers whole and in their parts; bigrams where a script has no blanks.
// Source: Robertson and Zaragoza, The Probabilistic Relevance Framework (2009), equation 3.15, with
// the non-negative idf ln(1 + (N - n + 0.5) / (n + 0.5)).
std::vector<float> pflash_bm25(std::string_view text, const std::vector<pflash_range> & spans, std::string_view question);

// What a question names literally: numbers, identifiers, paths, capitals, quoted strings. At most 64
// of at most 128 bytes, each once, in the order of the question.
std::vector<std::string> pflash_literals(std::string_view question);

// What a span names and the question does not: runs of words that begin with a capital, the last word of
// such a run, and its literals. A single word at the span's beginning is none. At most 64, as above.
std::vector<std::string> pflash_names(std::string_view span, std::string_view question);

// For each literal the spans that hold it as a whole word, ascending. Case counts for literals that
// are all capitals, and for all of them with `as_written`; a number is not found inside a longer one.
std::vector<std::vector<uint32_t>> pflash_literal_spans(
        std::string_view text,
        const std::vector<pflash_range> & spans,
        const std::vector<std::string>  & literals,
        bool as_written = false);
