#include "kvflash-evict.h"

#include <algorithm>
#include <cmath>
#include <numeric>

std::vector<uint32_t> kvflash_victims(kvflash_policy policy, const std::vector<kvflash_idle> & idle, size_t budget) {
    const auto score = [&](uint32_t i) {
        return policy != KVFLASH_POLICY_LRU && std::isfinite(idle[i].score) ? std::max(0.0f, idle[i].score) : 0.0f;
    };
    std::vector<uint32_t> order(idle.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return score(a) != score(b) ? score(a) < score(b) :
               idle[a].last_used != idle[b].last_used ? idle[a].last_used < idle[b].last_used : a < b;
    });
    size_t held = 0;
    for (const auto & prefix : idle) {
        held += prefix.n_tokens;
    }
    size_t n_victims = 0;
    while (held > budget && n_victims < order.size()) {
        held -= idle[order[n_victims++]].n_tokens;
    }
    order.resize(n_victims);
    order.erase(std::remove_if(order.begin(), order.end(), [&](uint32_t i) { return idle[i].n_tokens == 0; }), order.end());
    return order;
}

kvflash_admission kvflash_admit(const kvflash_load & load, size_t n_needed) {
    kvflash_admission admission;
    const size_t free = load.capacity - std::min(load.capacity, load.active);
    admission.admitted  = load.active == 0 || n_needed <= free;
    admission.idle_left = std::min(load.budget, free - std::min(free, n_needed));
    return admission;
}
