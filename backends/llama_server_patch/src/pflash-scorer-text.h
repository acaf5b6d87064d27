#pragma once

#include "llama.h"

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

// Tokens of a text together with where they lie in its bytes, whatever the bytes are.
struct pflash_text_tokens {
    std::vector<llama_token> id;
    std::vector<size_t>      end; // byte offset after each token, never falling
};

// Tokenises in pieces of a few KiB, so time and memory stay linear in the size of `text`.
// Bytes that are not UTF-8, and NUL, are read as '?'. `check` is called once a piece; it may throw.
// The last offset is text.size(). Without tokens for a text that is not empty, both lists are empty.
pflash_text_tokens pflash_tokenize(
        const llama_vocab * vocab, std::string_view text, const std::function<void()> & check);

// Where the window of at most `window` tokens from token `begin` ends: windows are about evenly long, and
// one ends with a line or sentence where that is near.
size_t pflash_window_end(std::string_view text, const pflash_text_tokens & tokens, size_t begin, size_t window);

// Mean over 17 centred tokens, as far as they belong to the same line or sentence.
std::vector<float> pflash_smoothed(
        std::string_view text, const pflash_text_tokens & tokens, const std::vector<float> & raw);
