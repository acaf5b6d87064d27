#pragma once

#include "server-common.h"

// Every token of a prompt, LLAMA_TOKEN_NULL where media stand. server_tokens::get_tokens() ends a server that
// has a projector.
inline llama_tokens flashlane_tokens(const server_tokens & prompt) {
    llama_tokens tokens(prompt.size());
    for (size_t i = 0; i < tokens.size(); i++) {
        tokens[i] = prompt[i];
    }
    return tokens;
}

inline bool flashlane_has_media(const server_tokens & prompt) {
    for (size_t i = 0; i < prompt.size(); i++) {
        if (prompt[i] == LLAMA_TOKEN_NULL) {
            return true;
        }
    }
    return false;
}
