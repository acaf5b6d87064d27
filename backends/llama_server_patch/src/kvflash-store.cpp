#include "kvflash-store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

static constexpr const char * SUFFIX  = ".kv";
static constexpr const char * PARTIAL = ".part";
static constexpr auto ABANDONED = std::chrono::minutes(10); // a partial file this old has no writer
static constexpr uint64_t MAX_HEAD_BYTES = 256u << 20;
static constexpr uint64_t MAX_PREPARED   = 1u << 30;
static constexpr size_t   BLOCKS_A_THREAD = 8, MAX_THREADS = 4; // of reading

namespace {

struct descriptor {
    const int fd;
    explicit descriptor(int fd) : fd(fd) {}
    ~descriptor() {
        if (fd >= 0) {
            close(fd);
        }
    }
    descriptor(const descriptor &) = delete;
};

// Reads exactly `size` bytes from `from` on.
bool read_exactly(int fd, uint8_t * data, size_t size, size_t from = 0) {
    for (size_t at = 0; at < size;) {
        const ssize_t n = pread(fd, data + at, size - at, (off_t) (from + at));
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        at += n > 0 ? (size_t) n : 0;
    }
    return true;
}

// Reads the whole record and the sum of each block, by as many threads as are of use.
bool read_blocks(int fd, uint8_t * data, size_t size, size_t head_size, std::vector<uint64_t> & sums) {
    sums.assign(kvflash_n_blocks(size), 0);
    std::atomic<size_t> next { 0 };
    std::atomic<bool>   failed { false };
    const auto work = [&] {
        for (size_t block = next++; block < sums.size() && !failed; block = next++) {
            const size_t begin = block * KVFLASH_BLOCK_BYTES;
            if (read_exactly(fd, data + begin, std::min(KVFLASH_BLOCK_BYTES, size - begin), begin)) {
                sums[block] = kvflash_block_sum(data, size, head_size, block);
            } else {
                failed = true;
            }
        }
    };
    std::vector<std::thread> others;
    const size_t n_threads = std::min<size_t>({ sums.size() / BLOCKS_A_THREAD, std::thread::hardware_concurrency(), MAX_THREADS });
    while (others.size() + 1 < n_threads) {
        others.emplace_back(work);
    }
    work();
    for (auto & thread : others) {
        thread.join();
    }
    return !failed;
}

bool write_all(int fd, const uint8_t * data, size_t size) {
    for (size_t at = 0; at < size;) {
        const ssize_t n = write(fd, data + at, size - at);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        at += n > 0 ? (size_t) n : 0;
    }
    return fsync(fd) == 0;
}

std::string hex(uint64_t number) {
    char text[17];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long) number);
    return text;
}

bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

uint64_t size_of(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? (uint64_t) about.st_size : 0;
}

} // namespace

kvflash_store::kvflash_store(std::string folder, const kvflash_seed & base, uint64_t max_bytes) :
    folder(std::move(folder)), own(this->folder + "/" + hex(base.hash) + hex(base.check)), max_bytes(max_bytes) {
    mkdir(own.c_str(), 0700); // where this fails, every write does, and is counted
    std::error_code error;
    for (const auto & entry : fs::directory_iterator(own, error)) {
        const auto written = entry.last_write_time(error);
        if (!error && ends_with(entry.path().string(), PARTIAL) && fs::file_time_type::clock::now() - written > ABANDONED) {
            fs::remove(entry.path(), error);
        }
    }
}

void kvflash_store::remove_damaged(const std::string & name) {
    counted.damaged++;
    if (unlink((own + "/" + name).c_str()) != 0 && errno != ENOENT) {
        refused.insert(name);
    }
}

void kvflash_store::forget(uint64_t id) {
    const auto known = files.find(id);
    if (known != files.end()) {
        by_name.erase(known->second.name);
        files.erase(known);
    }
}

bool kvflash_store::read_head(const std::string & name, found & record) {
    const descriptor file(open((own + "/" + name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (file.fd < 0) {
        return false; // gone, or not ours to read
    }
    record.bytes = size_of(file.fd);
    std::vector<uint8_t> head(KVFLASH_FIXED_HEAD_BYTES);
    kvflash_view & view = record.view;
    if (record.bytes >= head.size() && read_exactly(file.fd, head.data(), head.size())) {
        const size_t size = kvflash_head_size(head.data(), head.size(), record.seed);
        if (size >= head.size() && size <= std::min(record.bytes, MAX_HEAD_BYTES)) {
            head.resize(size);
            if (read_exactly(file.fd, head.data(), size) && kvflash_read_record(head.data(), size, record.seed, false, view).empty()) {
                record.tokens.assign(view.tokens, view.tokens + view.n_tokens);
                view.tokens = nullptr;
                return true;
            }
        }
    }
    remove_damaged(name);
    return false;
}

void kvflash_store::refresh(std::vector<found> & added, std::vector<uint64_t> & gone) {
    std::error_code error;
    std::unordered_map<std::string, bool> present;
    for (auto it = fs::directory_iterator(own, error); !error && it != fs::directory_iterator(); it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (!ends_with(name, SUFFIX)) {
            continue;
        }
        present[name] = true;
        if (by_name.count(name) || refused.count(name)) {
            continue;
        }
        found record;
        if (!read_head(name, record)) {
            continue;
        }
        record.id     = next_id++;
        by_name[name] = record.id;
        files[record.id] = { name, record.bytes };
        added.push_back(std::move(record));
    }
    for (auto it = by_name.begin(); it != by_name.end();) {
        if (present.count(it->first)) {
            ++it;
            continue;
        }
        gone.push_back(it->second);
        files.erase(it->second);
        it = by_name.erase(it);
    }
}

std::shared_ptr<kvflash_memory> kvflash_store::memory_of(uint64_t size) {
    if (!memory || memory.use_count() > 1 || memory->size() < size) {
        memory.reset();
        try {
            memory = std::make_shared<kvflash_memory>(size);
        } catch (const std::bad_alloc &) {
        }
    }
    return memory;
}

void kvflash_store::prepare() {
    uint64_t largest = 0;
    std::error_code error;
    for (auto it = fs::directory_iterator(own, error); !error && it != fs::directory_iterator(); it.increment(error)) {
        std::error_code gone;
        const uint64_t size = ends_with(it->path().string(), SUFFIX) ? it->file_size(gone) : 0;
        largest = std::max(largest, gone ? 0 : size);
    }
    if (const auto room = memory_of(std::min({ largest, MAX_PREPARED, max_bytes }))) {
        std::fill(room->data(), room->data() + room->size(), (uint8_t) 0); // now, not when it is needed
    }
}

std::unique_ptr<kvflash_loaded> kvflash_store::read(uint64_t id, const kvflash_seed & seed) {
    const auto known = files.find(id);
    if (known == files.end()) {
        return nullptr;
    }
    const std::string name = known->second.name;
    const descriptor file(open((own + "/" + name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (file.fd < 0) {
        forget(id);
        return nullptr;
    }
    const uint64_t size = size_of(file.fd);
    if (size == 0 || size > max_bytes) {
        remove_damaged(name);
        forget(id);
        return nullptr;
    }
    auto loaded = std::make_unique<kvflash_loaded>();
    const auto room = memory_of(size);
    if (!room) {
        return nullptr;
    }
    kvflash_seed of_file;
    std::vector<uint64_t> sums;
    const bool begun = size >= KVFLASH_FIXED_HEAD_BYTES && read_exactly(file.fd, room->data(), KVFLASH_FIXED_HEAD_BYTES);
    const size_t head_size = begun ? kvflash_head_size(room->data(), KVFLASH_FIXED_HEAD_BYTES, of_file) : 0;
    if (head_size == 0 || head_size > size || !read_blocks(file.fd, room->data(), size, head_size, sums) ||
            !kvflash_read_record(room->data(), size, seed, true, loaded->view, &sums).empty()) {
        remove_damaged(name);
        forget(id);
        return nullptr;
    }
    loaded->bytes = room;
    futimens(file.fd, nullptr); // used now; without the right to, it only looks older
    return loaded;
}

bool kvflash_store::write(const kvflash_record & record, const kvflash_seed & seed) {
    static std::atomic<uint64_t> serial { 0 };
    const auto & view = record.view();
    kvflash_seed name = seed;
    name.add(view.tokens, view.n_tokens * sizeof(view.tokens[0]));
    const std::string stem = own + "/" + hex(name.hash) + hex(name.check);
    const std::string path = stem + SUFFIX;
    if (record.size() > max_bytes) {
        counted.failed++;
        return false;
    }
    make_room(record.size(), path);
    const std::string partial = stem + "-" + std::to_string(getpid()) + "-" + std::to_string(serial++) + PARTIAL;
    bool written = false;
    {
        const descriptor file(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        written = file.fd >= 0 && write_all(file.fd, record.data(), record.size());
    }
    written = written && rename(partial.c_str(), path.c_str()) == 0;
    if (!written) {
        unlink(partial.c_str());
        counted.failed++;
        return false;
    }
    const descriptor listing(open(own.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (listing.fd >= 0) {
        fsync(listing.fd); // the name
    }
    counted.written++;
    return true;
}

// Of every base below the folder: they share the bound.
void kvflash_store::make_room(uint64_t wanted, const std::string & except) {
    struct candidate {
        fs::file_time_type used;
        uint64_t bytes;
        fs::path path;
    };
    std::vector<candidate> all;
    uint64_t held = 0;
    std::error_code error;
    for (auto it = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
            !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
        std::error_code gone;
        const std::string name = it->path().string();
        if (!ends_with(name, SUFFIX) || name == except || !it->is_regular_file(gone)) {
            continue;
        }
        const uint64_t bytes = it->file_size(gone);
        const auto used = gone ? fs::file_time_type() : it->last_write_time(gone);
        if (!gone) {
            held += bytes;
            all.push_back({ used, bytes, it->path() });
        }
    }
    std::sort(all.begin(), all.end(), [](const candidate & a, const candidate & b) { return a.used < b.used; });
    for (const auto & old : all) {
        if (held + wanted <= max_bytes) {
            break;
        }
        if (unlink(old.path.c_str()) == 0) {
            counted.removed++;
        }
        held -= old.bytes;
    }
}

uint64_t kvflash_store::bytes() const {
    uint64_t held = 0;
    for (const auto & [id, file] : files) {
        held += file.bytes;
    }
    return held;
}
