#include "pflash-child.h"

#include "log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <system_error>

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

extern char ** environ;

static constexpr size_t LOG_LINE_BYTES      = 512;  // the rest of a longer line is dropped
static constexpr int    LOG_LINES           = 200;  // per request
static constexpr size_t LOG_LAST_BYTES      = 65536; // read after the end
static constexpr size_t READ_BYTES          = 65536;
static constexpr auto   REAP_LIMIT          = std::chrono::seconds(2);
static constexpr auto   REAP_POLL           = std::chrono::milliseconds(2);
static constexpr int    DESCRIPTORS_AT_MOST = 65536; // marked one by one where close_range is missing

void pflash_child::descriptor::close() {
    if (fd >= 0) {
        ::close(fd);
        fd = -1;
    }
}

static int poll_until(pollfd * fds, nfds_t n, pflash_child::clock::time_point deadline) {
    using namespace std::chrono;
    for (;;) {
        const auto left = duration_cast<microseconds>(deadline - pflash_child::clock::now()).count();
        const int  wait_ms = (int) std::clamp<int64_t>((left + 999) / 1000, 0, 60 * 1000);
        const int  ready = poll(fds, n, wait_ms);
        if (ready > 0 || (ready == 0 && left <= 0) || (ready < 0 && errno != EINTR && errno != EAGAIN)) {
            return ready;
        }
    }
}

// Writing to a pipe without a reader must not end the server, whatever it does with SIGPIPE elsewhere.
static ssize_t write_quietly(int fd, const char * data, size_t size) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    const ssize_t n = write(fd, data, size);
    const int error = errno;
    if (n < 0 && error == EPIPE && !was_pending) {
        sigpending(&pending);
        int taken;
        if (sigismember(&pending, SIGPIPE)) {
            sigwait(&pipe_signal, &taken);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return n;
}

//
// start
//

// Close-on-exec, and never 0, 1 or 2: those become the child's.
static bool make_pipe(int & read_fd, int & write_fd) {
    int fds[2];
#ifdef __linux__
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
#else
    if (pipe(fds) != 0) {
        return false;
    }
#endif
    for (int & fd : fds) {
        if (fd <= STDERR_FILENO) {
            const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
            close(fd);
            fd = moved;
        } else {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
    read_fd  = fds[0];
    write_fd = fds[1];
    return fds[0] >= 0 && fds[1] >= 0;
}

bool pflash_child::open_pipes(std::string & error) {
    if (!make_pipe(their_in.fd, in.fd) || !make_pipe(out.fd, their_out.fd) ||
        !make_pipe(err.fd, their_err.fd) || !make_pipe(wake_read.fd, wake_write.fd)) {
        error = std::string("no pipe: ") + std::strerror(errno);
        return false;
    }
    for (int fd : { in.fd, out.fd, err.fd, wake_read.fd }) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    return true;
}

std::unique_ptr<pflash_child> pflash_child::start(const std::vector<std::string> & command, clock::time_point deadline, std::string & error) {
    std::unique_ptr<pflash_child> child(new pflash_child());
    if (!child->open_pipes(error)) {
        return nullptr;
    }
    std::promise<void> spawned;
    auto done = spawned.get_future();
    try {
        // Linux ends a child together with the thread that forked it (PR_SET_PDEATHSIG), so the thread
        // has to live as long as the child; a thread of the HTTP server may not.
        child->log_thread = std::thread([&, self = child.get(), spawned = std::move(spawned)]() mutable {
            self->spawn(command, deadline, error);
            const bool running = self->child_pid > 0;
            spawned.set_value();
            if (running) {
                self->drain_log();
            }
        });
    } catch (const std::system_error & e) {
        error = e.what();
        return nullptr;
    }
    done.wait();
    child->their_in.close();
    child->their_out.close();
    child->their_err.close();
    return child->child_pid > 0 ? std::move(child) : nullptr;
}

// The server's own keys and options are none of the helper's business.
static std::vector<char *> child_environment() {
    std::vector<char *> environment;
    for (char ** entry = environ; *entry; entry++) {
        const std::string text = *entry;
        const auto starts = [&](const char * prefix) { return text.rfind(prefix, 0) == 0; };
        if (!starts("LLAMA_ARG_") && !starts("LLAMA_API_KEY=") && !starts("HF_TOKEN=")) {
            environment.push_back(*entry);
        }
    }
    environment.push_back(nullptr);
    return environment;
}

static void keep_no_descriptor_on_exec(int n_descriptors) {
#if defined(__linux__) && defined(SYS_close_range)
    constexpr unsigned only_mark = 1U << 2; // CLOSE_RANGE_CLOEXEC
    if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, only_mark) == 0) {
        return;
    }
#endif
    for (int fd = STDERR_FILENO + 1; fd < n_descriptors; fd++) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

void pflash_child::spawn(const std::vector<std::string> & command, clock::time_point deadline, std::string & error) {
    std::vector<char *> arguments;
    for (const auto & argument : command) {
        arguments.push_back(const_cast<char *>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    const auto environment = child_environment();

    rlimit limit {};
    getrlimit(RLIMIT_NOFILE, &limit);
    const int n_descriptors = (int) std::min<rlim_t>(limit.rlim_cur, DESCRIPTORS_AT_MOST);

    descriptor failed_read, failed_write;
    if (!make_pipe(failed_read.fd, failed_write.fd)) {
        error = std::string("no pipe: ") + std::strerror(errno);
        return;
    }
    const pid_t parent = getpid();
    const pid_t pid    = fork();
    if (pid == 0) {
        // Other threads may have held any lock: only async-signal-safe calls from here on.
        setsid();
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
        if (getppid() != parent) {
            _exit(127);
        }
        for (int number : { SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD }) {
            signal(number, SIG_DFL);
        }
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        dup2(their_in.fd,  STDIN_FILENO);
        dup2(their_out.fd, STDOUT_FILENO);
        dup2(their_err.fd, STDERR_FILENO);
        keep_no_descriptor_on_exec(n_descriptors);
        execve(arguments[0], arguments.data(), environment.data());
        const int code = errno;
        const ssize_t ignored = write(failed_write.fd, &code, sizeof(code));
        (void) ignored;
        _exit(127);
    }
    const int fork_error = errno;
    failed_write.close();
    if (pid < 0) {
        error = std::string("no process: ") + std::strerror(fork_error);
        return;
    }
    // end of file says that the program runs: its copy was closed on exec
    pollfd ready { failed_read.fd, POLLIN, 0 };
    int     code = 0;
    ssize_t n    = -1;
    if (poll_until(&ready, 1, deadline) > 0) {
        do {
            n = read(failed_read.fd, &code, sizeof(code));
        } while (n < 0 && errno == EINTR);
    }
    if (n == 0) {
        child_pid = pid;
        return;
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    error = n == sizeof(code) ? std::strerror(code) : "not started in time";
}

//
// end
//

pflash_child::~pflash_child() {
    end(std::chrono::milliseconds(0));
}

// Leaves it unreaped: until then its id, and so its group's, belongs to nobody else.
bool pflash_child::has_exited() const {
    siginfo_t info {};
    const int result = waitid(P_PID, (id_t) child_pid, &info, WEXITED | WNOHANG | WNOWAIT);
    return (result == 0 && info.si_pid == child_pid) || (result != 0 && errno == ECHILD);
}

void pflash_child::end(std::chrono::milliseconds grace) {
    in.close();
    if (child_pid > 0) {
        const auto wait_for_exit = [this](clock::time_point until) {
            while (!has_exited() && clock::now() < until) {
                std::this_thread::sleep_for(REAP_POLL);
            }
        };
        if (grace.count() > 0) {
            kill(-child_pid, SIGTERM);
            wait_for_exit(clock::now() + grace);
        }
        kill(-child_pid, SIGKILL);
        wait_for_exit(clock::now() + REAP_LIMIT);
        waitpid(child_pid, nullptr, WNOHANG);
        child_pid = -1;
    }
    out.close();
    wake_write.close();
    if (log_thread.joinable()) {
        log_thread.join();
    }
}

//
// exchange
//

pflash_child::io_status pflash_child::idle_status() {
    pollfd readable { out.fd, POLLIN, 0 };
    if (poll_until(&readable, 1, clock::now()) > 0) {
        char byte;
        const ssize_t n = read(out.fd, &byte, 1);
        if (n > 0) {
            return IO_UNASKED;
        }
        if (n == 0) {
            return IO_ENDED;
        }
    }
    return has_exited() ? IO_ENDED : IO_LINE;
}

pflash_child::io_status pflash_child::exchange(const std::string & request, size_t limit_bytes, clock::time_point deadline, std::string & line) {
    log_lines_left = LOG_LINES;
    line.clear();
    std::vector<char> buffer(READ_BYTES);
    size_t sent  = 0;
    bool   whole = false; // the line has ended
    while (sent < request.size() || !whole) {
        if (clock::now() >= deadline) {
            return IO_TIMEOUT;
        }
        pollfd fds[2] = { { out.fd, POLLIN, 0 }, { in.fd, POLLOUT, 0 } };
        const int ready = poll_until(fds, sent < request.size() ? 2 : 1, deadline);
        if (ready <= 0) {
            return ready == 0 ? IO_TIMEOUT : IO_ENDED;
        }
        if (fds[1].revents) {
            const ssize_t n = write_quietly(in.fd, request.data() + sent, request.size() - sent);
            if (n < 0 && errno != EAGAIN && errno != EINTR) {
                return IO_ENDED;
            }
            sent += n > 0 ? n : 0;
        }
        if (!fds[0].revents) {
            continue;
        }
        const ssize_t n = read(out.fd, buffer.data(), buffer.size());
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return IO_ENDED;
        }
        if (n > 0) {
            if (whole) {
                return IO_UNASKED;
            }
            const char * feed = (const char *) std::memchr(buffer.data(), '\n', n);
            const size_t part = feed ? feed - buffer.data() : n;
            if (line.size() + part > limit_bytes) {
                return IO_TOO_LONG;
            }
            line.append(buffer.data(), part);
            whole = feed != nullptr;
            if (whole && part + 1 < (size_t) n) {
                return IO_UNASKED;
            }
        }
    }
    return IO_LINE;
}

//
// log
//

void pflash_child::drain_log() {
    log_lines_left = LOG_LINES;
    std::vector<char> buffer(READ_BYTES);
    bool   stopping = false;
    size_t last     = 0;
    while (!stopping || (err.fd >= 0 && last < LOG_LAST_BYTES)) {
        pollfd fds[2] = { { wake_read.fd, POLLIN, 0 }, { err.fd, POLLIN, 0 } }; // a negative one is ignored
        if (!stopping) {
            if (poll(fds, 2, -1) < 0 && errno != EINTR && errno != EAGAIN) {
                break;
            }
            stopping = fds[0].revents != 0;
        }
        if (!stopping && !fds[1].revents) {
            continue;
        }
        const ssize_t n = read(err.fd, buffer.data(), buffer.size());
        if (n > 0) {
            log_bytes(buffer.data(), n);
            last += stopping ? n : 0;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            err.close();
        } else if (stopping && errno == EAGAIN) {
            break;
        }
    }
    if (!log_text.empty()) {
        log_line();
    }
}

void pflash_child::log_bytes(const char * data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = data[i];
        if (c == '\n') {
            log_line();
        } else if (log_text.size() < LOG_LINE_BYTES) {
            log_text.push_back((c < 0x20 && c != '\t') || c == 0x7f ? '?' : (char) c);
        }
    }
}

void pflash_child::log_line() {
    const int left = log_lines_left--;
    if (left > 0) {
        LOG_INF("pflash helper: stderr: %s\n", log_text.c_str());
    } else if (left == 0) {
        LOG_WRN("pflash helper: more than %d lines on stderr; the rest is dropped until the next request\n", LOG_LINES);
    }
    log_text.clear();
}
