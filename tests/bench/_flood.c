/* flood ADDRESS FIRST_PORT PORTS COUNT: datagrams of 18 bytes, each to the next port in turn.
   One port: all packets are of one connection, begun by a question that must be answered.
   Many: each is the first of its own.
   Prints CPU seconds and wall seconds; what the kernel does for a packet on its way through a
   veth pair is accounted to its sender. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 64

static double wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int first = atoi(argv[2]), ports = atoi(argv[3]);
    long count = atol(argv[4]);
    int s = socket(AF_INET, SOCK_DGRAM, 0), room = 4 << 20;
    setsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    char body[18] = "muslin";
    struct sockaddr_in to[BATCH];
    struct iovec part = {body, sizeof body};
    struct mmsghdr batch[BATCH];
    memset(to, 0, sizeof to);
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < BATCH; i++) {
        to[i].sin_family = AF_INET;
        if (inet_pton(AF_INET, argv[1], &to[i].sin_addr) != 1)
            return 2;
        batch[i].msg_hdr.msg_name = &to[i];
        batch[i].msg_hdr.msg_namelen = sizeof to[i];
        batch[i].msg_hdr.msg_iov = &part;
        batch[i].msg_hdr.msg_iovlen = 1;
    }
    if (ports == 1) {
        struct timeval patience = {2, 0};
        char answer[8];
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        to[0].sin_port = htons(first);
        if (sendto(s, "?", 1, 0, (struct sockaddr *)&to[0], sizeof to[0]) != 1 ||
            recv(s, answer, sizeof answer, 0) < 1) {
            perror("no answer");
            return 1;
        }
    }
    long sent = 0;
    double began = wall(), busy = cpu();
    while (sent < count) {
        int now = count - sent < BATCH ? (int)(count - sent) : BATCH;
        for (int i = 0; i < now; i++)
            to[i].sin_port = htons(first + (sent + i) % ports);
        int done = sendmmsg(s, batch, now, 0);
        if (done < 0) {
            perror("sendmmsg");
            return 1;
        }
        sent += done;
    }
    printf("%.6f %.6f\n", cpu() - busy, wall() - began);
    return 0;
}
