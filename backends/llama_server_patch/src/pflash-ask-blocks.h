#pragma once

#include "pflash-ask-words.h"
#include "pflash-text.h"

// What a message is made of, for `pflash_find_ask`.

enum pflash_block_kind {
    PFLASH_BLOCK_TEXT,      // a paragraph, or the part of one that starts with a label
    PFLASH_BLOCK_CONTAINER, // fenced or tagged text
    PFLASH_BLOCK_RULE,      // "---"
};

struct pflash_ask_block {
    size_t begin, end; // without the blanks around it
    pflash_block_kind kind  = PFLASH_BLOCK_TEXT;
    pflash_label      label = PFLASH_LABEL_NONE;

    size_t size() const { return end - begin; }
};

pflash_range pflash_trimmed(std::string_view text, size_t begin, size_t end);

// The blocks of [begin, end), in order.
std::vector<pflash_ask_block> pflash_ask_blocks(std::string_view text, size_t begin, size_t end);
