#pragma once

#include "flashlane-args.h"
#include "json.h"

#include <string>

// What a request asks of PFlash, over the server's own settings.
struct pflash_request {
    bool        given      = false; // any field
    bool        mode_given = false;
    pflash_mode mode;
    float       keep_ratio;
    int32_t     min_keep_tokens;
};

// What a client sent, as an error names it: it may be as long as a prompt.
std::string pflash_shown(std::string text);

// "pflash": {"mode": …} and "pflash_mode": … say the same; saying both differently is refused.
// Throws std::invalid_argument naming the field, the value and what would have worked.
pflash_request pflash_request_read(const common_json & data, const pflash_params & params);
