/* What the programs that stand for many nodes have in common: connections that are opened, waited
   for and counted. `_fanout_nodes.c` speaks to etcd, `_fanout_api_nodes.c` to the Kubernetes API;
   each defines the functions that are named below.

   PROGRAM REQUESTS ADDRESS:PORT...: node i connects to address i modulo the number of addresses, and
   sends what the file REQUESTS says. Nothing that arrives is kept: events are counted, and from a
   stamp of 20 digits in one, of the monotonic clock in nanoseconds, the milliseconds since then are
   taken. A node takes a stamp once: an object may keep it over later changes.

   Commands come on standard input, a line each, and each is answered by a line:
     open NODES JITTER      connect so many more nodes, spread over JITTER milliseconds; answered
                            with the milliseconds until all of their watches stand
     close                  close all connections
     requests FILE          what a node that is opened sends from now on
     mark                   begin to count anew
     until EVENTS LIMIT LOST answered when every node had so many events since the mark, or after
                            LIMIT milliseconds: how many nodes lack some, and the milliseconds.
                            With LOST 1 a node whose connection has ended lacks none
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

struct buffer {
    size_t size, room;
    unsigned char *bytes;
};

struct node {
    int fd, stands;
    uint64_t events, newest;       /* newest: the last stamp that was taken */
    double due;                    /* when it connects; 0: it has */
    int begun;                     /* how far it is, as the protocol counts it */
    void *session;                 /* the protocol's */
    struct buffer frames, message; /* what is not whole yet: of the transport, of an answer */
};

static struct node *nodes;
static int count, standing, lost, addresses, poller;
static struct sockaddr_in *to;
static unsigned char *requests;
static size_t requests_size;
static uint64_t events, messages, bytes, stamped, late[LONGEST + 1];
static unsigned char chunk[CHUNK];

/* Of the protocol: */
static void loaded(void);           /* the requests are others */
static void greet(struct node *n);  /* it is connected */
static void hear(struct node *n);   /* something has arrived */
static void forget(struct node *n); /* it is about to be closed */

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
    loaded();
}

static void append(struct buffer *b, const void *from, size_t n) {
    if (b->size + n > b->room) {
        b->room = (b->size + n) * 2;
        b->bytes = realloc(b->bytes, b->room);
        if (!b->bytes)
            fail("memory");
    }
    memcpy(b->bytes + b->size, from, n);
    b->size += n;
}

/* Drop what was read; thousands of nodes wait with nothing, and hold no room. */
static void consume(struct buffer *b, size_t n) {
    b->size -= n;
    if (b->size) {
        memmove(b->bytes, b->bytes + n, b->size);
        return;
    }
    free(b->bytes);
    *b = (struct buffer){0};
}

static void end(struct node *n) {
    if (n->fd >= 0) {
        forget(n);
        close(n->fd);
    }
    standing -= n->stands;
    consume(&n->frames, n->frames.size);
    consume(&n->message, n->message.size);
    n->fd = -1;
    n->stands = n->begun = 0;
}

static void lose(struct node *n) {
    lost++;
    end(n);
}

static void stand(struct node *n) {
    standing += !n->stands;
    n->stands = 1;
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
    fcntl(n->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {EPOLLIN, {.u32 = n - nodes}};
    epoll_ctl(poller, EPOLL_CTL_ADD, n->fd, &event);
    greet(n);
}

/* An event, in which a stamp follows on `mark`. */
static void took(struct node *n, const unsigned char *event, size_t size, const char *mark) {
    size_t before = strlen(mark);
    const unsigned char *found = memmem(event, size, mark, before);
    events++, n->events++;
    if (!found || found + before + 20 > event + size)
        return;
    char digits[21] = {0};
    memcpy(digits, found + before, 20);
    uint64_t stamp = strtoull(digits, NULL, 10);
    if (stamp <= n->newest)
        return;
    n->newest = stamp;
    double took_ = now() - stamp / 1e6;
    late[took_ < 0 ? 0 : took_ > LONGEST ? LONGEST : (int)took_]++;
    stamped++;
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

static int behind(uint64_t want, int lost_too) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += nodes[i].events < want && !(lost_too && nodes[i].fd < 0);
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
    double x = 0, y = 0, z = 0;
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
    } else if (!strcmp(name, "until") && sscanf(line, "%*s %lf %lf %lf", &x, &y, &z) == 3) {
        double begun = now();
        int lacking;
        while ((lacking = behind(x, z)) && now() < begun + y)
            turn(20);
        printf("%d behind after %.0f\n", lacking, now() - begun);
    } else if (!strcmp(name, "report"))
        report();
    else
        puts("what?");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    load(argv[1]);
    addresses = argc - 2;
    to = calloc(addresses, sizeof *to);
    for (int i = 0; i < addresses; i++) {
        char *port = strchr(argv[2 + i], ':');
        *port++ = 0;
        to[i].sin_family = AF_INET;
        to[i].sin_port = htons(atoi(port));
        inet_pton(AF_INET, argv[2 + i], &to[i].sin_addr);
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
