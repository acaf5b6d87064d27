#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// A run of tokens that is scored and remembered as one.
struct pflash_segment {
    size_t begin = 0; // tokens of the prompt
    size_t end   = 0; // exclusive
    std::string text;              // their bytes
    std::vector<size_t> token_end; // bytes of `text` up to the end of each token
    std::string ask;               // what of the text asks, empty if all of it is material
    bool guessed = false;          // nothing told that it asks
    size_t part = 0;               // of pflash_read_parts
};

struct pflash_prompt {
    std::vector<uint8_t> protect; // one per token, non-zero: must stay
    std::vector<pflash_segment> segments; // ascending, without overlap
    std::string refused; // why nothing may be dropped, empty if something may

    size_t n_open() const;
    size_t n_open(const pflash_segment & segment) const;
};
