"""What runs in every pod: serves TCP, UDP and SCTP, and on request probes other pods.

`python -m tests.netpol.probe NAME tcp:80 udp:80 sctp:80 ...`. Every server answers with NAME, so a
probe that is answered knows by whom. Requests come as JSON lines on standard input, one answer line
each on standard output; the end of the input ends the process:

    {"timeout": 0.3, "doors": {"tcp:80": {"10.65.0.1": 1}}}
    {"tcp:80": {"10.65.0.1": "ok x/a"}}

A target's number says how often to try while nothing comes back. Other answers: `silent` (what a
policy's drop looks like), `refused`, or the system's word. All targets are probed at once, each try
from a fresh source port, so connection tracking never mistakes one try for another.
Standard library only. Tested in tests/netpol/test_probe.py.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from tests.netpol import sctp

CHOOSER = selectors.DefaultSelector()
PARALLEL = 512
Act = Callable[[], None]


def source_ports() -> Iterator[int]:
    """Source ports in turn: none comes again while connection tracking remembers its last use."""
    begin = secrets.randbelow(40000)
    return (20000 + number % 40000 for number in count(begin))


SOURCES = source_ports()


def plain_error(code: int) -> str:
    """The answer for a system error."""
    return "refused" if code == errno.ECONNREFUSED else errno.errorcode.get(code, str(code))


class Raw:
    """The pod's one raw socket: every SCTP packet arrives here, for server and prober alike."""

    def __init__(self, name: str) -> None:
        self.name = name.encode()
        self.served: set[int] = set()
        self.waiting: dict[tuple[str, int, int], Callable[[str], None]] = {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, sctp.PROTOCOL)
        self.socket.setblocking(False)
        CHOOSER.register(self.socket, selectors.EVENT_READ, self.arrived)

    def arrived(self) -> None:
        """Answer an INIT to a served port; hand an INIT-ACK to the try that waits for it."""
        data, peer = self.socket.recvfrom(65536)
        packet = sctp.unpack(data[(data[0] & 15) * 4 :])
        if packet is None:
            return
        if packet.kind == sctp.INIT_ACK:
            key = peer[0], packet.target, packet.verification
            if key in self.waiting:
                self.waiting.pop(key)(f"ok {packet.cookie.decode(errors='replace')}")
        elif packet.target in self.served and packet.verification == 0:
            answer = sctp.Packet(
                packet.target, packet.source, packet.tag, sctp.INIT_ACK, new_tag(), self.name
            )
            self.socket.sendto(sctp.pack(answer), (peer[0], 0))


def new_tag() -> int:
    """An initiate tag: any number but 0."""
    return secrets.randbits(32) or 1


class Try:
    """One try at one target; `done(answer)` is called exactly once."""

    def __init__(self, done: Callable[[str], None], timeout: float) -> None:
        self.deadline = time.monotonic() + timeout
        self.over = False
        self._done = done
        self._clean: list[Act] = []

    def finish(self, answer: str) -> None:
        """Report, once, and let go of what the try holds."""
        if not self.over:
            self.over = True
            for clean in self._clean:
                clean()
            self._done(answer)

    def tcp(self, address: str, port: int) -> None:
        """Connect and read the greeting."""
        link = self._socket(socket.SOCK_STREAM)
        code = link.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            self.finish(plain_error(code))
            return

        def connected() -> None:
            failed = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                self.finish(plain_error(failed))
            else:
                CHOOSER.modify(link, selectors.EVENT_READ, lambda: self._greeting(link))

        CHOOSER.register(link, selectors.EVENT_WRITE, connected)

    def udp(self, address: str, port: int) -> None:
        """Send a nonce that the answer must carry."""
        link = self._socket(socket.SOCK_DGRAM)
        nonce = secrets.token_hex(8).encode()
        link.bind(("0.0.0.0", next(SOURCES)))
        link.connect((address, port))
        CHOOSER.register(link, selectors.EVENT_READ, lambda: self._greeting(link, nonce + b" "))
        link.send(nonce)

    def sctp(self, raw: Raw, address: str, port: int) -> None:
        """Send an INIT, wait for the INIT-ACK that carries its tag."""
        packet = sctp.Packet(next(SOURCES), port, 0, sctp.INIT, new_tag())
        key = address, packet.source, packet.tag
        raw.waiting[key] = self.finish

        def forget() -> None:
            raw.waiting.pop(key, None)

        self._clean.append(forget)
        raw.socket.sendto(sctp.pack(packet), (address, 0))

    def _socket(self, kind: int) -> socket.socket:
        link = socket.socket(socket.AF_INET, kind)
        link.setblocking(False)

        def close() -> None:
            if link in CHOOSER.get_map():
                CHOOSER.unregister(link)
            link.close()

        self._clean.append(close)
        return link

    def _greeting(self, link: socket.socket, prefix: bytes = b"") -> None:
        try:
            answer = link.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            self.finish(plain_error(error.errno or 0))
            return
        if answer.startswith(prefix):
            self.finish(f"ok {answer.removeprefix(prefix).decode(errors='replace').strip()}")


class Request:
    """Probes of several targets under way; prints the answers when the last one is known."""

    def __init__(self, request: Mapping[str, object], raw: Raw) -> None:
        self.timeout, self.raw = float(str(request["timeout"])), raw
        doors = request["doors"]
        assert isinstance(doors, dict)
        self.left: dict[str, dict[str, int]] = doors
        self.answers: dict[str, dict[str, str]] = {door: {} for door in doors}
        self.running: list[Try] = []
        for door, targets in self.left.items():
            for address in targets:
                self.start(door, address)

    def start(self, door: str, address: str) -> None:
        """The next try at a target."""
        self.left[door][address] -= 1
        attempt = Try(lambda answer: self.answered(door, address, answer), self.timeout)
        self.running.append(attempt)
        protocol, _, port = door.partition(":")
        try:
            if protocol == "sctp":
                attempt.sctp(self.raw, address, int(port))
            elif protocol == "udp":
                attempt.udp(address, int(port))
            else:
                attempt.tcp(address, int(port))
        except OSError as error:
            attempt.finish(plain_error(error.errno or 0))

    def answered(self, door: str, address: str, answer: str) -> None:
        """Keep an answer; try again after silence while tries are left."""
        if answer == "silent" and self.left[door][address] > 0:
            self.start(door, address)
        else:
            self.answers[door][address] = answer

    def tick(self) -> float | None:
        """End the tries whose time is over; seconds to the next end, None when all is known."""
        now = time.monotonic()
        for attempt in list(self.running):
            if not attempt.over and attempt.deadline <= now:
                attempt.finish("silent")
        self.running = [attempt for attempt in self.running if not attempt.over]
        if not self.running:
            return None
        return max(0.0, min(attempt.deadline for attempt in self.running) - time.monotonic())


def serve(kind: str, port: int, name: bytes) -> None:
    """Listen on one TCP or UDP port."""
    stream = kind == "tcp"
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", port))
    server.setblocking(False)

    def accept() -> None:
        link, _ = server.accept()
        with link:
            link.sendall(name)

    def answer() -> None:
        nonce, peer = server.recvfrom(4096)
        server.sendto(nonce + b" " + name, peer)

    if stream:
        server.listen(PARALLEL)
    CHOOSER.register(server, selectors.EVENT_READ, accept if stream else answer)


class Input:
    """Requests as they arrive; they are worked on one after the other."""

    def __init__(self) -> None:
        self.open = True
        self.lines: list[bytes] = []
        self._rest = b""
        os.set_blocking(0, False)
        CHOOSER.register(0, selectors.EVENT_READ, self.arrived)

    def arrived(self) -> None:
        """Cut what came into lines."""
        block = os.read(0, 65536)
        self.open = bool(block)
        *lines, self._rest = (self._rest + block).split(b"\n")
        self.lines += lines


def turn(timeout: float | None) -> None:
    """Wait for events and act on them; a peer's misbehaviour is no reason to end."""
    for key, _ in CHOOSER.select(timeout):
        act: Act = key.data
        try:
            act()
        except BlockingIOError:
            continue
        except OSError as error:
            print(error, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """Serve what is asked for, say so, probe on request."""
    name, *ports = arguments
    raw, requests = Raw(name), Input()
    for text in ports:
        kind, _, port = text.partition(":")
        if kind == "sctp":
            raw.served.add(int(port))
        else:
            serve(kind, int(port), name.encode())
    print("listening", flush=True)
    current: Request | None = None
    while requests.open:
        if current is None and requests.lines:
            current = Request(json.loads(requests.lines.pop(0)), raw)
        wait = current.tick() if current else None
        if current and wait is None:
            print(json.dumps(current.answers), flush=True)
            current = None
        else:
            turn(wait)


if __name__ == "__main__":
    main(sys.argv[1:])
