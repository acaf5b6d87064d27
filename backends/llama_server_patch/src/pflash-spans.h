#pragma once

#include "pflash-text.h"

// Between the files that make spans. A cut is the byte position where a span ends.

// The position after the blanks at `at`: behind the last line end among them, so that a line keeps
// its indentation, or behind all of them where there is no line end before `end`.
size_t pflash_after_blanks(std::string_view text, size_t at, size_t end);

// Appends the ends of the sentences of [begin, end), the last of which is `end`.
void pflash_cut_sentences(std::string_view text, size_t begin, size_t end, std::vector<size_t> & cuts);

struct pflash_json_cuts {
    bool   found = false;
    size_t end   = 0;         // of the JSON, or of what was looked at
    std::vector<size_t> cuts; // the last one is `end`
};

// The items of the JSON that starts at `begin`, which may break off.
pflash_json_cuts pflash_cut_json(std::string_view text, size_t begin);
