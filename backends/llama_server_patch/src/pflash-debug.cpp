#include "pflash-debug.h"

#include "json.h"
#include "log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>

#if defined(_WIN32)
#include <io.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

using json = common_json;

void pflash_write_ranges(const std::string & folder, const std::vector<uint8_t> & keep, const std::string & scorer) {
    static std::atomic<uint64_t> n_written { 0 };
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto us  = std::chrono::duration_cast<std::chrono::microseconds>(now).count();

    json ranges = json::array();
    for (size_t i = 0; i < keep.size();) {
        size_t j = i;
        while (j < keep.size() && keep[j] == keep[i]) {
            j++;
        }
        if (keep[i]) {
            ranges.push_back(json::array({ i, j }));
        }
        i = j;
    }
    const json document = {
        {"time_us",         us},
        {"scorer",          scorer},
        {"original_tokens", keep.size()},
        {"kept",            ranges},
    };
    const std::string text = document.dump() + "\n";
    const std::string path = folder + "/pflash-" + std::to_string(us) + "-" + std::to_string(n_written++) + ".json";

#if defined(_WIN32)
    FILE * file = std::fopen(path.c_str(), "wx");
#else
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE * file = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
#endif
    const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed  = file && std::fclose(file) == 0;
    if (!written || !closed) {
        LOG_WRN("pflash: %s cannot be written: %s\n", path.c_str(), std::strerror(errno));
    }
}
