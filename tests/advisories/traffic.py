"""Datagrams that never stop while something is done, counted where they arrive."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.netns import Namespace
from tests.support.patience import HANG

EVERY = 0.005


@dataclass
class Traffic:
    """What was sent and what arrived, by name of the stream.

    `count`: the number of this count, which each datagram carries, and what of it arrived.
    """

    sent: Counter[str] = field(default_factory=Counter)
    count: tuple[int, Counter[str]] = field(default_factory=lambda: (0, Counter()))

    @property
    def arrived(self) -> Counter[str]:
        """What arrived of the datagrams of this count."""
        return self.count[1]

    def anew(self) -> None:
        """Begin another count. What was sent before it is none of it, however late it arrives."""
        self.count = self.count[0] + 1, Counter()

    def payload(self, name: str) -> bytes:
        """What a datagram of a stream carries now."""
        return f"{name} {self.count[0]}".encode()

    def wait(self, name: str, more: int = 20) -> None:
        """Until some more have arrived; AssertionError when they do not."""
        wanted, until = self.arrived[name] + more, time.monotonic() + HANG
        while self.arrived[name] < wanted:
            assert time.monotonic() < until, f"{name}: {self.arrived[name]} of {wanted} arrived"
            time.sleep(0.01)

    def silent(self, *names: str, running: str) -> bool:
        """Whether nothing of some arrives while 20 of each are sent and 20 of `running` arrive."""
        before = self.arrived.copy()
        self.tried(*names)
        self.wait(running)
        return all(self.arrived[name] == before[name] for name in names)

    def tried(self, *names: str, more: int = 20) -> None:
        """Until some more of each have been sent, wherever they went."""
        wanted, until = self.sent.copy(), time.monotonic() + HANG
        while any(self.sent[name] < wanted[name] + more for name in names):
            assert time.monotonic() < until, f"not sent: {self.sent}, from {wanted}"
            time.sleep(0.01)


@dataclass(frozen=True)
class Stream:
    """Datagrams from a namespace to an address and port of another one.

    `sender` and `receiver` say where; `bound` is the address that the receiver listens at.
    """

    name: str
    sender: Namespace
    receiver: Namespace
    address: str
    port: int
    bound: str = ""

    @property
    def family(self) -> socket.AddressFamily:
        """Of its address."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET


@contextmanager
def flowing(streams: Sequence[Stream]) -> Iterator[Traffic]:
    """All streams at once, some 200 datagrams a second each, until the end of the block.

    Every datagram comes from a fresh port, so that none belongs to a connection that was let in.
    """
    traffic, over = Traffic(), threading.Event()

    def receive(ear: socket.socket, name: str) -> None:
        while not over.is_set():
            try:
                told = ear.recv(64)
                number, arrived = traffic.count
                if told == f"{name} {number}".encode():
                    arrived[name] += 1
            except TimeoutError:
                continue

    def send(stream: Stream) -> None:
        while not over.is_set():
            with socket.socket(stream.family, socket.SOCK_DGRAM) as mouth:
                try:
                    mouth.sendto(traffic.payload(stream.name), (stream.address, stream.port))
                    traffic.sent[stream.name] += 1
                except OSError:
                    # No route, or refused here: it did not arrive either.
                    pass
            over.wait(EVERY)

    def inside(space: Namespace, act: Callable[[], None]) -> threading.Thread:
        def body() -> None:
            with space.entered():
                act()

        return threading.Thread(target=body, daemon=True)

    ears = [stream.receiver.call(lambda s=stream: listening(s)) for stream in streams]  # type: ignore[misc]
    threads = [
        threading.Thread(target=receive, args=(ear, stream.name), daemon=True)
        for ear, stream in zip(ears, streams, strict=True)
    ]
    threads += [inside(stream.sender, lambda s=stream: send(s)) for stream in streams]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    try:
        yield traffic
    finally:
        over.set()
        for thread in threads:
            thread.join(HANG)
        for ear in ears:
            ear.close()


def listening(stream: Stream) -> socket.socket:
    """The receiver's socket, made in the namespace of the caller."""
    made = socket.socket(stream.family, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((stream.bound or stream.address, stream.port))
    made.settimeout(0.1)
    return made
