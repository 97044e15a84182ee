"""The twin without a daemon: "try again later", and the queue of DELs on disk (EXE-4).

The queue's directory is 0700 and ours, no symbolic link is followed in its last two
components, and a file appears under its name only by link(2) after its bytes are on disk.
Tested in tests/cni/test_executable_queue.py.
"""

from __future__ import annotations

import errno
import os
import time

from cni.python_plugin.call import AGAIN, PENDING_PATH, UNAVAILABLE, Call, Failure, words, write_all
from cni.python_plugin.text import quote


def common(call: Call) -> bytes:
    """The members that a request and a queued DEL share."""
    env = b",".join(
        quote(name) + b":" + quote(value)
        for name, value in call.env.items()
        if name.startswith(b"CNI_") and len(name) < 128
    )
    parts = (b'"argv0":', quote(call.name), b',"env":{', env, b'},"stdin":', quote(call.config))
    return b"".join(parts)


def open_queue(path: bytes) -> int:
    """A descriptor of the queue's directory, made where missing. Raises OSError."""
    if not path.startswith(b"/") or len(path) >= 4096:
        raise OSError(errno.EINVAL, "")
    parts = [part for part in path.split(b"/") if part]
    plain = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    directory = os.open("/", plain)
    try:
        for depth, part in enumerate(parts, 1):
            try:
                os.mkdir(part, 0o700 if depth == len(parts) else 0o755, dir_fd=directory)
                os.fsync(directory)
            except OSError:
                pass  # it is there, or opening it says what is wrong
            follow = os.O_NOFOLLOW if depth + 1 >= len(parts) else 0
            below = os.open(part, plain | follow, dir_fd=directory)
            os.close(directory)
            directory = below
        about = os.fstat(directory)
        if about.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "")
        if about.st_mode & 0o077:
            os.fchmod(directory, 0o700)
        return directory
    except BaseException:
        os.close(directory)
        raise


def queue_delete(call: Call) -> None:
    """Write a DEL down for the daemon to finish; the first record stays. Raises OSError."""
    import hashlib
    import stat

    container, ifname = call.get(b"CNI_CONTAINERID"), call.get(b"CNI_IFNAME")
    key = b"\0".join((call.name, call.network, container, ifname))
    name = hashlib.sha256(key).hexdigest() + ".json"
    content = b'{"version":1,%s,"time":%d}\n' % (common(call), int(time.time()))
    directory = open_queue(call.get(b"CNI_CALICO_PENDING") or PENDING_PATH)
    try:
        fresh = f".{os.getpid()}.{time.time_ns()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(fresh, flags, 0o600, dir_fd=directory)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
            try:
                os.link(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
            except FileExistsError:
                if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise
        finally:
            os.close(file)
            os.unlink(fresh, dir_fd=directory)
        os.fsync(directory)
    finally:
        os.close(directory)


def give_up(call: Call, why: bytes) -> int:
    """End a call that the daemon did not answer, `why` (EXE-4)."""
    if call.command != b"DEL":
        code = UNAVAILABLE if call.command == b"STATUS" else AGAIN
        raise Failure(code, b"the daemon calico-cni on this node does not answer: " + why)
    try:
        queue_delete(call)
    except OSError as error:
        msg = b"the daemon calico-cni does not answer (%s), and the DEL cannot be queued: %s"
        raise Failure(AGAIN, msg % (why, words(error))) from error
    line = b"%s: DEL queued, the daemon calico-cni does not answer: %s\n"
    write_all(call.stderr, line % (call.name, why))
    return 0
