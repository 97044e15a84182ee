/* The checks that need no daemon, in the order that the conformance list gives (ENV-28).
 *
 * The daemon repeats them in cni/request/request.py; cni/vectors/ is the one table for both.
 */
#ifndef CALICO_CHECK_H
#define CALICO_CHECK_H

#include <fcntl.h>
#include <sched.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "call.h"

/* Reading stdin */

/* Read stdin to its end; false at `deadline`, with what came so far. */
static bool read_stdin(struct buffer *out, int64_t deadline)
{
    if (call.no_stdin) {
        errno = EBADF;
        return false;
    }
    while (out->length <= FRAME_LIMIT) {
        struct pollfd ready = {.fd = 0, .events = POLLIN};
        int count = poll(&ready, 1, left_ms(deadline));
        if (count == 0) {
            errno = ETIMEDOUT;
            return false;
        }
        if (count < 0 && errno != EINTR)
            return false;
        if (count < 0 || !buffer_reserve(out, STDIN_CHUNK))
            need_memory(out);
        if (count < 0)
            continue;
        ssize_t got = read(0, out->at + out->length, out->room - out->length);
        if (got == 0)
            return true;
        if (got > 0)
            out->length += (size_t)got;
        else if (errno != EINTR && errno != EAGAIN)
            return false;
    }
    return true;
}

/* Keep `quoted` as the version of error objects, when it is a short string (ERR-02, CFG-05). */
static void learn_version(bool known, struct text quoted)
{
    struct buffer plain = {0};
    if (!known || text_is(quoted, "\"\"")) {
        strcpy(call.version, "0.2.0");
    } else if (*quoted.at == '"' && json_decode(quoted, &plain) &&
               plain.length < sizeof call.version && !memchr(plain.at, '\0', plain.length)) {
        memcpy(call.version, plain.at, plain.length);
        call.version[plain.length] = '\0';
    }
    buffer_free(&plain);
}

/* For answers that do not depend on stdin: learn its cniVersion if it is there at once. */
static bool peek_version(void)
{
    struct buffer input = {0};
    struct text config, value;
    const char *why;
    size_t offset;
    int64_t limit = call.start + PEEK_MS;
    read_stdin(&input, limit < call.deadline ? limit : call.deadline);
    if (!json_check((struct text){input.at, input.length}, &config, &why, &offset) ||
        *config.at != '{')
        return false;
    bool known = json_get(config, "cniVersion", &value);
    learn_version(known, value);
    return known && !text_is(value, "\"\"");
}

/* End with a fault of the environment; the error object has stdin's version if it is there. */
static _Noreturn void fail_environment(const char *msg, const char *details)
{
    peek_version();
    fail_text(ENVIRONMENT, msg, text_of(details));
}

/* Environment */

static bool is_name(struct text text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    for (size_t i = 0; i < text.length; i++) {
        const char *at = text.at[i] ? strchr(allowed, text.at[i]) : NULL;
        if (!at || (i == 0 && at - allowed >= 62))
            return false;
    }
    return text.length > 0;
}

/* Whether a character is white space to the reference library (Unicode White_Space). */
static bool is_space(const char *at, size_t length)
{
    static const char *const wide[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80",
                                       "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf",
                                       "\xe2\x81\x9f", "\xe3\x80\x80"};
    if (length <= 1)
        return *at == ' ' || (*at >= '\t' && *at <= '\r');
    if (length == 3 && memcmp(at, "\xe2\x80", 2) == 0 && (at[2] & 0xff) <= 0x8a)
        return true;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (length == strlen(wide[i]) && memcmp(at, wide[i], length) == 0)
            return true;
    return false;
}

static void check_ifname(const char *name)
{
    size_t length = strlen(name);
    if (length > 15)
        fail_environment("interface name is too long",
                         "interface name should be less than 16 characters");
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        fail_environment("interface name is . or ..", "");
    for (size_t i = 0, step; i < length; i += step) {
        step = utf8_length(name + i, length - i);
        step = step ? step : 1;
        if (name[i] == '/' || name[i] == ':' || is_space(name + i, step))
            fail_environment("interface name contains / or : or whitespace characters", "");
    }
}

static void check_environment(void)
{
    static const struct {
        const char *name, *commands;
    } required[] = {{"CNI_CONTAINERID", " ADD CHECK DEL "}, {"CNI_NETNS", " ADD CHECK "},
                    {"CNI_IFNAME", " ADD CHECK DEL "}, {"CNI_PATH", " GC "}};
    bool pod = is("ADD") || is("CHECK") || is("DEL");
    char msg[192] = "";
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        bool needed = (pod || is("GC")) && strstr(required[i].commands, call.command);
        if (!needed || *variable(required[i].name))
            continue;
        strcat(msg, *msg ? "," : "required env variables [");
        strcat(msg, required[i].name);
    }
    if (*msg)
        fail_environment(strcat(msg, "] missing"), "");
    if (pod && !is_name(text_of(variable("CNI_CONTAINERID"))))
        fail_environment("invalid characters in containerID", variable("CNI_CONTAINERID"));
    if (pod)
        check_ifname(variable("CNI_IFNAME"));
    for (char **each = environ; *each; each++)
        if (strncmp(*each, "CNI_", 4) == 0 && !utf8_valid(*each, strlen(*each))) {
            snprintf(msg, sizeof msg, "%.*s is not valid UTF-8", (int)strcspn(*each, "="), *each);
            fail_environment(msg, "");
        }
}

/* Configuration */

/* Read "major.minor.micro" as one number; -1 when it is not one. */
static int64_t version_number(struct text version)
{
    int64_t number = 0;
    const char *at = version.at, *end = at + version.length;
    for (int part = 0; part < 3; part++) {
        int64_t value = 0;
        bool present = part == 0 || (at < end && *at == '.' && at++);
        if (present) {
            int sign = at < end && *at == '-' ? -1 : 1, digits = 0;
            at += at < end && (*at == '-' || *at == '+');
            for (; at < end && *at >= '0' && *at <= '9' && digits < 6; digits++)
                value = value * 10 + (*at++ - '0');
            if (digits == 0)
                return -1;
            value = sign < 0 ? 0 : value;
        }
        number = number * 1000000 + value;
    }
    return at == end ? number : -1;
}

static bool is_supported(struct text version)
{
    char quoted[16];
    if (version.length != 5 || memchr(version.at, '\0', version.length))
        return false;
    snprintf(quoted, sizeof quoted, "\"%.*s\"", (int)version.length, version.at);
    return strstr(VERSIONS, quoted) != NULL;
}

static void check_version(void)
{
    static const struct {
        const char *command, *since;
    } later[] = {{"CHECK", "0.4.0"}, {"GC", "1.1.0"}, {"STATUS", "1.1.0"}};
    struct text version = call.config_version;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (!is(later[i].command))
            continue;
        int64_t number = version_number(version);
        if (number < 0)
            fail_text(DECODING, "cniVersion is not a version", version);
        if (number < version_number(text_of(later[i].since)))
            fail(INCOMPATIBLE, "config version does not allow %s", call.command);
    }
    if (is_supported(version))
        return;
    char details[512];
    struct text brief = shortened(version, 256);
    snprintf(details, sizeof details, "config is \"%.*s\", plugin supports [%s]", (int)brief.length,
             brief.at, "\"0.1.0\" \"0.2.0\" \"0.3.0\" \"0.3.1\" \"0.4.0\" \"1.0.0\" \"1.1.0\"");
    fail_text(INCOMPATIBLE, "incompatible CNI versions", text_of(details));
}

static void check_type(struct text object, const char *where)
{
    struct text value;
    if (!json_get(object, "type", &value) || *value.at != '"')
        return;
    struct text type = decoded(value);
    char msg[96];
    snprintf(msg, sizeof msg, "invalid network configuration: %s contains a slash", where);
    if (memchr(type.at, '/', type.length) || memchr(type.at, '\\', type.length))
        fail_text(CONFIG, msg, type);
}

/* Read the configuration and check it in the order of EXE-2. */
static void check_config(void)
{
    static const char *const known[] = {"ADD", "DEL", "CHECK", "GC", "STATUS"};
    struct buffer input = {0};
    struct text value;
    const char *why;
    size_t offset;
    if (!read_stdin(&input, call.deadline))
        fail(IO, "error reading from stdin: %s", words(errno));
    if (input.length > FRAME_LIMIT)
        fail(DECODING, "error unmarshall network config: larger than 2 MiB");
    buffer_trim(&input);
    call.config = (struct text){input.at, input.length};
    if (!json_check((struct text){input.at, input.length}, &call.config, &why, &offset))
        fail(DECODING, "error unmarshall network config: %s at byte %zu", why, offset);
    if (*call.config.at != '{')
        fail(DECODING, "error unmarshall network config: not a JSON object");
    bool versioned = json_get(call.config, "cniVersion", &value);
    call.config_version = versioned && *value.at == '"' ? decoded(value) : (struct text){"", 0};
    learn_version(versioned, value);
    bool odd_version = versioned && *value.at != '"';
    bool named = json_get(call.config, "name", &value);
    if (named && *value.at != '"')
        fail(DECODING, "error unmarshall network config: name is not a string");
    call.network = named ? decoded(value) : (struct text){"", 0};
    if (call.network.length == 0)
        fail(CONFIG, "missing network name");
    if (!is_name(call.network))
        fail_text(CONFIG, "invalid characters found in network name", call.network);
    bool spoken = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        spoken |= is(known[i]);
    if (!spoken)
        fail(ENVIRONMENT, "unknown CNI_COMMAND: %s", call.command);
    if (odd_version)
        fail(DECODING, "error unmarshall network config: cniVersion is not a string");
    if (call.config_version.length == 0)
        call.config_version = text_of("0.1.0");
    check_version();
    if (is("DEL"))
        return;
    if (json_get(call.config, "plugins", &value) && *value.at == '[')
        fail(CONFIG, "stdin holds a whole network list (it has plugins); "
                     "a plugin gets one plugin's object");
    check_type(call.config, "type");
    if (json_get(call.config, "ipam", &value) && *value.at == '{')
        check_type(value, "ipam.type");
}

/* The pod's network namespace */

static void drop_netns(void)
{
    if (call.netns >= 0)
        close(call.netns);
    call.netns = -1;
}

static bool same_netns(int other)
{
    struct stat ours, theirs;
    return stat("/proc/self/ns/net", &ours) == 0 && fstat(other, &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* An emulated kernel may not know what kind a namespace is; the daemon, which enters it, does. */
static bool is_netns(int descriptor)
{
    struct statfs about;
    if (fstatfs(descriptor, &about) != 0 || (unsigned long)about.f_type != NSFS)
        return false;
    int kind = ioctl(descriptor, NS_GET_NSTYPE_REQUEST);
    return kind == CLONE_NEWNET || (kind < 0 && (errno == ENOTTY || errno == ENOSYS));
}

static void open_netns(void)
{
    const char *path = variable("CNI_NETNS"), *override = variable("CNI_NETNS_OVERRIDE");
    bool pod = is("ADD") || is("CHECK") || is("DEL");
    if (!pod || strcmp(call.name, "calico") != 0 || !*path)
        return;
    call.netns = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int problem = errno;
    bool good = call.netns >= 0 && is_netns(call.netns);
    bool absent = call.netns < 0 && (problem == ENOENT || problem == ENOTDIR || problem == ESRCH);
    if (!good && (is("DEL") || (absent && is("CHECK")))) {
        drop_netns(); /* the daemon knows what is left of the container */
        return;
    }
    if (absent)
        fail_text(UNKNOWN, "the network namespace of CNI_NETNS does not exist", text_of(path));
    if (call.netns < 0 &&
        (problem == EACCES || problem == EPERM || problem == EMFILE || problem == ENFILE))
        fail(INTERNAL, "failed to open netns %s: %s", path, words(problem));
    if (!good)
        fail_text(ENVIRONMENT, "CNI_NETNS is not a network namespace", text_of(path));
    if (strcmp(override, "1") != 0 && strcasecmp(override, "TRUE") != 0 && same_netns(call.netns))
        fail(OWN_NETNS, "plugin's netns and netns from CNI_NETNS should not be the same");
}

#endif
