#include "pflash-request.h"

#include "pflash-chars.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

using json = common_json;

std::string pflash_shown(std::string text) {
    constexpr size_t max_bytes = 80;
    if (text.size() > max_bytes) {
        size_t end = max_bytes;
        while (end > 0 && pflash_is_continuation(text[end])) {
            end--;
        }
        text = text.substr(0, end) + "...";
    }
    return text;
}

static std::string shown(const json & value) {
    return value.is_object() ? "an object" : value.is_array() ? "a list" : pflash_shown(value.dump());
}

static void read_field(pflash_request & request, const std::string & key, const std::string & field, const json & value) {
    const auto refuse = [&](const std::string & accepted) {
        throw std::invalid_argument(field + " is " + shown(value) + "; it must be " + accepted);
    };
    if (key == "mode") {
        if (!value.is_string()) {
            refuse("off, auto or always");
        }
        request.mode       = pflash_mode_parse(field, value.get<std::string>());
        request.mode_given = true;
    } else if (key == "keep_ratio") {
        if (!value.is_number() || !(value.get<double>() > 0.0 && value.get<double>() <= 1.0)) {
            refuse("above 0 and at most 1");
        }
        request.keep_ratio = (float) value.get<double>();
    } else {
        if (!value.is_number_integer() || value.get<double>() < 0.0 || value.get<double>() > (double) INT32_MAX) {
            refuse("a whole number from 0 to " + std::to_string(INT32_MAX));
        }
        request.min_keep_tokens = value.get<int32_t>();
    }
    request.given = true;
}

pflash_request pflash_request_read(const json & data, const pflash_params & params) {
    pflash_request request;
    request.mode            = params.mode;
    request.keep_ratio      = params.keep_ratio;
    request.min_keep_tokens = params.min_keep_tokens;

    const bool nested = data.contains("pflash") && !data.at("pflash").is_null();
    const std::vector<std::string> keys = { "mode", "keep_ratio", "min_keep_tokens" };
    if (nested) {
        const json & fields = data.at("pflash");
        if (!fields.is_object()) {
            throw std::invalid_argument("pflash is " + shown(fields) + "; it must be an object with mode, keep_ratio or min_keep_tokens");
        }
        for (const auto & item : fields.items()) {
            if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
                throw std::invalid_argument("pflash." + pflash_shown(item.key()) + " is not known; accepted keys: mode, keep_ratio, min_keep_tokens");
            }
            if (!item.value().is_null()) {
                read_field(request, item.key(), "pflash." + item.key(), item.value());
            }
        }
    }
    for (const auto & item : data.items()) {
        const std::string & field = item.key();
        const bool ours = field.rfind("pflash_", 0) == 0 || field.rfind("kvflash", 0) == 0;
        if (ours && !item.value().is_null() &&
            std::none_of(keys.begin(), keys.end(), [&](const auto & key) { return field == "pflash_" + key; })) {
            throw std::invalid_argument(pflash_shown(field) + " is not known; accepted fields: pflash, pflash_mode, pflash_keep_ratio, pflash_min_keep_tokens");
        }
    }
    for (const auto & key : keys) {
        const std::string flat = "pflash_" + key;
        if (!data.contains(flat) || data.at(flat).is_null()) {
            continue;
        }
        if (nested && data.at("pflash").contains(key) && !data.at("pflash").at(key).is_null() &&
            data.at("pflash").at(key).dump() != data.at(flat).dump()) {
            throw std::invalid_argument(flat + " is " + shown(data.at(flat)) + " and pflash." + key + " is " +
                                        shown(data.at("pflash").at(key)) + "; send one of them");
        }
        read_field(request, key, flat, data.at(flat));
    }
    if (params.mode == PFLASH_MODE_OFF && request.given && !(request.mode_given && request.mode == PFLASH_MODE_OFF)) {
        throw std::invalid_argument("pflash is asked for, but this server runs with --pflash-mode off; start it with auto or always");
    }
    return request;
}
