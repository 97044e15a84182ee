/* fanout REQUESTS ADDRESS:PORT...: many watches of the Kubernetes API, in one process
   (_fanout_loop.h).

   Each is one TLS connection with one request in HTTP/1.1, as felix has them; request i modulo the
   number of requests in the file REQUESTS, in which each ends with an empty line. A watch stands
   when its answer has begun; one that is sent what there is (`sendInitialEvents`), when that has
   come. Events in JSON are lines, those in protobuf have their length before them.

   libssl's functions are declared here, so that its headers need not be installed. */
#include "_fanout_loop.h"

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
extern const void *TLS_client_method(void);
extern SSL_CTX *SSL_CTX_new(const void *method);
extern long SSL_CTX_ctrl(SSL_CTX *, int command, long value, void *);
extern SSL *SSL_new(SSL_CTX *);
extern int SSL_set_fd(SSL *, int fd);
extern void SSL_set_connect_state(SSL *);
extern int SSL_write(SSL *, const void *, int);
extern int SSL_read(SSL *, void *, int);
extern int SSL_get_error(const SSL *, int);
extern void SSL_free(SSL *);
#define SSL_CTRL_MODE 33
#define SSL_MODE_RELEASE_BUFFERS 16
#define SSL_ERROR_WANT_READ 2

enum { CONNECTED, ASKED, ANSWERED }; /* `begun` */

static SSL_CTX *context;
static struct { const unsigned char *text; size_t size; int whole; } *asked;
static int kinds;

static void loaded(void) {
    const unsigned char *at = requests, *last = requests + requests_size, *stop;
    kinds = 0;
    while ((stop = memmem(at, last - at, "\r\n\r\n", 4))) {
        size_t size = stop + 4 - at;
        asked = realloc(asked, (kinds + 1) * sizeof *asked);
        if (!asked)
            fail("memory");
        asked[kinds].text = at, asked[kinds].size = size;
        asked[kinds++].whole = memmem(at, size, "sendInitialEvents=true", 22) != NULL;
        at = stop + 4;
    }
    if (!kinds)
        errno = EINVAL, fail("requests");
}

static void forget(struct node *n) {
    if (n->session)
        SSL_free(n->session);
    n->session = NULL;
}

static void ask(struct node *n) {
    int kind = (n - nodes) % kinds;
    int done = SSL_write(n->session, asked[kind].text, asked[kind].size);
    if (done > 0)
        n->begun = ASKED;
    else if (SSL_get_error(n->session, done) != SSL_ERROR_WANT_READ)
        lose(n);
}

static void greet(struct node *n) {
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_ctrl(context, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);
    }
    n->session = SSL_new(context);
    if (!n->session || !SSL_set_fd(n->session, n->fd))
        fail("TLS");
    SSL_set_connect_state(n->session);
    ask(n); /* which begins the handshake, and goes on in `hear` */
}

static int has(const unsigned char *event, size_t size, const char *word) {
    return memmem(event, size, word, strlen(word)) != NULL;
}

static void event(struct node *n, const unsigned char *at, size_t size, int binary) {
    size_t start = size < 64 ? size : 64;
    messages++;
    if (has(at, start, "BOOKMARK")) {
        if (has(at, size, "initial-events-end"))
            stand(n);
    } else if (has(at, start, "ERROR")) {
        fprintf(stderr, "fanout: %.*s\n", (int)size, at);
        lose(n);
    } else if (n->stands)
        took(n, at, size, binary ? "\n\4sent\22\24" : "\"sent\":\"");
}

/* Events that are whole. */
static void answer(struct node *n, int binary) {
    struct buffer *b = &n->message;
    size_t at = 0, size;
    while (n->fd >= 0 && b->size > at) {
        const unsigned char *m = b->bytes + at;
        if (binary) {
            if (b->size - at < 4)
                break;
            size = 4 + ((size_t)m[0] << 24 | m[1] << 16 | m[2] << 8 | m[3]);
            if (b->size - at < size)
                break;
            event(n, m + 4, size - 4, binary);
        } else {
            const unsigned char *stop = memchr(m, '\n', b->size - at);
            if (!stop)
                break;
            size = stop + 1 - m;
            event(n, m, size, binary);
        }
        at += size;
    }
    if (n->fd >= 0)
        consume(b, at);
}

/* The head of an answer, if it is whole; where it is not 200 the node is lost. */
static void head(struct node *n) {
    struct buffer *b = &n->frames;
    const unsigned char *stop = memmem(b->bytes, b->size, "\r\n\r\n", 4);
    if (!stop)
        return;
    size_t size = stop + 4 - b->bytes;
    if (!has(b->bytes, 16, " 200 ")) {
        fprintf(stderr, "fanout: %.*s\n", (int)b->size, b->bytes);
        lose(n);
        return;
    }
    n->begun = ANSWERED + has(b->bytes, size, "protobuf"); /* one more where it is binary */
    if (!asked[(n - nodes) % kinds].whole)
        stand(n);
    consume(b, size);
}

/* Chunks of the body that are whole (RFC 9112, 7.1). */
static void chunks(struct node *n) {
    struct buffer *b = &n->frames;
    size_t at = 0;
    for (;;) {
        const unsigned char *f = b->bytes + at, *stop = NULL;
        if (b->size > at)
            stop = memmem(f, b->size - at, "\r\n", 2);
        if (!stop)
            break;
        size_t size = strtoul((const char *)f, NULL, 16), whole = stop + 2 - f + size + 2;
        if (b->size - at < whole)
            break;
        if (!size) { /* the server ended the watch */
            lose(n);
            return;
        }
        append(&n->message, stop + 2, size);
        at += whole;
    }
    consume(b, at);
    answer(n, n->begun > ANSWERED);
}

static void hear(struct node *n) {
    if (n->begun == CONNECTED)
        ask(n);
    while (n->fd >= 0 && n->begun > CONNECTED) {
        int got = SSL_read(n->session, chunk, sizeof chunk);
        if (got <= 0) {
            if (SSL_get_error(n->session, got) != SSL_ERROR_WANT_READ)
                lose(n);
            return;
        }
        bytes += got;
        append(&n->frames, chunk, got);
        if (n->begun == ASKED)
            head(n);
        if (n->fd >= 0 && n->begun >= ANSWERED)
            chunks(n);
    }
}
