/* User-mode Linux restores its processes' registers with a buffer of fixed size. A processor whose
 * extended state is larger (AMX) makes the host refuse that, and the guest's init dies. Preloaded
 * into the guest kernel's process, this fills up what is missing with what the process has now:
 * ptrace(PTRACE_SETREGSET, NT_X86_XSTATE) takes the whole state or nothing (ptrace(2)). */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

long ptrace(enum __ptrace_request request, ...)
{
    static unsigned char state[1 << 16] __attribute__((aligned(64)));
    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        struct iovec *given = data, whole = {state, sizeof state};
        if (!syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &whole) &&
            whole.iov_len > given->iov_len) {
            memcpy(state, given->iov_base, given->iov_len);
            return syscall(SYS_ptrace, request, pid, address, &whole);
        }
    }
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        /* The system call stores the word, the library's function returns it. */
        long word = 0;
        long failed = syscall(SYS_ptrace, request, pid, address, &word);
        if (!failed)
            errno = 0;
        return failed ? failed : word;
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
