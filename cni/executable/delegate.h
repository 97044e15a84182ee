/* Delegate plugins (host-local, static, dhcp): found in CNI_PATH and run on the host.
 *
 * They keep their state on the host's disk and expect the host's paths, so this executable runs
 * them, never the daemon. A delegate gets our environment with the `CNI_*` that the daemon says,
 * its stdin from a pipe, and our stderr. It dies with us, and is killed when its time is up.
 */
#ifndef CALICO_DELEGATE_H
#define CALICO_DELEGATE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

#define DELEGATE_OUTPUT_LIMIT (1024 * 1024)

struct delegate_result {
    int status;          /* exit status, 128 + signal, or -1: see code and error */
    int code;            /* CNI error code when status is -1 */
    char error[1024];
    struct buffer out;
};

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline int left_ms(int64_t deadline)
{
    int64_t left = deadline - now_ms();
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

static inline void delegate_fail(struct delegate_result *result, int code, const char *format,
                                 const char *what, const char *why)
{
    result->status = -1;
    result->code = code;
    snprintf(result->error, sizeof result->error, format, what, why);
}

/* Find the first executable regular file `type` in the directories of `search`. */
static inline bool delegate_find(const char *search, const char *type, char *path, size_t room)
{
    while (*search) {
        size_t length = strcspn(search, ":");
        struct stat about;
        int written = snprintf(path, room, "%.*s/%s", (int)length, search, type);
        if (length > 0 && written > 0 && (size_t)written < room && stat(path, &about) == 0 &&
            S_ISREG(about.st_mode) && access(path, X_OK) == 0)
            return true;
        search += length + (search[length] == ':');
    }
    return false;
}

static inline char *delegate_variable(struct text key, struct text value)
{
    struct buffer out = {0};
    json_decode(key, &out);
    buffer_put(&out, "=");
    json_decode(value, &out);
    bool whole = !out.failed && !memchr(out.at, '\0', out.length);
    buffer_add(&out, "", 1);
    if (whole && !out.failed)
        return out.at;
    buffer_free(&out);
    return NULL;
}

/* Our environment with every CNI_* replaced by the members of `given`; NULL when it cannot be. */
static inline char **delegate_environment(char **own, struct text given)
{
    size_t count = 1, used = 0;
    struct text key, value;
    for (char **each = own; *each; each++)
        count++;
    for (size_t at = 0; json_next(given, &at, &key, &value);)
        count++;
    char **made = calloc(count, sizeof *made);
    for (char **each = own; made && *each; each++)
        if (strncmp(*each, "CNI_", 4) != 0)
            made[used++] = *each;
    for (size_t at = 0; made && json_next(given, &at, &key, &value);)
        if (*value.at != '"' || !(made[used++] = delegate_variable(key, value)))
            return NULL;
    return made;
}

static inline void delegate_child(const char *path, char **env, int in, int out, int report,
                                  pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0)
        execve(path, (char *[]){(char *)path, NULL}, env);
    int problem = errno;
    ssize_t ignored = write(report, &problem, sizeof problem);
    (void)ignored;
    _exit(127);
}

/* Feed `input` and gather the output until the delegate closes it; false when time is up. */
static inline bool delegate_talk(int in, int out, struct text input, struct buffer *gathered,
                                 int64_t deadline)
{
    fcntl(in, F_SETFL, O_NONBLOCK);
    bool done = false;
    while (!done) {
        if (in >= 0 && input.length == 0) {
            close(in);
            in = -1;
        }
        struct pollfd ready[2] = {{.fd = out, .events = POLLIN}, {.fd = in, .events = POLLOUT}};
        int count = poll(ready, 2, left_ms(deadline));
        if (count < 0 && errno != EINTR)
            break;
        if (count == 0)
            break;
        if (count > 0 && ready[1].revents) {
            ssize_t written = write(in, input.at, input.length);
            if (written >= 0) {
                input.at += written;
                input.length -= (size_t)written;
            } else if (errno != EAGAIN && errno != EINTR) {
                input.length = 0;
            }
        }
        if (count > 0 && ready[0].revents) {
            char chunk[16384];
            ssize_t got = read(out, chunk, sizeof chunk);
            if (got > 0)
                buffer_add(gathered, chunk, (size_t)got);
            else if (got == 0 || (errno != EINTR && errno != EAGAIN))
                done = true;
        }
        if (gathered->failed || gathered->length > DELEGATE_OUTPUT_LIMIT)
            break;
    }
    if (in >= 0)
        close(in);
    return done;
}

static inline int delegate_wait(pid_t child, int64_t deadline)
{
    int status = 0;
    for (long pause = 100000;; pause = pause < 10000000 ? pause * 2 : pause) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (ended < 0 && errno != EINTR)
            return -1;
        if (left_ms(deadline) == 0)
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

static inline void delegate_run(const char *search, const char *type, char **env, struct text input,
                                int64_t deadline, struct delegate_result *result)
{
    char path[PATH_MAX];
    if (!*type || !strcmp(type, ".") || !strcmp(type, "..") || strpbrk(type, "/\\") ||
        !strcmp(type, "calico")) {
        delegate_fail(result, 7, "invalid plugin type \"%s\"%s", type, "");
        return;
    }
    if (!search || !*search) {
        delegate_fail(result, 4, "required env variables [CNI_PATH] missing%s%s", "", "");
        return;
    }
    if (!delegate_find(search, type, path, sizeof path)) {
        delegate_fail(result, 999, "failed to find plugin \"%s\" in path [%s]", type, search);
        return;
    }
    int in[2], out[2], report[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(report, O_CLOEXEC)) {
        delegate_fail(result, 999, "cannot run plugin \"%s\": %s", type, strerror(errno));
        return;
    }
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        delegate_child(path, env, in[0], out[1], report[1], parent);
    close(in[0]);
    close(out[1]);
    close(report[1]);
    if (child < 0) {
        close(in[1]);
        delegate_fail(result, 999, "cannot run plugin \"%s\": %s", type, strerror(errno));
    } else {
        int problem = 0;
        bool ended = delegate_talk(in[1], out[0], input, &result->out, deadline);
        int status = ended ? delegate_wait(child, deadline) : -1;
        if (status < 0) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            bool large = result->out.length > DELEGATE_OUTPUT_LIMIT;
            delegate_fail(result, large ? 999 : 11, "plugin \"%s\" was killed: %s", type,
                          large ? "it printed more than 1 MiB" : "its time was up");
        } else if (read(report[0], &problem, sizeof problem) == sizeof problem) {
            delegate_fail(result, 999, "cannot run plugin \"%s\": %s", type, strerror(problem));
        } else {
            result->status = status;
        }
    }
    close(out[0]);
    close(report[0]);
}

#endif
