"""One call of the twin: what was asked, where the answer goes, and how long it may take.

Tested in tests/cni/test_executable.py and tests/cni/test_vectors.py.
"""

from __future__ import annotations

import errno
import os
import select
import time

RELEASE = "0.1.0"
SOCKET_PATH = b"/var/run/calico/private/cni.sock"
PENDING_PATH = b"/var/lib/calico/cni/pending"
DEADLINES = {b"DEL": 25.0, b"STATUS": 10.0}
DEADLINE = 60.0  # our own, below every runtime's; DEL must never hold a runtime for long
RETRY = 1.0  # how long a daemon may be restarting
PEEK = 0.25  # how long an answer that needs no stdin waits for it
FRAME_LIMIT = 2 * 1024 * 1024
OUTPUT_LIMIT = 1024 * 1024
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
NEWEST = b"1.1.0"

INCOMPATIBLE, UNKNOWN, ENVIRONMENT, IO, DECODING, CONFIG = 1, 3, 4, 5, 6, 7
OWN_NETNS, AGAIN, UNAVAILABLE, CALICO, INTERNAL = 8, 11, 50, 100, 999

Env = dict[bytes, bytes]


class Failure(Exception):
    """The call ends with an error object: code, one line, and details."""

    def __init__(self, code: int, msg: bytes | str, details: bytes = b"") -> None:
        super().__init__(code)
        self.code, self.details = code, details
        self.msg = msg if isinstance(msg, bytes) else msg.encode("utf-8", "surrogateescape")


class Call:
    """One call of the plugin: what was asked, and where the answer goes."""

    def __init__(self, path: bytes, env: Env, stdin: int, stdout: int, stderr: int) -> None:
        self.env = env
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr  # -1: it was closed
        self.name = b"calico-ipam" if path.endswith(b"-ipam") else b"calico"
        self.command = env.get(b"CNI_COMMAND", b"")
        self.version = NEWEST  # for error objects
        self.start = time.monotonic()
        # The shorter of both, so that a test may shorten them all.
        self.deadline = self.start + min(DEADLINES.get(self.command, DEADLINE), DEADLINE)
        self.config = self.network = b""
        self.netns = -1

    def get(self, name: bytes) -> bytes:
        return self.env.get(name, b"")

    def left(self, until: float | None = None) -> float:
        return max(0.0, (self.deadline if until is None else until) - time.monotonic())

    def print(self, data: bytes) -> bool:
        return self.stdout >= 0 and write_all(self.stdout, data)


def write_all(descriptor: int, data: bytes) -> bool:
    """Write everything; False when it cannot be."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return False
    return True


def words(error: OSError) -> bytes:
    """Words for an error; runtimes take some of libc's as "nothing to delete" (ERR-17)."""
    if error.errno == errno.ENOENT:
        return b"it does not exist"
    if error.errno == errno.ETIMEDOUT:
        return b"nothing came in time"
    return os.strerror(error.errno or 0).encode()


def read_stdin(call: Call, deadline: float) -> tuple[bytes, OSError | None]:
    """All of stdin, or what came so far and why no more did."""
    got = bytearray()
    if call.stdin < 0:
        return b"", OSError(errno.EBADF, "")
    poll = select.poll()
    poll.register(call.stdin, select.POLLIN)
    while len(got) <= FRAME_LIMIT:
        if not poll.poll(1000 * call.left(deadline)):
            return bytes(got), OSError(errno.ETIMEDOUT, "")
        try:
            chunk = os.read(call.stdin, 65536)
        except BlockingIOError:
            continue
        except OSError as error:
            return bytes(got), error
        if not chunk:
            break
        got += chunk
    return bytes(got), None
