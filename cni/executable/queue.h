/* The queue of DELs on disk: one file per attachment, complete or not there at all.
 *
 * The daemon is away, but the pod is gone and the runtime will not ask again: so the call is
 * written down, synced, and finished by the daemon later. The directory is 0700 and ours, no
 * symbolic link is followed in its last two components, and a file appears under its name only
 * by link(2) after its bytes are on disk. The first record of an attachment is kept: a repeated
 * DEL often knows less (no namespace, no arguments).
 */
#ifndef CALICO_QUEUE_H
#define CALICO_QUEUE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

/* SHA-256 (FIPS 180-4), for file names: identities may be longer than a name may be. */

static inline uint32_t sha256_turn(uint32_t word, int by)
{
    return word >> by | word << (32 - by);
}

static inline void sha256_block(uint32_t state[8], const unsigned char *block)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (sha256_turn(a, 7) ^ sha256_turn(a, 18) ^ a >> 3) + w[i - 7] +
               (sha256_turn(b, 17) ^ sha256_turn(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = sha256_turn(s[4], 6) ^ sha256_turn(s[4], 11) ^ sha256_turn(s[4], 25);
        uint32_t a = sha256_turn(s[0], 2) ^ sha256_turn(s[0], 13) ^ sha256_turn(s[0], 22);
        uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

/* Write 64 hex digits of the digest of `text`, and a NUL, to `hex`. */
static inline void sha256_hex(struct text text, char hex[65])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t whole = text.length / 64 * 64, rest = text.length - whole;
    for (size_t i = 0; i < whole; i += 64)
        sha256_block(state, (const unsigned char *)text.at + i);
    unsigned char tail[128] = {0};
    memcpy(tail, text.at + whole, rest);
    tail[rest] = 0x80;
    size_t length = rest < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++)
        tail[length - 1 - i] = (unsigned char)((uint64_t)text.length * 8 >> (8 * i));
    for (size_t i = 0; i < length; i += 64)
        sha256_block(state, tail + i);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 8 * i, 9, "%08x", state[i]);
}

/* Open `path`, made where missing; -1 with errno when it cannot be trusted or made. */
static inline int queue_open(const char *path)
{
    char copy[PATH_MAX];
    if (path[0] != '/' || strlen(path) >= sizeof copy) {
        errno = EINVAL;
        return -1;
    }
    strcpy(copy, path);
    int depth = 0, left = 0;
    for (const char *at = copy; *at; at++)
        left += *at == '/' && at[1] != '/' && at[1] != '\0';
    int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (char *save = NULL, *part = strtok_r(copy, "/", &save); part && directory >= 0;
         part = strtok_r(NULL, "/", &save)) {
        depth++;
        int follow = depth + 1 >= left ? O_NOFOLLOW : 0;
        if (mkdirat(directory, part, depth == left ? 0700 : 0755) == 0)
            fsync(directory);
        int next = openat(directory, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
        int problem = errno;
        close(directory);
        errno = problem;
        directory = next;
    }
    struct stat about;
    if (directory < 0)
        return -1;
    if (fstat(directory, &about) == 0 && about.st_uid == geteuid()) {
        if ((about.st_mode & 077) == 0 || fchmod(directory, 0700) == 0)
            return directory;
    } else {
        errno = EPERM;
    }
    int problem = errno;
    close(directory);
    errno = problem;
    return -1;
}

static inline bool queue_write_all(int file, struct text text)
{
    while (text.length > 0) {
        ssize_t written = write(file, text.at, text.length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        text.at += written;
        text.length -= (size_t)written;
    }
    return true;
}

/* Put `content` on disk as `path`/`name`, unless that is there already; false with errno. */
static inline bool queue_store(const char *path, const char *name, struct text content)
{
    int directory = queue_open(path);
    if (directory < 0)
        return false;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char fresh[64];
    snprintf(fresh, sizeof fresh, ".%ld.%lld.%ld", (long)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    int file = openat(directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = file >= 0 && queue_write_all(file, content) && fsync(file) == 0;
    if (good && linkat(directory, fresh, directory, name, 0) != 0) {
        struct stat about;
        good = errno == EEXIST && fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISREG(about.st_mode);
    }
    int problem = errno;
    if (file >= 0) {
        close(file);
        unlinkat(directory, fresh, 0);
    }
    errno = problem;
    good = good && fsync(directory) == 0;
    problem = errno;
    close(directory);
    errno = problem;
    return good;
}

#endif
