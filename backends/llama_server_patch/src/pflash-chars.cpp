#include "pflash-chars.h"

#include <algorithm>

static bool within(uint32_t code, uint32_t first, uint32_t last) {
    return code >= first && code <= last;
}

pflash_char pflash_char_at(std::string_view text, size_t at) {
    const uint8_t lead = (uint8_t) text[at];
    if (lead < 0x80) {
        return { lead, 1 };
    }
    const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || at + size > text.size()) {
        return {};
    }
    uint32_t code = lead & (0xFF >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if (!pflash_is_continuation(text[at + i])) {
            return {};
        }
        code = code << 6 | ((uint8_t) text[at + i] & 0x3F);
    }
    const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
    if (overlong || code > 0x10FFFF || within(code, 0xD800, 0xDFFF)) {
        return {};
    }
    return { code, size };
}

size_t pflash_char_floor(std::string_view text, size_t at) {
    if (at >= text.size()) {
        return text.size();
    }
    for (size_t back = 1; back < 4 && back <= at && pflash_is_continuation(text[at - back + 1]); back++) {
        if (pflash_char_at(text, at - back).size > back) {
            return at - back;
        }
    }
    return at;
}

pflash_char pflash_char_before(std::string_view text, size_t at) {
    return pflash_char_at(text, pflash_char_floor(text, at - 1));
}

uint32_t pflash_lower(uint32_t c) {
    if (c < 0x80) {
        return within(c, 'A', 'Z') ? c + 0x20 : c;
    }
    if (within(c, 0xC0, 0xDE)) {
        return c == 0xD7 ? c : c + 0x20;
    }
    // In these blocks a capital is followed by its small letter.
    const bool even_pairs = within(c, 0x100, 0x12F) || within(c, 0x132, 0x137) || within(c, 0x14A, 0x177) ||
        within(c, 0x460, 0x481) || within(c, 0x48A, 0x4BF) || within(c, 0x4D0, 0x52F) || within(c, 0x1E00, 0x1E95) ||
        within(c, 0x1EA0, 0x1EFF);
    if (even_pairs) {
        return c | 1;
    }
    if (within(c, 0x139, 0x148) || within(c, 0x179, 0x17E) || within(c, 0x4C1, 0x4CE)) {
        return c % 2 == 1 ? c + 1 : c;
    }
    switch (c) {
        case 0x130: return 'i';
        case 0x178: return 0xFF;
        case 0x386: return 0x3AC;
        case 0x38C: return 0x3CC;
        case 0x38E: return 0x3CD;
        case 0x38F: return 0x3CE;
        case 0x3C2: return 0x3C3; // the sigma at a word's end
        default:    break;
    }
    if (within(c, 0x388, 0x38A)) {
        return c + 0x25;
    }
    if (within(c, 0x391, 0x3AB) || within(c, 0x410, 0x42F)) {
        return c + 0x20;
    }
    if (within(c, 0x400, 0x40F)) {
        return c + 0x50;
    }
    if (within(c, 0xFF21, 0xFF3A)) {
        return c - 0xFF21 + 'a';
    }
    if (within(c, 0xFF41, 0xFF5A)) {
        return c - 0xFF41 + 'a';
    }
    return within(c, 0xFF10, 0xFF19) ? c - 0xFF10 + '0' : c;
}

uint32_t pflash_fold(uint32_t c) {
    if (c < 0x80) {
        return pflash_lower(c);
    }
    if (within(c, 0x300, 0x36F)) {
        return 0;
    }
    c = pflash_lower(c);
    if (within(c, 0xE0, 0xFF)) {
        static const char plain[] = "aaaaaa?ceeeeiiii?nooooo?ouuuuy?y";
        return plain[c - 0xE0] == '?' ? c : (uint32_t) plain[c - 0xE0];
    }
    return c == 0x439 ? 0x438 : c == 0x451 ? 0x435 : c;
}

bool pflash_is_lower(uint32_t c) {
    return within(c, 'a', 'z') || (within(c, 0xDF, 0xFF) && c != 0xF7) || within(c, 0x3AC, 0x3CE) || within(c, 0x430, 0x45F) ||
        (within(c, 0x100, 0x17F) && pflash_lower(c) == c);
}

bool pflash_is_word(uint32_t c) {
    if (c < 0x80) {
        return pflash_is_digit(c) || within(c, 'a', 'z') || within(c, 'A', 'Z');
    }
    if (c < 0x2000) {
        if (c < 0xC0) {
            return c == 0xAA || c == 0xB5 || c == 0xBA;
        }
        static const uint32_t marks[] = { 0xD7, 0xF7, 0x37E, 0x387, 0x5BE, 0x5C0, 0x5C3, 0x60C, 0x61B, 0x61F, 0x6D4, 0x964, 0x965 };
        return !std::binary_search(std::begin(marks), std::end(marks), c) && !within(c, 0x55A, 0x55F) && c != 0x589 &&
            !within(c, 0x5F3, 0x5F4) && !within(c, 0x66A, 0x66D) && !within(c, 0x1360, 0x1368) && !within(c, 0x17D4, 0x17DA);
    }
    const bool mark = within(c, 0x2000, 0x206F) || within(c, 0x20A0, 0x20CF) || within(c, 0x2190, 0x2BFF) ||
        within(c, 0x2E00, 0x2E7F) || within(c, 0x3000, 0x3004) || within(c, 0x3008, 0x3020) || within(c, 0x3030, 0x303F) ||
        c == 0x30FB || within(c, 0xD800, 0xF8FF) || within(c, 0xFE00, 0xFE6F) || within(c, 0xFF00, 0xFF0F) ||
        within(c, 0xFF1A, 0xFF20) || within(c, 0xFF3B, 0xFF40) || within(c, 0xFF5B, 0xFF65) || within(c, 0xFFE0, 0xFFFF) ||
        within(c, 0x1F000, 0x1FAFF) || c >= 0xE0000;
    return !mark;
}

bool pflash_is_han(uint32_t c) {
    return within(c, 0x2E80, 0x2FDF) || within(c, 0x3005, 0x3007) || within(c, 0x3400, 0x4DBF) || within(c, 0x4E00, 0x9FFF) ||
        within(c, 0xF900, 0xFAFF) || within(c, 0x20000, 0x3FFFF);
}

bool pflash_is_unspaced(uint32_t c) {
    if (c < 0xE00) {
        return false;
    }
    return pflash_is_han(c) || within(c, 0xE00, 0xEFF) || within(c, 0x1000, 0x109F) || within(c, 0x1100, 0x11FF) ||
        within(c, 0x1780, 0x17D3) || (within(c, 0x3040, 0x31FF) && c != 0x30FB) || within(c, 0xAC00, 0xD7AF) ||
        within(c, 0xFF66, 0xFF9F);
}

void pflash_append(std::string & text, uint32_t c) {
    if (c < 0x80) {
        text += (char) c;
    } else if (c < 0x800) {
        text += { (char) (0xC0 | c >> 6), (char) (0x80 | (c & 0x3F)) };
    } else if (c < 0x10000) {
        text += { (char) (0xE0 | c >> 12), (char) (0x80 | (c >> 6 & 0x3F)), (char) (0x80 | (c & 0x3F)) };
    } else {
        text += { (char) (0xF0 | c >> 18), (char) (0x80 | (c >> 12 & 0x3F)), (char) (0x80 | (c >> 6 & 0x3F)), (char) (0x80 | (c & 0x3F)) };
    }
}

std::string pflash_folded(std::string_view text) {
    std::string folded;
    folded.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const auto c = pflash_char_at(text, i);
        const uint32_t code = pflash_fold(c.code);
        if (code != 0) {
            pflash_append(folded, code);
        }
        i += c.size;
    }
    return folded;
}
