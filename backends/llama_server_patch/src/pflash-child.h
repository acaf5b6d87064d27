#pragma once

#ifdef _WIN32
#error "the PFlash helper needs POSIX processes: fork, process groups, poll"
#endif

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

// A program that answers lines with lines. It runs in a session and process group of its own, without
// a shell, and inherits nothing but its three pipes; what it writes to stderr goes to the server's log.
// Not thread safe: one thread at a time.
class pflash_child {
  public:
    using clock = std::chrono::steady_clock;

    enum io_status {
        IO_LINE,
        IO_ENDED,     // it closed its stdout or its stdin, or it is gone
        IO_TIMEOUT,
        IO_TOO_LONG,  // no end of line within the limit
        IO_UNASKED,   // it wrote more than the one line
    };

    // Runs command[0], a path; PATH is not searched. Returns nothing with `error` set when that fails
    // or takes longer than `deadline`.
    static std::unique_ptr<pflash_child> start(const std::vector<std::string> & command, clock::time_point deadline, std::string & error);

    // Kills the group at once, unless end() was called.
    ~pflash_child();

    pflash_child(const pflash_child &) = delete;
    pflash_child & operator=(const pflash_child &) = delete;

    // Closes its stdin, sends SIGTERM, and kills whatever of the group is left after `grace`.
    void end(std::chrono::milliseconds grace);

    // Writes `request` (which ends with a line feed) and reads one line of at most `limit_bytes`, without
    // its line feed. After anything but IO_LINE the child is out of step and has to be ended.
    io_status exchange(const std::string & request, size_t limit_bytes, clock::time_point deadline, std::string & line);

    // What the child did while nobody asked: IO_LINE stands for nothing, IO_ENDED, or IO_UNASKED.
    io_status idle_status();

    pid_t pid() const { return child_pid; }

  private:
    struct descriptor {
        int fd = -1;
        ~descriptor() { close(); }
        void close();
    };

    pflash_child() = default;

    bool open_pipes(std::string & error);
    void spawn(const std::vector<std::string> & command, clock::time_point deadline, std::string & error);
    bool has_exited() const;
    void drain_log();
    void log_bytes(const char * data, size_t size);
    void log_line();

    pid_t child_pid = -1;

    descriptor in, out, err;                // ours
    descriptor their_in, their_out, their_err;
    descriptor wake_read, wake_write;       // ends the log thread
    std::thread      log_thread;            // also the one that forks
    std::string      log_text;
    std::atomic<int> log_lines_left { 0 };
};
