#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Characters of UTF-8 text that may be invalid: what PFlash must know of them, without tables of
// all of Unicode. A byte that is no UTF-8 counts as one character, U+FFFD.

struct pflash_char {
    uint32_t code = 0xFFFD;
    size_t   size = 1; // bytes
};

// The character at byte `at` (< text.size()).
pflash_char pflash_char_at(std::string_view text, size_t at);

// The character that ends before byte `at` (> 0).
pflash_char pflash_char_before(std::string_view text, size_t at);

// The last position <= `at` that does not cut a character in half.
size_t pflash_char_floor(std::string_view text, size_t at);

// Lower case of Latin, Greek, Cyrillic and full-width letters; full-width digits become ASCII.
uint32_t pflash_lower(uint32_t code);

// `pflash_lower`, and without the accent if Latin-1 has the letter; 0 for a combining accent.
uint32_t pflash_fold(uint32_t code);

// Letters and digits of any script.
bool pflash_is_word(uint32_t code);

// Scripts that put no blank between words: Han, Kana, Hangul, Thai, Lao, Khmer, Burmese. Korean
// does use blanks, but glues particles to its words.
bool pflash_is_unspaced(uint32_t code);

bool pflash_is_han(uint32_t code);

// A byte within a character of several.
inline bool pflash_is_continuation(char c) {
    return ((uint8_t) c & 0xC0) == 0x80;
}

inline bool pflash_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

inline bool pflash_is_digit(uint32_t code) {
    return code >= '0' && code <= '9';
}

inline bool pflash_is_upper(uint32_t code) {
    return pflash_is_word(code) && pflash_lower(code) != code;
}

// True for a lower case letter of the scripts that `pflash_lower` knows.
bool pflash_is_lower(uint32_t code);

void pflash_append(std::string & text, uint32_t code);

// The text, folded.
std::string pflash_folded(std::string_view text);

inline bool pflash_starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}
