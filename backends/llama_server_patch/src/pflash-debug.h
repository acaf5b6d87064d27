#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Writes which token ranges of a prompt were kept into a new private file of `folder`: numbers alone,
// no text. A file that cannot be written is logged, nothing more.
void pflash_write_ranges(const std::string & folder, const std::vector<uint8_t> & keep, const std::string & scorer);
