/* Frames of cni.sock: see cni/socket/protocol.py for what they say. */
#ifndef CALICO_WIRE_H
#define CALICO_WIRE_H

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "call.h"

#define RECEIVE_CHUNK 4096

static int connect_daemon(const char **why)
{
    const char *path = *variable("CNI_CALICO_SOCKET") ? variable("CNI_CALICO_SOCKET") : SOCKET_PATH;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    int left = left_ms(call.deadline) + 1;
    struct timeval limit = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
    if (strlen(path) >= sizeof address.sun_path) {
        *why = "the path of its socket is too long";
        return -1;
    }
    strcpy(address.sun_path, path);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock >= 0 && setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
        connect(sock, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
        if (peer.uid == 0 || peer.uid == geteuid())
            return sock;
        errno = EPERM;
    }
    *why = errno == ENOENT         ? "its socket does not exist"
           : errno == ECONNREFUSED ? "nobody listens on its socket"
                                   : strerror(errno);
    if (sock >= 0)
        close(sock);
    return -1;
}

/* Send all of `text`, `descriptor` (or -1) with its first byte; false when it cannot be. */
static bool send_all(int sock, struct text text, int descriptor)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    while (text.length > 0) {
        struct iovec part = {.iov_base = (char *)text.at, .iov_len = text.length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (descriptor >= 0) {
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof control.bytes;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof descriptor);
            memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
        }
        ssize_t sent = sendmsg(sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd ready = {.fd = sock, .events = POLLOUT};
        if (sent < 0 && errno == EAGAIN && poll(&ready, 1, left_ms(call.deadline)) == 0)
            return false;
        if (sent < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (sent > 0) {
            text.at += sent;
            text.length -= (size_t)sent;
            descriptor = -1;
        }
    }
    return true;
}

/* What the daemon has sent; the first `taken` bytes were used. */
struct stream {
    struct buffer in;
    size_t taken;
};

/* Receive until `length` bytes are there that were not taken; what comes with them is kept. */
static bool receive_all(int sock, struct stream *stream, size_t length)
{
    struct buffer *in = &stream->in;
    while (in->length - stream->taken < length) {
        struct pollfd ready = {.fd = sock, .events = POLLIN};
        size_t lacking = length - (in->length - stream->taken);
        if (!buffer_reserve(in, lacking > RECEIVE_CHUNK ? lacking : RECEIVE_CHUNK))
            need_memory(in);
        if (poll(&ready, 1, left_ms(call.deadline)) == 0) {
            errno = ETIMEDOUT;
            return false;
        }
        ssize_t got = recv(sock, in->at + in->length, in->room - in->length, MSG_DONTWAIT);
        if (got == 0) {
            errno = ECONNRESET;
            return false;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (got > 0)
            in->length += (size_t)got;
    }
    return true;
}

static size_t frame_begin(struct buffer *out)
{
    buffer_add(out, "\0\0\0\0", 4);
    return out->length;
}

static bool frame_end(struct buffer *out, size_t from)
{
    need_memory(out);
    size_t length = out->length - from;
    for (int i = 0; i < 4; i++)
        out->at[from - 4 + (size_t)i] = (char)(length >> (24 - 8 * i));
    return length <= FRAME_LIMIT;
}

/* Receive one message; its text is `body`, a checked object, until the next is received. */
static bool receive_frame(int sock, struct stream *stream, struct text *body, const char **why)
{
    struct buffer *in = &stream->in;
    size_t offset;
    if (stream->taken > 0)
        memmove(in->at, in->at + stream->taken, in->length - stream->taken);
    in->length -= stream->taken;
    stream->taken = 0;
    *why = "it closed the connection";
    if (!receive_all(sock, stream, 4)) {
        *why = errno == ETIMEDOUT ? "it gave no answer in time" : *why;
        return false;
    }
    size_t length = 0;
    for (size_t i = 0; i < 4; i++)
        length = length << 8 | (unsigned char)in->at[i];
    if (length > FRAME_LIMIT) {
        *why = "it sent a frame that is too large";
        return false;
    }
    stream->taken = 4;
    if (!receive_all(sock, stream, length)) {
        *why = errno == ETIMEDOUT ? "it gave no answer in time" : *why;
        return false;
    }
    stream->taken += length;
    const char *problem;
    struct text text = {in->at + 4, length};
    if (!json_check(text, body, &problem, &offset) || *body->at != '{') {
        *why = "it sent a frame that is not a JSON object";
        return false;
    }
    return true;
}

static bool frame_is(struct text body, const char *type)
{
    struct text value;
    return json_get(body, "type", &value) && *value.at == '"' && json_says(value, type);
}

static struct text frame_text(struct text body, const char *key)
{
    struct text value;
    return json_get(body, key, &value) && *value.at == '"' ? decoded(value) : (struct text){"", 0};
}

static double frame_number(struct text body, const char *key, double otherwise)
{
    struct text value;
    char digits[32] = "";
    if (!json_get(body, key, &value) || value.length >= sizeof digits)
        return otherwise;
    memcpy(digits, value.at, value.length);
    char *end;
    double number = strtod(digits, &end);
    return *end == '\0' && number >= -1e9 && number <= 1e9 ? number : otherwise;
}

#endif
