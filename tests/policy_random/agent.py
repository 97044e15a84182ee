"""Lives in one pod: answers whoever gets through, and tries packets when told to.

A line of JSON on stdin: `{"probes": [[index, version, protocol, address, source port, port,
type, code], ...], "expected": [index, ...], "seconds": S, "patience": P}`. The line of JSON that
comes back holds the indexes of the probes that were answered. Every probe is sent at once; the
round ends S seconds after the last one was sent, and up to P later while an expected answer is
still missing. Expectations only lengthen the wait, an answer is an answer.

Standard library only, run with `-I -S`. The arguments are the pod's addresses, then `tcp:PORT`
and `udp:PORT` to listen on and `raw:NUMBER` for an IP protocol without ports.
"""

import contextlib
import itertools
import json
import os
import select
import selectors
import socket
import struct
import sys
import threading
import time
from typing import Any

ICMP, ICMPV6, TCP, UDP = 1, 58, 6, 17
LINGER_RESET = struct.pack("ii", 1, 0)
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
ROUNDS = itertools.count(int.from_bytes(os.urandom(2), "big"))


def version_of(address: str) -> int:
    """4 or 6."""
    return 6 if ":" in address else 4


class Responder(threading.Thread):
    """Accepts, echoes and answers."""

    def __init__(self, addresses: list[str], ports: list[str]) -> None:
        super().__init__(daemon=True)
        self.chooser = selectors.DefaultSelector()
        for address in addresses:
            for port in ports:
                kind, _, number = port.partition(":")
                self.listen(FAMILY[version_of(address)], address, kind, int(number))

    def listen(self, family: int, address: str, kind: str, number: int) -> None:
        """One socket."""
        if kind == "raw":
            server = socket.socket(family, socket.SOCK_RAW, number)
            # It answers from the address that was asked, whichever way the answer goes.
            server.bind((address, 0))
            handler = self.raw4 if family == socket.AF_INET else self.raw6
        elif kind == "udp":
            server = socket.socket(family, socket.SOCK_DGRAM)
            server.bind((address, number))
            handler = self.datagram
        else:
            server = socket.socket(family, socket.SOCK_STREAM)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, number))
            server.listen(256)
            handler = self.accept
        server.setblocking(False)
        self.chooser.register(server, selectors.EVENT_READ, handler)

    def run(self) -> None:
        """Serve for ever."""
        while True:
            for key, _ in self.chooser.select():
                with contextlib.suppress(OSError):
                    key.data(key.fileobj)

    def accept(self, server: socket.socket) -> None:
        """Keep the connection until the other side resets it."""
        link, _ = server.accept()
        link.setblocking(False)
        self.chooser.register(link, selectors.EVENT_READ, self.gone)

    def gone(self, link: socket.socket) -> None:
        """A client never says anything: it is gone."""
        self.chooser.unregister(link)
        link.close()

    def datagram(self, server: socket.socket) -> None:
        """Echo."""
        data, peer = server.recvfrom(2048)
        server.sendto(data, peer)

    def raw4(self, server: socket.socket) -> None:
        """Turn a question (behind the IP header) into an answer."""
        data, peer = server.recvfrom(2048)
        self.answer(server, data[(data[0] & 15) * 4 :], peer)

    def raw6(self, server: socket.socket) -> None:
        """The same; IPv6 hands over the payload alone."""
        data, peer = server.recvfrom(2048)
        self.answer(server, data, peer)

    def answer(self, server: socket.socket, data: bytes, peer: Any) -> None:
        """`Q` becomes `R`; answers of others pass by."""
        if data[:1] == b"Q":
            server.sendto(b"R" + data[1:], (peer[0], 0))


def checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


class Round:
    """One round of probes."""

    def __init__(self, own: dict[int, str], expected: list[int]) -> None:
        self.own = own
        self.missing = set(expected)
        self.answered: set[int] = set()
        self.poll = select.epoll()
        self.sockets: dict[int, tuple[socket.socket, int, int]] = {}
        self.shared: dict[tuple[int, int], socket.socket] = {}
        # Answers to the rounds before must not count, nor those to an agent before this one.
        self.round = struct.pack("!H", next(ROUNDS) % (1 << 16))

    def send(self, probe: list[Any]) -> None:
        """Send one probe."""
        index, version, protocol, address, source, port, kind, code = probe
        if protocol in (TCP, UDP):
            style = socket.SOCK_STREAM if protocol == TCP else socket.SOCK_DGRAM
            link = socket.socket(FAMILY[version], style)
            link.setblocking(False)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if protocol == TCP:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            link.bind((self.own[version], source))
            link.connect_ex((address, port))
            if protocol == UDP:
                self.sent(link.send, self.round)
            wanted = select.EPOLLOUT if protocol == TCP else select.EPOLLIN
            self.poll.register(link, wanted)
            self.sockets[link.fileno()] = (link, protocol, index)
            return
        link = self.raw(version, protocol)
        name = struct.pack("!H", index)
        if protocol in (ICMP, ICMPV6):
            body = name + self.round + bytes(12)
            head = struct.pack("!BBH", kind, code, 0)
            total = checksum(head + body) if protocol == ICMP else 0
            packet = struct.pack("!BBH", kind, code, total) + body
        else:
            packet = b"Q" + name + self.round
        self.sent(link.sendto, packet, (address, 0))

    @staticmethod
    def sent(send: Any, *what: Any) -> None:
        """Send; a host whose own rules drop it is told so at once."""
        with contextlib.suppress(PermissionError):
            send(*what)

    def raw(self, version: int, protocol: int) -> socket.socket:
        """The one socket of a protocol without ports."""
        if (version, protocol) not in self.shared:
            link = socket.socket(FAMILY[version], socket.SOCK_RAW, protocol)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            link.setblocking(False)
            link.bind((self.own[version], 0))
            self.poll.register(link, select.EPOLLIN)
            self.sockets[link.fileno()] = (link, protocol, version)
            self.shared[version, protocol] = link
        return self.shared[version, protocol]

    def collect(self, seconds: float, patience: float) -> None:
        """Take answers until the time is over."""
        least = time.monotonic() + seconds
        most = least + patience
        while (now := time.monotonic()) < (most if self.missing else least):
            end = most if self.missing and now >= least else least
            for number, _ in self.poll.poll(max(0.001, min(0.05, end - now))):
                link, protocol, value = self.sockets[number]
                if protocol in (TCP, UDP):
                    self.finish(link, protocol, value)
                else:
                    self.read(link, protocol, value)

    def finish(self, link: socket.socket, protocol: int, index: int) -> None:
        """A socket of one probe has something to say."""
        with contextlib.suppress(OSError):
            if protocol == TCP:
                if link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    self.note(index)
            elif link.recv(2048) == self.round:
                self.note(index)
        self.poll.unregister(link)
        del self.sockets[link.fileno()]
        link.close()

    def read(self, link: socket.socket, protocol: int, version: int) -> None:
        """A packet of a protocol without ports."""
        with contextlib.suppress(OSError):
            while True:
                data = link.recv(2048)
                body = data[(data[0] & 15) * 4 :] if version == 4 else data
                if protocol in (ICMP, ICMPV6):
                    answer = body[0] in ((0, 14) if protocol == ICMP else (129,))
                    name, stamp = body[4:6], body[6:8]
                else:
                    answer, name, stamp = body[:1] == b"R", body[1:3], body[3:5]
                if answer and stamp == self.round:
                    self.note(struct.unpack("!H", name)[0])

    def note(self, index: int) -> None:
        """An answer."""
        self.answered.add(index)
        self.missing.discard(index)

    def close(self) -> None:
        """Forget all sockets."""
        for link, _, _ in self.sockets.values():
            link.close()
        self.poll.close()


def main(arguments: list[str]) -> None:
    """Serve, and probe line by line."""
    addresses = [word for word in arguments if word.split(":")[0] not in ("tcp", "udp", "raw")]
    ports = [word for word in arguments if word not in addresses]
    Responder(addresses, ports).start()
    own = {version_of(address): address for address in addresses}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        this = Round(own, order["expected"])
        try:
            for probe in order["probes"]:
                this.send(probe)
            this.collect(order["seconds"], order["patience"])
        finally:
            this.close()
        print(json.dumps(sorted(this.answered)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
