#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

// Which beginnings the KV cache most likely holds: those of the prompts that the model read last. Thread
// safe. A prediction: a cache that held less than was promised is believed from then on.

class pflash_held {
public:
    static constexpr size_t MAX_PROMPTS = 64;
    static constexpr size_t MAX_TOKENS  = 1u << 20;

    // The model begins to read a prompt, of which the cache held the first `n_cached` tokens.
    void began(std::vector<int32_t> tokens, size_t n_cached);

    // How many first tokens of a prompt are likely held.
    size_t prefix(const std::vector<int32_t> & tokens) const;

private:
    mutable std::mutex mutex;
    std::list<std::vector<int32_t>> prompts; // the newest in front
    size_t n_tokens = 0;

    std::list<std::vector<int32_t>>::iterator remove(std::list<std::vector<int32_t>>::iterator it);
};
