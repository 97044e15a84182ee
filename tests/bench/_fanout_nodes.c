/* fanout REQUESTS ADDRESS:PORT...: many nodes' watches of etcd, in one process (_fanout_loop.h).

   Each node is one connection in plain HTTP/2 with one stream of etcdserverpb.Watch/Watch, on which
   the bytes of the file REQUESTS are sent: create requests as gRPC frames them. */
#include "_fanout_loop.h"

static int watches;

static void loaded(void) {
    watches = 0;
    for (size_t at = 0; at + 5 <= requests_size; watches++)
        at += 5 + ((size_t)requests[at + 3] << 8 | requests[at + 4]);
}

static void forget(struct node *n) { (void)n; }

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

/* A WatchResponse: 3 is `created`, 4 `canceled`, 11 an event. */
static void response(struct node *n, const unsigned char *at, size_t size) {
    const unsigned char *last = at + size;
    messages++;
    while (at < last) {
        uint64_t key = varint(&at, last), value = varint(&at, last);
        if (key == (3 << 3) && value && ++n->begun == watches)
            stand(n);
        if (key == (4 << 3) && value) {
            lose(n);
            return;
        }
        if ((key & 7) != 2)
            continue;
        if (value > (uint64_t)(last - at))
            return;
        if (key >> 3 == 11)
            took(n, at, value, "\"sent\":\"");
        at += value;
    }
}

static void data(struct node *n, const unsigned char *from, size_t size) {
    struct buffer *b = &n->message;
    append(b, from, size);
    size_t at = 0;
    while (b->size - at >= 5) {
        const unsigned char *m = b->bytes + at;
        size_t long_ = (size_t)m[1] << 24 | m[2] << 16 | m[3] << 8 | m[4];
        if (b->size - at - 5 < long_)
            break;
        response(n, m + 5, long_);
        if (n->fd < 0)
            return;
        at += 5 + long_;
    }
    consume(b, at);
}

static void answer(struct node *n, int type, const unsigned char *body, size_t size) {
    unsigned char out[17];
    frame(out, size, type, 1, 0);
    memcpy(out + 9, body, size);
    if (write(n->fd, out, 9 + size) != (ssize_t)(9 + size))
        lose(n);
}

static void hear(struct node *n) {
    struct buffer *b = &n->frames;
    ssize_t got = read(n->fd, chunk, sizeof chunk);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        lose(n);
        return;
    }
    bytes += got;
    append(b, chunk, got);
    size_t at = 0;
    while (n->fd >= 0 && b->size - at >= 9) {
        unsigned char *f = b->bytes + at;
        size_t size = (size_t)f[0] << 16 | f[1] << 8 | f[2];
        if (b->size - at - 9 < size)
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
    if (n->fd >= 0)
        consume(b, at);
}
