#pragma once

#include "flashlane-args.h"
#include "json.h"

// What a request asks of PFlash, over the server's own settings.
struct pflash_request {
    bool        given      = false; // any field
    bool        mode_given = false;
    pflash_mode mode;
    float       keep_ratio;
    int32_t     min_keep_tokens;
};

// "pflash": {"mode": …} and "pflash_mode": … say the same; saying both differently is refused.
// Throws std::invalid_argument naming the field, the value and what would have worked.
pflash_request pflash_request_read(const common_json & data, const pflash_params & params);
