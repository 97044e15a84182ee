/* fanout WATCHES REQUESTS ADDRESS:PORT...: many nodes' watches of etcd, in one process.

   Each node is one connection in plain HTTP/2 with one stream of etcdserverpb.Watch/Watch, on which
   the bytes of the file REQUESTS are sent: WATCHES create requests as gRPC frames them. Node i
   connects to address i modulo the number of addresses. Nothing that arrives is kept: events are
   counted, and from a value with "sent":"<20 digits>" the milliseconds since that moment of the
   monotonic clock are taken.

   Commands come on standard input, a line each, and each is answered by a line:
     open NODES JITTER      connect so many more nodes, spread over JITTER milliseconds; answered
                            with the milliseconds until all of their watches stand
     close                  close all connections
     requests FILE          what a node that is opened sends from now on
     mark                   begin to count anew
     until EVENTS LIMIT     answered when every node had so many events since the mark, or after
                            LIMIT milliseconds: how many nodes lack some, and the milliseconds
     report                 JSON: what was received since the mark */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LONGEST 120000 /* milliseconds in the histogram */
#define CHUNK (1 << 18)

struct node {
    int fd, created;
    uint64_t events;
    double due; /* when it connects; 0: it has */
    size_t size, room;
    unsigned char *frames; /* what is not a whole HTTP/2 frame yet */
    size_t message_size, message_room;
    unsigned char *message; /* what is not a whole gRPC message yet */
};

static struct node *nodes;
static int count, standing, lost, watches, addresses, poller;
static struct sockaddr_in *to;
static unsigned char *requests;
static size_t requests_size;
static uint64_t events, messages, bytes, stamped, late[LONGEST + 1];
static unsigned char chunk[CHUNK];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void fail(const char *what) {
    fprintf(stderr, "fanout: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void load(const char *name) {
    struct stat facts;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts))
        fail(name);
    free(requests);
    requests = malloc(facts.st_size);
    requests_size = facts.st_size;
    if (read(fd, requests, requests_size) != (ssize_t)requests_size)
        fail(name);
    close(fd);
}

static void append(unsigned char **to_, size_t *size, size_t *room, const void *from, size_t n) {
    if (*size + n > *room) {
        *room = (*size + n) * 2;
        *to_ = realloc(*to_, *room);
        if (!*to_)
            fail("memory");
    }
    memcpy(*to_ + *size, from, n);
    *size += n;
}

static void empty(unsigned char **from, size_t *size, size_t *room) {
    free(*from); /* thousands of nodes wait with nothing: they hold no room */
    *from = NULL;
    *size = *room = 0;
}

static void end(struct node *n) {
    if (n->fd >= 0)
        close(n->fd);
    if (n->created >= watches)
        standing--;
    n->fd = -1;
    n->created = 0;
    empty(&n->frames, &n->size, &n->room);
    empty(&n->message, &n->message_size, &n->message_room);
}

static void lose(struct node *n) {
    lost++;
    end(n);
}

static void frame(unsigned char *out, size_t size, int type, int flags, int stream) {
    out[0] = size >> 16, out[1] = size >> 8, out[2] = size;
    out[3] = type, out[4] = flags;
    out[5] = 0, out[6] = 0, out[7] = 0, out[8] = stream;
}

static size_t header(unsigned char *out, const char *name, const char *value) {
    size_t a = strlen(name), b = strlen(value);
    out[0] = 0, out[1] = a;
    memcpy(out + 2, name, a);
    out[2 + a] = b;
    memcpy(out + 3 + a, value, b);
    return 3 + a + b;
}

/* Settings with the largest window, the request's headers, and the watches. */
static void greet(struct node *n) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    unsigned char out[1 << 16], *at = out;
    memcpy(at, preface, sizeof preface - 1);
    at += sizeof preface - 1;
    frame(at, 6, 4, 0, 0);
    memcpy(at + 9, "\0\4\x7f\xff\xff\xff", 6);
    at += 15;
    frame(at, 4, 8, 0, 0);
    memcpy(at + 9, "\x7f\xff\0\0", 4);
    at += 13;
    unsigned char *start = at;
    at += 9;
    *at++ = 0x83, *at++ = 0x86; /* POST, http */
    at += header(at, ":path", "/etcdserverpb.Watch/Watch");
    at += header(at, ":authority", "etcd");
    at += header(at, "content-type", "application/grpc");
    at += header(at, "te", "trailers");
    frame(start, at - start - 9, 1, 4, 1);
    if (requests_size > 16384 || (size_t)(out + sizeof out - at) < requests_size + 9)
        errno = EMSGSIZE, fail("requests");
    frame(at, requests_size, 0, 0, 1);
    memcpy(at + 9, requests, requests_size);
    at += 9 + requests_size;
    if (write(n->fd, out, at - out) != at - out)
        lose(n);
}

static void reach(struct node *n) {
    int on = 1;
    n->due = 0;
    n->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (n->fd < 0)
        fail("socket");
    if (connect(n->fd, (struct sockaddr *)&to[(n - nodes) % addresses], sizeof *to)) {
        lose(n);
        return;
    }
    setsockopt(n->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {EPOLLIN, {.u32 = n - nodes}};
    epoll_ctl(poller, EPOLL_CTL_ADD, n->fd, &event);
    greet(n);
}

static uint64_t varint(const unsigned char **at, const unsigned char *last) {
    uint64_t value = 0;
    for (int shift = 0; *at < last && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            break;
    }
    return value;
}

static void took(const unsigned char *event, size_t size) {
    static const char mark[] = "\"sent\":\"";
    const unsigned char *found = memmem(event, size, mark, sizeof mark - 1);
    if (!found || found + sizeof mark - 1 + 20 > event + size)
        return;
    char digits[21] = {0};
    memcpy(digits, found + sizeof mark - 1, 20);
    double took_ = now() - strtoull(digits, NULL, 10) / 1e6;
    late[took_ < 0 ? 0 : took_ > LONGEST ? LONGEST : (int)took_]++;
    stamped++;
}

/* A WatchResponse: 3 is `created`, 4 `canceled`, 11 an event. */
static void response(struct node *n, const unsigned char *at, size_t size) {
    const unsigned char *last = at + size;
    messages++;
    while (at < last) {
        uint64_t key = varint(&at, last), value = varint(&at, last);
        if (key == (3 << 3) && value && ++n->created == watches)
            standing++;
        if (key == (4 << 3) && value) {
            lose(n);
            return;
        }
        if ((key & 7) != 2)
            continue;
        if (value > (uint64_t)(last - at))
            return;
        if (key >> 3 == 11) {
            events++, n->events++;
            took(at, value);
        }
        at += value;
    }
}

static void data(struct node *n, const unsigned char *from, size_t size) {
    append(&n->message, &n->message_size, &n->message_room, from, size);
    size_t at = 0;
    while (n->message_size - at >= 5) {
        const unsigned char *m = n->message + at;
        size_t long_ = (size_t)m[1] << 24 | m[2] << 16 | m[3] << 8 | m[4];
        if (n->message_size - at - 5 < long_)
            break;
        response(n, m + 5, long_);
        if (n->fd < 0)
            return;
        at += 5 + long_;
    }
    n->message_size -= at;
    if (!n->message_size)
        empty(&n->message, &n->message_size, &n->message_room);
    else
        memmove(n->message, n->message + at, n->message_size);
}

static void answer(struct node *n, int type, const unsigned char *body, size_t size) {
    unsigned char out[17];
    frame(out, size, type, 1, 0);
    memcpy(out + 9, body, size);
    if (write(n->fd, out, 9 + size) != (ssize_t)(9 + size))
        lose(n);
}

static void hear(struct node *n) {
    ssize_t got = read(n->fd, chunk, sizeof chunk);
    if (got <= 0) {
        lose(n);
        return;
    }
    bytes += got;
    append(&n->frames, &n->size, &n->room, chunk, got);
    size_t at = 0;
    while (n->fd >= 0 && n->size - at >= 9) {
        unsigned char *f = n->frames + at;
        size_t size = (size_t)f[0] << 16 | f[1] << 8 | f[2];
        if (n->size - at - 9 < size)
            break;
        if (f[3] == 0)
            data(n, f + 9, size);
        else if (f[3] == 4 && !(f[4] & 1))
            answer(n, 4, f + 9, 0);
        else if (f[3] == 6 && !(f[4] & 1))
            answer(n, 6, f + 9, size == 8 ? 8 : 0);
        else if (f[3] == 3 || f[3] == 7)
            lose(n);
        at += 9 + size;
    }
    if (n->fd < 0)
        return;
    n->size -= at;
    if (!n->size)
        empty(&n->frames, &n->size, &n->room);
    else
        memmove(n->frames, n->frames + at, n->size);
}

/* What has arrived, and who is due; for so many milliseconds at most. */
static void turn(double most) {
    struct epoll_event some[256];
    double begun = now();
    for (int i = 0; i < count; i++)
        if (nodes[i].due && nodes[i].due <= begun)
            reach(&nodes[i]);
    int found = epoll_wait(poller, some, 256, most);
    for (int i = 0; i < found; i++)
        if (some[i].data.u32 != UINT32_MAX && nodes[some[i].data.u32].fd >= 0)
            hear(&nodes[some[i].data.u32]);
}

static double share(double of) {
    uint64_t seen = 0;
    for (int i = 0; i <= LONGEST; i++)
        if ((seen += late[i]) && seen >= of * stamped)
            return i;
    return 0;
}

static void report(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"events\": %lu, \"messages\": %lu, \"bytes\": %lu, \"stamped\": %lu, \"lost\": %d, "
           "\"p50_ms\": %.0f, \"p99_ms\": %.0f, \"max_ms\": %.0f, \"cpu_s\": %.2f}\n",
           events, messages, bytes, stamped, lost, share(0.5), share(0.99), share(1.0),
           u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
}

static void mark(void) {
    events = messages = bytes = stamped = 0, lost = 0;
    memset(late, 0, sizeof late);
    for (int i = 0; i < count; i++)
        nodes[i].events = 0;
}

static int behind(uint64_t want) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += nodes[i].events < want;
    return found;
}

static void open_nodes(int more, double jitter) {
    double begun = now();
    int before = 0;
    if (!nodes || more > count) {
        nodes = realloc(nodes, more * sizeof *nodes);
        for (int i = count; i < more; i++)
            nodes[i] = (struct node){.fd = -1};
        count = more;
    }
    for (int i = 0; i < count; i++)
        if (nodes[i].fd < 0)
            nodes[i].due = begun + 0.001 + jitter * rand() / RAND_MAX, before++;
    while (standing < count && now() < begun + jitter + LONGEST) {
        turn(20);
        for (int i = 0; i < count; i++) /* one that was refused tries again */
            if (nodes[i].fd < 0 && !nodes[i].due)
                nodes[i].due = now() + 1000.0 * rand() / RAND_MAX;
    }
    printf("%d of %d stand after %.0f\n", standing, count, now() - begun);
}

static void command(char *line) {
    char name[16], word[4096];
    double x = 0, y = 0;
    sscanf(line, "%15s", name);
    if (!strcmp(name, "open") && sscanf(line, "%*s %lf %lf", &x, &y) == 2)
        open_nodes(x, y);
    else if (!strcmp(name, "close")) {
        for (int i = 0; i < count; i++)
            if (nodes[i].fd >= 0)
                end(&nodes[i]);
        puts("closed");
    } else if (!strcmp(name, "requests") && sscanf(line, "%*s %4095s", word) == 1) {
        load(word);
        puts("loaded");
    } else if (!strcmp(name, "mark")) {
        mark();
        puts("marked");
    } else if (!strcmp(name, "until") && sscanf(line, "%*s %lf %lf", &x, &y) == 2) {
        double begun = now();
        int lacking;
        while ((lacking = behind(x)) && now() < begun + y)
            turn(20);
        printf("%d behind after %.0f\n", lacking, now() - begun);
    } else if (!strcmp(name, "report"))
        report();
    else
        puts("what?");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    watches = atoi(argv[1]);
    load(argv[2]);
    addresses = argc - 3;
    to = calloc(addresses, sizeof *to);
    for (int i = 0; i < addresses; i++) {
        char *port = strchr(argv[3 + i], ':');
        *port++ = 0;
        to[i].sin_family = AF_INET;
        to[i].sin_port = htons(atoi(port));
        inet_pton(AF_INET, argv[3 + i], &to[i].sin_addr);
    }
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.u32 = UINT32_MAX}};
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &event);
    fcntl(0, F_SETFL, O_NONBLOCK);
    static char line[8192];
    size_t size = 0;
    for (;;) {
        ssize_t got = read(0, line + size, sizeof line - 1 - size);
        if (got == 0)
            return 0;
        if (got > 0)
            size += got;
        line[size] = 0;
        char *stop = strchr(line, '\n');
        if (!stop) {
            turn(20);
            continue;
        }
        *stop = 0;
        command(line);
        size -= stop + 1 - line;
        memmove(line, stop + 1, size);
    }
}
