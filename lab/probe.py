"""Small network client that runs inside a machine or pod: asks, waits, prints JSON.

Standard library only, run with `-I -S` so that it starts in milliseconds. Uses:
  probe.py http PORT PATH SECONDS [PID]    wait for a 2xx answer on 127.0.0.1 while PID runs
  probe.py tcp PORT SECONDS ADDRESS...     connect to each at once; who does the server say we are?
  probe.py udp PORT SECONDS ADDRESS...     the same by one datagram each
  probe.py both PORT SECONDS ADDRESS...    {"tcp": ..., "udp": ...}
  probe.py stream ADDRESS PORT             numbered lines, 100 a second, until SIGTERM or an error
"""

import json
import selectors
import signal
import socket
import sys
import time
from typing import Any

BEGUN = "the stream has begun"
HANG = 120.0
"""Seconds without a word after which a stream is given up: the limit only catches a hang."""


def family(address: str) -> int:
    """Socket family of a literal address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def runs(pid: str) -> bool:
    """Whether a process runs: it exists, and is no ended one that its parent has yet to collect."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def http(port: int, path: str, seconds: float, server: str = "") -> int:
    """Poll until the status line says 2xx, or until the process that shall answer has ended."""
    deadline = time.monotonic() + seconds
    said = "no answer"
    while time.monotonic() < deadline:
        if server and not runs(server):
            print(f"process {server} has ended: {said.strip()[-800:]}")
            return 1
        try:
            left = max(1.0, deadline - time.monotonic())
            with socket.create_connection(("127.0.0.1", port), timeout=left) as link:
                link.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                answer = b""
                while block := link.recv(65536):
                    answer += block
            said = answer.decode(errors="replace")
            if said.split(" ", 2)[1:2] and said.split(" ", 2)[1].startswith("2"):
                return 0
        except OSError as error:
            said = str(error)
        time.sleep(0.05)
    print(f"not ready within {seconds:g} s: {said.strip()[-800:]}")
    return 1


def from_fresh_port(link: socket.socket, index: int) -> None:
    """Bind to a source port that no earlier probe of the same target has had for two minutes.

    A datagram with the ports of an earlier answered one belongs to that connection, which outlives
    a new policy (`nf_conntrack_udp_timeout_stream`); ports drawn at random meet it now and then.
    """
    port = 1024 + (time.monotonic_ns() // 2_000_000 + index) % 64_000
    try:
        link.bind(("::" if link.family == socket.AF_INET6 else "0.0.0.0", port))
    except OSError:
        return  # another program listens there: the kernel chooses a port, then


def ask(
    kinds: tuple[str, ...], port: int, seconds: float, addresses: list[str]
) -> dict[str, dict[str, str]]:
    """For each kind and address what its responder saw as our address, or `error: ...`."""
    waiting: dict[tuple[str, str], socket.socket] = {}
    answers: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    chooser = selectors.DefaultSelector()
    targets = [(kind, address) for kind in kinds for address in addresses]
    for index, (kind, address) in enumerate(targets):
        link = socket.socket(
            family(address), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        )
        link.setblocking(False)
        if kind == "udp":
            from_fresh_port(link, index)
        try:
            link.connect_ex((address, port))
            if kind == "udp":
                link.send(b"who am I\n")
        except OSError as error:
            answers[kind][address] = f"error: {error.strerror}"
            continue
        waiting[kind, address] = link
        chooser.register(link, selectors.EVENT_READ, (kind, address))
    deadline = time.monotonic() + seconds
    while waiting:
        left = deadline - time.monotonic()
        # If this process did not run until the time was up, data that came meanwhile is an answer.
        if not (ready := chooser.select(max(0.0, left))) and left <= 0:
            break
        for key, _ in ready:
            link = waiting.pop(key.data)
            chooser.unregister(link)
            kind, address = key.data
            answers[kind][address] = read_peer(link)
            link.close()
    for kind, address in waiting:
        answers[kind][address] = f"error: no answer within {seconds:g} s"
    return answers


def read_peer(link: socket.socket) -> str:
    """The address in the responder's greeting `peer ADDRESS PORT`."""
    try:
        words = link.recv(4096).decode(errors="replace").split()
    except OSError as error:
        return f"error: {error.strerror}"
    return words[1] if words[:1] == ["peer"] else f"error: unexpected answer {words[:5]}"


def stream(address: str, port: int) -> int:
    """One connection; each numbered line must come back in order.

    Prints BEGUN when the first one is back, and at the end what happened, as JSON.
    """
    report: dict[str, Any] = {"sent": 0, "echoed": 0, "error": "", "longest_gap": 0.0}
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    try:
        with socket.create_connection((address, port), timeout=HANG) as link:
            file = link.makefile("rb")
            file.readline()
            last = time.monotonic()
            while not stopping:
                report["sent"] += 1
                link.sendall(b"%d\n" % report["sent"])
                line = file.readline()
                if line != b"%d\n" % report["sent"]:
                    raise OSError(0, f"line {report['sent']} came back as {line!r}")
                report["echoed"] += 1
                if report["echoed"] == 1:
                    print(BEGUN, flush=True)
                now = time.monotonic()
                report["longest_gap"] = max(report["longest_gap"], round(now - last, 3))
                time.sleep(max(0.0, last + 0.01 - now))
                last = time.monotonic()
    except OSError as error:
        report["error"] = error.strerror or str(error)
    print(json.dumps(report))
    return 1 if report["error"] else 0


def main(arguments: list[str]) -> int:
    """Dispatch on the first word."""
    what, *rest = arguments
    if what == "http":
        return http(int(rest[0]), rest[1], float(rest[2]), *rest[3:])
    if what == "stream":
        return stream(rest[0], int(rest[1]))
    kinds = ("tcp", "udp") if what == "both" else (what,)
    answers = ask(kinds, int(rest[0]), float(rest[1]), rest[2:])
    print(json.dumps(answers if what == "both" else answers[what]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
