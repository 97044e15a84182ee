"""Kernel errors as values: errno, what was asked, and the kernel's own sentence about it.

Problem: an errno alone ("Invalid argument") tells an operator nothing, and one failed message
of a batch of a thousand must not hide the other 999. So a failed request is a value
(`linux.netlink.Result`) that can be turned into the exception of this file at the edge.

Tested in tests/linux/test_netlink.py.
"""

from __future__ import annotations

import errno as _errno
import os


class KernelError(Exception):
    """The kernel refused a request.

    `errno` is positive; `what` says what was tried, `detail` is the kernel's extended answer.
    """

    def __init__(self, errno: int, what: str, detail: str = "") -> None:
        self.errno, self.what, self.detail = errno, what, detail
        name = _errno.errorcode.get(errno, str(errno))
        text = f"{what}: {os.strerror(errno)} ({name})"
        super().__init__(f"{text}: {detail}" if detail else text)


class CommandError(KernelError):
    """A program that edits the kernel for us (iptables-restore, conntrack) failed."""

    def __init__(self, command: str, status: int, stderr: str) -> None:
        super().__init__(_errno.EIO, f"{command} exited with status {status}", stderr.strip())
        self.command, self.status, self.stderr = command, status, stderr
