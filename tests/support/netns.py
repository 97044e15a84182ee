"""Network namespaces for tests: unique, removed again, with programs or the test body inside.

with network_namespace("a") as a, a.entered():   # this thread, and what it starts, is inside
    ...
a.run("ip", "link")                              # a program inside; its output
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from linux import netns

T = TypeVar("T")

_numbers = itertools.count(1)

# `ip netns exec` mounts /sys anew, which takes longer than these do; none of them looks there.
_BLIND_TO_SYS = re.compile(r"ip|ipset|nft|ping|sysctl|conntrack|ip6?tables(-\w+)*")


@dataclass
class Namespace:
    """A network namespace of a test. `fd` stays open until the test is over."""

    name: str
    path: Path
    fd: int = field(repr=False)

    def command(self, *arguments: str) -> list[str]:
        """The argument list that runs a program inside, with a /sys of this namespace."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def run(self, *arguments: str, check: bool = True, input: str | None = None) -> str:
        """Runs a program inside and returns its standard output; a failure shows both outputs."""
        done = self.done(*arguments, input=input)
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(arguments)} in {self.name}: status {done.returncode}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done.stdout

    def ip(self, *lines: str, check: bool = True) -> None:
        """Runs lines of ip(8), such as `link set lo up`, in one process; ends at a failure."""
        self.run("ip", "-batch", "-", input="\n".join(lines) + "\n", check=check)

    def done(self, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """What a program inside gave, however it ended."""
        words, pipe = list(arguments), subprocess.PIPE

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                words, stdin=None if input is None else pipe, stdout=pipe, stderr=pipe, text=True
            )

        if _BLIND_TO_SYS.fullmatch(arguments[0]):
            process = netns.run_in(self.fd, start)
        else:
            words = self.command(*arguments)
            process = start()
        with process:
            output, errors = process.communicate(input)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def popen(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """Starts a program inside; the caller ends it."""
        return subprocess.Popen(self.command(*arguments), text=True, **options)  # type: ignore[call-overload, no-any-return]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Moves the calling thread inside for the duration, and what it starts with it.

        For test bodies and event loops that run in this thread. Helper threads started inside
        are inside too, but a pool made earlier is not.
        """
        home = netns.current()
        try:
            netns.enter(self.fd)
            try:
                yield
            finally:
                netns.enter(home)
        finally:
            os.close(home)

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function with the calling thread inside, and returns its result."""
        return netns.run_in(self.fd, function)


@contextmanager
def network_namespace(label: str = "t", *, loopback: bool = True) -> Iterator[Namespace]:
    """A fresh namespace with a unique name; killed with its processes afterwards."""
    name = f"mt-{label}-{os.getpid()}-{next(_numbers)}"
    path = netns.create(name)
    fd = netns.open_path(path)
    try:
        space = Namespace(name, path, fd)
        if loopback:
            space.run("ip", "link", "set", "lo", "up")
        yield space
    finally:
        for pid in _inside(fd):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(fd)
        netns.delete(name)


def _inside(fd: int) -> list[int]:
    """The processes whose namespace it is."""
    space = os.fstat(fd)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended
                here = os.stat(f"/proc/{entry}/ns/net")
                if (here.st_dev, here.st_ino) == (space.st_dev, space.st_ino):
                    found.append(int(entry))
    return found
