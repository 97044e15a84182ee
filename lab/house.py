"""First process of a rootless lab's world: makes it, runs or only holds it, buries its dead.

Started by unshare(1) in new user, network, mount and process-id namespaces, as root of these.
/proc is mounted anew and /run becomes a tmpfs, so that everything which a lab makes lies inside
and goes with this process (LAB-6). `house.py FD [COMMAND...]` writes `ready PID` to FD, its process
id as the caller's /proc knows it, or `failed: why`. With a command: SIGINT and SIGTERM are passed
on to it and its end is the end. Standard library only, run with `-I -S`. Tested in
tests/lab/test_rootless.py.
"""

import ctypes
import os
import signal
import subprocess
import sys

MS_REC = 0x4000
MS_PRIVATE = 0x40000
DIRECTORIES = ("/run/netns", "/run/lock", "/run/.probe/upper", "/run/.probe/work")
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2); OSError naming what was mounted where."""
    text = [None if item is None else item.encode() for item in (source, target, kind, data)]
    if _libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]):
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {kind or 'flags'}: {os.strerror(number)}", target)


def build() -> None:
    """The world's /proc, /run and loopback; an overlay is tried: every machine needs one."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", 0)
    mount("run", "/run", "tmpfs", 0, "mode=755")
    for path in DIRECTORIES:
        os.makedirs(path)
    halves = "upperdir=/run/.probe/upper,workdir=/run/.probe/work"
    mount("overlay", "/opt", "overlay", 0, f"lowerdir=/opt,{halves},userxattr")
    if _libc.umount2(b"/opt", 2):
        raise OSError(ctypes.get_errno(), "unmounting an overlay", "/opt")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, capture_output=True)


def bury(child: int) -> int | None:
    """Collect every process that has ended; the exit code when `child` is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def hold(child: int) -> int:
    """Until the command ends, or for ever."""
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
    while True:
        if (code := bury(child)) is not None:
            return code
        number = signal.sigwait(signals)
        if number != signal.SIGCHLD and child:
            os.kill(child, number)
        elif number != signal.SIGCHLD:
            return 0


def main(arguments: list[str]) -> int:
    """Make the world, say so, stay."""
    ready, command = int(arguments[0]), arguments[1:]
    outside = os.readlink("/proc/self")
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
    try:
        build()
    except (OSError, subprocess.SubprocessError) as error:
        os.write(ready, f"failed: {error}\n".encode())
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    os.write(ready, f"ready {outside}\n".encode())
    os.close(ready)
    child = 0
    if command:
        child = os.posix_spawnp(command[0], command, os.environ, setsigmask=())
    else:
        os.chdir("/")
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
    return hold(child)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
