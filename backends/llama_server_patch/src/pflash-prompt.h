#pragma once

#include "chat.h"
#include "llama.h"
#include "pflash-segment.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

// What of a prompt may lose tokens: the user's messages, a bare prompt, or infill's extra files.
// Everything else is protected, and so are an ask, special tokens and guard bands inside of them.

struct pflash_guards {
    size_t prefix = 0; // tokens at the start of the prompt
    size_t suffix = 0; // tokens at its end
};

// A chat: `delimiters` are the template's own, tokenised. Refused ("no_role_boundaries") where they do
// not occur in the prompt.
pflash_prompt pflash_read_chat(
        const llama_vocab                * vocab,
        const std::vector<llama_token>   & tokens,
        const common_chat_msg_delimiters & delimiters,
        const std::set<llama_token>      & preserved,
        pflash_guards guards);

// A bare prompt. Refused where control tokens in it are a template whose roles are unknown.
pflash_prompt pflash_read_text(
        const llama_vocab              * vocab,
        const std::vector<llama_token> & tokens,
        const std::set<llama_token>    & preserved,
        pflash_guards guards);

// Infill: the extra files before the prefix, without their names. The text around the gap asks.
pflash_prompt pflash_read_infill(
        const llama_vocab              * vocab,
        const std::vector<llama_token> & tokens,
        const std::set<llama_token>    & preserved);

struct pflash_text_part {
    std::string text;
    bool is_user = true; // may lose tokens
};

// Texts without a template, tokenised into `tokens` with LLAMA_TOKEN_NULL after each. Where `question`
// is not empty it asks of all of them; `whole` parts then hold no ask of their own.
pflash_prompt pflash_read_parts(
        const llama_vocab                   * vocab,
        const std::vector<pflash_text_part> & parts,
        const std::string                   & question,
        bool                                  whole,
        std::vector<llama_token>            & tokens);

// The bytes of one token, special ones included.
std::string pflash_piece(const llama_vocab * vocab, llama_token token);
