/* `calico` and `calico-ipam`: the CNI executable that a container runtime calls.
 *
 * It lives about a millisecond. What needs no state it does alone: it checks the environment and
 * the configuration, answers VERSION, and holds the offline paths. What needs state it hands to
 * the daemon `calico-cni` over /var/run/calico/private/cni.sock, together with a descriptor of
 * the pod's network namespace, because only a process on the host may resolve CNI_NETNS.
 *
 * Invariants (docs/cni-protocol.md; tests/cni/test_executable*.py and the vectors):
 *   EXE-1  A failure is exactly one JSON error object on stdout and exit status 1; a success of
 *          DEL, CHECK, GC and STATUS prints nothing.
 *   EXE-2  The earliest fault wins: environment, stdin, JSON, name, command, version, namespace.
 *   EXE-3  No text of ours repeats the configuration: it holds secrets.
 *   EXE-4  The daemon away: ADD, CHECK, GC say 11, STATUS says 50, DEL is queued on disk.
 */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "check.h"
#include "wire.h"

/* The daemon is away, or stopped in the middle */

static void put_environment(struct buffer *out)
{
    const char *before = "{";
    for (char **each = environ; *each; each++) {
        size_t length = strcspn(*each, "=");
        char name[128];
        if (strncmp(*each, "CNI_", 4) != 0 || length >= sizeof name || (*each)[length] != '=')
            continue;
        memcpy(name, *each, length);
        name[length] = '\0';
        if (getenv(name) != *each + length + 1)
            continue;
        buffer_put(out, before);
        json_quote(out, (struct text){name, length});
        buffer_put(out, ":");
        json_quote(out, text_of(*each + length + 1));
        before = ",";
    }
    buffer_put(out, *before == '{' ? "{}" : "}");
}

static void put_common(struct buffer *out)
{
    buffer_put(out, "\"argv0\":");
    json_quote(out, text_of(call.name));
    buffer_put(out, ",\"env\":");
    put_environment(out);
    buffer_put(out, ",\"stdin\":");
    json_quote(out, call.config);
}

/* Write a DEL down for the daemon to finish; false with errno. */
static bool queue_delete(void)
{
    const char *other = variable("CNI_CALICO_PENDING"), *path = *other ? other : PENDING_PATH;
    struct buffer key = {0}, content = {0};
    char name[80], tail[64];
    buffer_add(&key, call.name, strlen(call.name) + 1);
    buffer_add(&key, call.network.at, call.network.length);
    buffer_add(&key, "", 1);
    buffer_add(&key, variable("CNI_CONTAINERID"), strlen(variable("CNI_CONTAINERID")) + 1);
    buffer_put(&key, variable("CNI_IFNAME"));
    need_memory(&key);
    sha256_hex((struct text){key.at, key.length}, name);
    strcat(name, ".json");
    buffer_put(&content, "{\"version\":1,");
    put_common(&content);
    snprintf(tail, sizeof tail, ",\"time\":%lld}\n", (long long)time(NULL));
    buffer_put(&content, tail);
    need_memory(&content);
    return queue_store(path, name, (struct text){content.at, content.length});
}

/* End a call that the daemon did not answer, `why`. */
static _Noreturn void give_up(const char *why)
{
    if (is("STATUS"))
        fail(UNAVAILABLE, "the daemon calico-cni on this node does not answer: %s", why);
    if (!is("DEL"))
        fail(AGAIN, "the daemon calico-cni on this node does not answer: %s", why);
    if (!queue_delete())
        fail(AGAIN, "the daemon calico-cni does not answer (%s), and the DEL cannot be queued: %s",
             why, words(errno));
    dprintf(2, "%s: DEL queued, the daemon calico-cni does not answer: %s\n", call.name, why);
    _exit(0);
}

/* Hello and request in one; hello alone, and false, when the daemon would not take a frame of the
 * request's size. */
static bool put_request(struct buffer *out)
{
    char head[128];
    size_t hello, from = frame_begin(out);
    buffer_put(out, "{\"type\":\"hello\",\"process\":\"executable\",\"version\":1,"
                    "\"release\":\"" RELEASE "\",\"features\":[\"exec\",\"undelivered\"]}");
    frame_end(out, from);
    hello = out->length;
    from = frame_begin(out);
    buffer_put(out, "{\"type\":\"request\",");
    put_common(out);
    int left = left_ms(call.deadline);
    snprintf(head, sizeof head, ",\"deadline\":%d.%03d,\"has_netns\":%s}", left / 1000, left % 1000,
             call.netns >= 0 ? "true" : "false");
    buffer_put(out, head);
    if (frame_end(out, from))
        return true;
    out->length = hello;
    return false;
}

/* Connect and hand the request over; the socket, or -1. What follows connect(2) at once finds the
 * daemon still waking up: it then wakes once, and its first look shows it everything. Where connect
 * had to wait, the request is written anew: it says how much time is left. */
static int send_request(const char **why)
{
    struct buffer out = {0};
    bool fits = put_request(&out);
    int64_t written = now_ms();
    int sock = connect_daemon(why);
    if (sock >= 0 && now_ms() > written + WAITED_MS) {
        out.length = 0;
        fits = put_request(&out);
    }
    bool sent = sock >= 0 && send_all(sock, (struct text){out.at, out.length}, call.netns);
    if (sent && !fits)
        fail(DECODING, "error unmarshall network config: too large for the daemon's socket");
    if (sock >= 0 && !sent) {
        *why = "it closed the connection";
        close(sock);
        sock = -1;
    }
    buffer_free(&out);
    return sock;
}

static void run_delegate(int sock, struct text body)
{
    struct delegate_result result = {0};
    struct text given, plugin = frame_text(body, "plugin"), input = frame_text(body, "stdin");
    struct buffer out = {0};
    char number[128];
    int64_t limit = now_ms() + (int64_t)(1000 * frame_number(body, "timeout", 60));
    limit = limit < call.deadline ? limit : call.deadline;
    char **env = json_get(body, "env", &given) && *given.at == '{'
                     ? delegate_environment(environ, given) : NULL;
    if (env)
        delegate_run(getenv("CNI_PATH"), plugin.at, env, input, limit, &result);
    else
        delegate_fail(&result, INTERNAL, "cannot run plugin \"%s\": %s", plugin.at,
                      "bad environment");
    need_memory(&result.out);
    size_t from = frame_begin(&out);
    snprintf(number, sizeof number,
             "{\"type\":\"exec_result\",\"id\":%ld,\"status\":%d,\"stdout\":",
             (long)frame_number(body, "id", 0), result.status);
    buffer_put(&out, number);
    json_quote(&out, (struct text){result.out.at, result.status < 0 ? 0 : result.out.length});
    snprintf(number, sizeof number, ",\"code\":%d,\"error\":", result.code);
    buffer_put(&out, number);
    json_quote(&out, text_of(result.error));
    buffer_put(&out, "}");
    if (!frame_end(&out, from) || !send_all(sock, (struct text){out.at, out.length}, -1))
        give_up("it closed the connection");
    buffer_free(&out);
    buffer_free(&result.out);
}

/* Print the daemon's answer and end; an ADD that cannot be reported is given back. */
static _Noreturn void deliver(int sock, struct text body)
{
    struct text out = frame_text(body, "stdout"), log = frame_text(body, "stderr"), object;
    struct buffer frame = {0};
    const char *why;
    size_t offset;
    bool failed = frame_number(body, "exit", 1) != 0, silent = !failed && !is("ADD");
    bool sound = silent || (json_check(out, &object, &why, &offset) && *object.at == '{');
    queue_write_all(2, shortened(log, 4096));
    if (sound && (silent || print(out)))
        _exit(failed);
    size_t from = frame_begin(&frame);
    buffer_put(&frame, "{\"type\":\"undelivered\",\"reason\":\"stdout\"}");
    frame_end(&frame, from);
    send_all(sock, (struct text){frame.at, frame.length}, -1);
    if (!sound)
        fail(INTERNAL, "the daemon calico-cni gave an answer that is not a JSON object");
    _exit(1);
}

/* Hand the call over. A daemon that is just restarting gets RETRY_MS. */
static _Noreturn void ask_daemon(void)
{
    struct stream stream = {0};
    struct text body;
    const char *why = "";
    int64_t until = now_ms() + RETRY_MS;
    until = until < call.deadline ? until : call.deadline;
    int sock = -1;
    for (long pause = 10000000;; pause = 50000000) {
        sock = send_request(&why);
        if (sock >= 0 && receive_frame(sock, &stream, &body, &why))
            break;
        if (sock >= 0)
            close(sock);
        stream.in.length = stream.taken = 0;
        if (now_ms() >= until)
            give_up(why);
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
    if (!frame_is(body, "hello") || frame_number(body, "version", 0) != 1)
        give_up("it speaks another protocol");
    while (receive_frame(sock, &stream, &body, &why)) {
        if (frame_is(body, "result"))
            deliver(sock, body);
        if (frame_is(body, "exec"))
            run_delegate(sock, body);
    }
    give_up(why);
}

/* The entrance */

/* Put something harmless where 0, 1 or 2 is closed, so that no socket of ours becomes stdin. */
static void plug_standard_descriptors(void)
{
    call.no_stdin = fcntl(0, F_GETFD) < 0;
    call.no_stdout = fcntl(1, F_GETFD) < 0;
    int ends[2], plug;
    if (!call.no_stdin && !call.no_stdout && fcntl(2, F_GETFD) >= 0)
        return;
    do {
        plug = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (plug < 0 && pipe2(ends, O_CLOEXEC) == 0)
            plug = ends[1];
    } while (plug >= 0 && plug < 2);
    if (plug > 2)
        close(plug);
}

static int answer_flag(const char *flag)
{
    if (strcmp(flag, "-v") == 0 || strcmp(flag, "--version") == 0) {
        print(text_of(RELEASE "\n"));
        return 0;
    }
    call.start = call.deadline = now_ms();
    fail_text(CALICO, "unknown flag", text_of(flag));
}

static int answer_version(void)
{
    struct buffer out = {0};
    if (!peek_version())
        strcpy(call.version, NEWEST);
    buffer_put(&out, "{\"cniVersion\":");
    json_quote(&out, text_of(call.version));
    buffer_put(&out, ",\"supportedVersions\":[" VERSIONS "]}\n");
    need_memory(&out);
    return print((struct text){out.at, out.length}) ? 0 : 1;
}

static int about(void)
{
    dprintf(2, "CNI plugin %s v" RELEASE "\nCNI protocol versions supported: %s\n", call.name,
            "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0");
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = argc > 0 ? argv[0] : "calico";
    size_t length = strlen(path);
    call.name = length >= 5 && strcmp(path + length - 5, "-ipam") == 0 ? "calico-ipam" : "calico";
    call.command = variable("CNI_COMMAND");
    signal(SIGPIPE, SIG_IGN);
    plug_standard_descriptors();
    if (argc == 2 && argv[1][0] == '-')
        return answer_flag(argv[1]);
    if (!*call.command)
        return about();
    call.start = now_ms();
    call.deadline = call.start + (is("DEL")      ? DEADLINE_DEL_MS
                                  : is("STATUS") ? DEADLINE_STATUS_MS
                                                 : DEADLINE_MS);
    if (is("VERSION"))
        return answer_version();
    check_environment();
    check_config();
    open_netns();
    if (is("ADD") && call.no_stdout)
        fail(IO, "stdout is closed: the result could not be reported");
    ask_daemon();
}
