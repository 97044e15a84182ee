/* One call of the plugin: what was asked, and how it is answered. */
#ifndef CALICO_CALL_H
#define CALICO_CALL_H

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "delegate.h"
#include "json.h"
#include "queue.h"

extern char **environ;

#ifndef RELEASE
#define RELEASE "0.1.0"
#endif
#ifndef SOCKET_PATH
#define SOCKET_PATH "/var/run/calico/private/cni.sock"
#endif
#ifndef PENDING_PATH
#define PENDING_PATH "/var/lib/calico/cni/pending"
#endif
#ifndef DEADLINE_MS /* our own, below every runtime's; DEL must never hold a runtime for long */
#define DEADLINE_MS 60000
#define DEADLINE_DEL_MS 25000
#define DEADLINE_STATUS_MS 10000
#else
#define DEADLINE_DEL_MS DEADLINE_MS
#define DEADLINE_STATUS_MS DEADLINE_MS
#endif
#ifndef RETRY_MS /* how long a daemon may be restarting */
#define RETRY_MS 1000
#endif
#define WAITED_MS 20  /* a connect that took longer waited for the daemon */
#define PEEK_MS 250   /* how long an answer that needs no stdin waits for it */
#define STDIN_CHUNK 16384
#define FRAME_LIMIT (2u * 1024 * 1024)
#define NSFS 0x6e736673
#define NS_GET_NSTYPE_REQUEST 0xb703 /* NS_GET_NSTYPE of linux/nsfs.h */
#define NEWEST "1.1.0"
#define VERSIONS "\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\""

enum code { INCOMPATIBLE = 1, UNKNOWN = 3, ENVIRONMENT = 4, IO = 5, DECODING = 6, CONFIG = 7,
            OWN_NETNS = 8, AGAIN = 11, UNAVAILABLE = 50, CALICO = 100, INTERNAL = 999 };

static struct {
    const char *name;    /* calico or calico-ipam */
    const char *command; /* CNI_COMMAND */
    char version[65];    /* cniVersion for error objects */
    int64_t start, deadline;
    bool no_stdin, no_stdout;
    struct text config, network, config_version;
    int netns;
} call = {.version = NEWEST, .netns = -1};

static bool is(const char *command)
{
    return strcmp(call.command, command) == 0;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

/* Words for errno; runtimes take some of libc's as "nothing to delete" (ERR-17). */
static const char *words(int problem)
{
    return problem == ENOENT      ? "it does not exist"
           : problem == ETIMEDOUT ? "nothing came in time"
                                  : strerror(problem);
}

/* Answers */

static bool print(struct text text)
{
    return !call.no_stdout && queue_write_all(1, text);
}

/* At most `limit` bytes of `text`, not cut inside a character. */
static struct text shortened(struct text text, size_t limit)
{
    if (text.length <= limit)
        return text;
    text.length = limit;
    while (text.length > 0 && (text.at[text.length] & 0xc0) == 0x80)
        text.length--;
    return text;
}

/* Print the error object and one line on stderr, and end. Needs no memory. */
static _Noreturn void fail_text(int code, const char *msg, struct text details)
{
    static char storage[8192];
    struct buffer out = {.at = storage, .room = sizeof storage, .fixed = true};
    char head[64], line[513];
    struct text brief = shortened(text_of(msg), 512);
    for (size_t i = 0; i < brief.length; i++)
        line[i] = (unsigned char)brief.at[i] < 0x20 ? ' ' : brief.at[i];
    brief.at = line;
    details = shortened(details, 512);
    buffer_put(&out, "{\"cniVersion\":");
    json_quote(&out, text_of(call.version));
    snprintf(head, sizeof head, ",\"code\":%d,\"msg\":", code);
    buffer_put(&out, head);
    json_quote(&out, brief);
    if (details.length > 0) {
        buffer_put(&out, ",\"details\":");
        json_quote(&out, details);
    }
    buffer_put(&out, "}\n");
    print((struct text){out.at, out.length});
    dprintf(2, "%s: code %d: %.*s\n", call.name, code, (int)brief.length, brief.at);
    _exit(1);
}

__attribute__((format(printf, 2, 3))) static _Noreturn void fail(int code, const char *format, ...)
{
    char msg[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(msg, sizeof msg, format, arguments);
    va_end(arguments);
    fail_text(code, msg, (struct text){0});
}

static void need_memory(const struct buffer *buffer)
{
    if (buffer->failed)
        fail(INTERNAL, "out of memory");
}

/* What a quoted string says, with a NUL behind it. */
static struct text decoded(struct text quoted)
{
    struct buffer plain = {0};
    json_decode(quoted, &plain);
    buffer_add(&plain, "", 1);
    need_memory(&plain);
    return (struct text){plain.at, plain.length - 1};
}

#endif
