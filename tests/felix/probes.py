"""Traffic that goes on while something happens: datagrams that must arrive, or must not.

Each datagram is a connection of its own (a fresh socket), so that each is judged by the rules.
"""

from __future__ import annotations

import errno
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.felix.world import Pod
from tests.support.patience import HANG

PORT = 9000
INTERVAL = 0.04
GRACE = 0.4
PATIENCE = HANG
_QUIET = {errno.EPERM, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED}


@dataclass
class Way:
    """From one pod to another, in both families: what was sent, what arrived."""

    source: Pod
    target: Pod
    sent: dict[int, tuple[float, str]] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)

    def lost(self, until: float) -> list[tuple[float, str]]:
        """When, and to which address, went what left before `until` and did not arrive."""
        missing = set(self.sent) - self.arrived
        return sorted(self.sent[number] for number in missing if self.sent[number][0] < until)


class Probes:
    """The ways that are tried all the time."""

    def __init__(self, allowed: list[tuple[Pod, Pod]], denied: list[tuple[Pod, Pod]]) -> None:
        self.allowed = [Way(*ends) for ends in allowed]
        self.denied = [Way(*ends) for ends in denied]
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._by_number: dict[int, Way] = {}

    def clear(self) -> None:
        """Count anew."""
        time.sleep(GRACE)
        for way in self.allowed + self.denied:
            way.sent.clear()
            way.arrived.clear()

    def judge(self, patience: float = PATIENCE) -> None:
        """Nothing allowed was lost and nothing denied arrived since `clear`.

        Whoever hears may be late on a busy machine: what is not there after `patience` is lost.
        """
        now = time.monotonic()
        time.sleep(GRACE)
        while self._lost(now) and time.monotonic() < now + patience:
            time.sleep(0.1)
        ways = self.allowed + self.denied
        while any(len(way.sent) <= 4 for way in ways) and time.monotonic() < now + PATIENCE:
            time.sleep(0.1)
        leaked = {way.target.interface: len(way.arrived) for way in self.denied}
        assert all(len(way.sent) > 4 for way in self.allowed + self.denied)
        assert not any(leaked.values()), f"leaked: {leaked}"
        lost = self._lost(now)
        assert not lost, f"lost, judged at {now}: {lost}"

    def _lost(self, until: float) -> list[tuple[float, str]]:
        return [each for way in self.allowed for each in way.lost(until)]

    @contextmanager
    def running(self) -> Iterator[Probes]:
        """The probes go on within."""
        ways = self.allowed + self.denied
        with ExitStack() as stack:
            threads = [threading.Thread(target=self._send, args=(way,)) for way in ways]
            for target in {id(way.target): way.target for way in ways}.values():
                for family, address in _ends(target):
                    ear = target.space.call(lambda f=family, a=address: _bound(f, a, PORT))  # type: ignore[misc]
                    stack.callback(ear.close)
                    threads.append(threading.Thread(target=self._hear, args=(ear,)))
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                self._ended.set()
                for thread in threads:
                    thread.join()

    def _send(self, way: Way) -> None:
        with way.source.space.entered():
            while not self._ended.wait(INTERVAL):
                for (family, here), (_, there) in zip(
                    _ends(way.source), _ends(way.target), strict=True
                ):
                    number = next(self._numbers)
                    self._by_number[number] = way
                    with _bound(family, here, 0) as caller:
                        way.sent[number] = (time.monotonic(), there)
                        try:
                            caller.sendto(str(number).encode(), (there, PORT))
                        except OSError as error:
                            if error.errno not in _QUIET:
                                raise

    def _hear(self, ear: socket.socket) -> None:
        ear.settimeout(0.1)
        while not self._ended.is_set():
            try:
                number = int(ear.recv(100))
            except TimeoutError:
                continue
            way = self._by_number[number]
            # What was on its way at `clear` counts no more.
            if number in way.sent:
                way.arrived.add(number)


def _ends(pod: Pod) -> list[tuple[int, str]]:
    return [(socket.AF_INET, pod.address), (socket.AF_INET6, pod.address6)]


def _bound(family: int, address: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.bind((address, port))
    return made
