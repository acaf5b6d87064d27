#pragma once

#include <cstdint>

// Two ways to mix 64 bits that share no step: what one of them confuses, the other tells apart.

// Source: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
inline uint64_t flashlane_mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// Source: the step and the finaliser of MurmurHash3 (Appleby).
inline uint64_t flashlane_step(uint64_t h, uint64_t x) {
    x *= 0x87C37B91114253D5u;
    x = (x << 31 | x >> 33) * 0x4CF5AD432745937Fu;
    h ^= x;
    return (h << 27 | h >> 37) * 5 + 0x52DCE729u;
}
