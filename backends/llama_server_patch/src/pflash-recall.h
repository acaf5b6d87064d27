#pragma once

#include "pflash-segment.h"
#include "pflash-text.h"

#include <cstdint>
#include <vector>

// Text that an earlier turn dropped and that the newest question asks for. Pure.

// Token ranges of the prompt, ascending, of at most `budget` tokens: dropped spans of the segments before
// the newest one that answer its ask clearly better than anything that was kept, by BM25 and by the
// literals that the ask names. Scoring a whole conversation anew at each turn would cost what PFlash has
// saved; words cost milliseconds.
std::vector<pflash_range> pflash_recall(
        const pflash_prompt        & prompt,
        const std::vector<uint8_t> & keep, // one per token of the prompt
        size_t budget);
