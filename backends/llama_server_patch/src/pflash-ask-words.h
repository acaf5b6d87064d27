#pragma once

#include <string_view>

// The words by which people ask, in English, German, French, Spanish, Portuguese, Italian, Russian,
// Chinese, Japanese and Korean. Evidence for `pflash_find_ask`, which also works without it.

enum pflash_label {
    PFLASH_LABEL_NONE,
    PFLASH_LABEL_ASK,      // "Question:", "## Aufgabe"
    PFLASH_LABEL_DOCUMENT, // "Context:"
    PFLASH_LABEL_ANSWER,   // "Answer:", where the model is to go on
};

// What the line announces, if it starts with a label or is one.
pflash_label pflash_label_of(std::string_view line);

// The sentence starts like a request: "Summarize", "Bitte", "请".
bool pflash_opens_request(std::string_view sentence);

// The sentence starts with a question word.
bool pflash_opens_question(std::string_view sentence);

// The text speaks of a text beside it: "the following", "oben", "以下".
bool pflash_points_at_text(std::string_view text);
