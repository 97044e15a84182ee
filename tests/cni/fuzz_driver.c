/* The executable as a function: each case from stdin in a process of its own, without exec.
 *
 *     cc ... -DSOURCE='"cni/executable/calico.c"' tests/cni/fuzz_driver.c
 *
 * A case: the count of texts, the texts (the plugin's path, then NAME=VALUE each), stdin; numbers
 * are 4 bytes, native order, a text is its length and its bytes. Back come the status (128 and
 * more: killed by that signal), stdout and stderr. tests/cni/test_fuzz.py.
 */
#define main plugin_main
#include SOURCE
#undef main

#include <sys/mman.h>
#include <sys/wait.h>

static void take(void *to, size_t length)
{
    for (char *at = to; length > 0;) {
        ssize_t got = read(0, at, length);
        if (got <= 0)
            exit(0);
        at += got;
        length -= (size_t)got;
    }
}

static void tell(const void *from, size_t length)
{
    for (const char *at = from; length > 0;) {
        ssize_t put = write(1, at, length);
        if (put <= 0)
            exit(1);
        at += put;
        length -= (size_t)put;
    }
}

static char *take_text(uint32_t *length)
{
    take(length, sizeof *length);
    char *found = malloc(*length + 1);
    if (!found)
        exit(2);
    take(found, *length);
    found[*length] = 0;
    return found;
}

static void tell_file(int file)
{
    static char data[1 << 22];
    ssize_t got = pread(file, data, sizeof data, 0);
    uint32_t length = got > 0 ? (uint32_t)got : 0;
    tell(&length, sizeof length);
    tell(data, length);
}

int main(void)
{
    for (;;) {
        uint32_t count, length;
        int ends[3], status;
        take(&count, sizeof count);
        char **texts = calloc(count + 1, sizeof *texts);
        if (!texts)
            exit(2);
        for (uint32_t i = 0; i < count; i++)
            texts[i] = take_text(&length);
        char *input = take_text(&length);
        for (int i = 0; i < 3; i++)
            ends[i] = memfd_create("end", MFD_CLOEXEC);
        if (ends[0] < 0 || ends[1] < 0 || ends[2] < 0 || write(ends[0], input, length) < 0)
            exit(3);
        lseek(ends[0], 0, SEEK_SET);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 3; i++)
                dup2(ends[i], i);
            environ = texts + 1;
            alarm(30);
            char *arguments[] = {texts[0], NULL};
            _exit(plugin_main(1, arguments));
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            exit(4);
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        tell(&status, sizeof status);
        tell_file(ends[1]);
        tell_file(ends[2]);
        for (int i = 0; i < 3; i++)
            close(ends[i]);
        for (uint32_t i = 0; i < count; i++)
            free(texts[i]);
        free(texts);
        free(input);
    }
}
