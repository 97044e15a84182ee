"""The program of a probe: it serves, or it asks others and prints what came, as JSON.

The standard library alone, for it runs as `python3 -I -S -c TEXT` in pods of any image with Python:

    serve NAME SECONDS PORT...    answer on these ports (TCP), until standard input ends (0 seconds)
                                  or for so many seconds
    ask                           probes from standard input, results to standard output

A probe is {"id", "host", "port", "seconds", "kind"}. Kinds: `full` asks our server (its name,
latency, large packets both ways), `connect` only opens a connection, `speed` sends for `for`
seconds. Tested in `tests/calicoctl/test_connectivity_agent.py`.
"""

import json
import os
import socket
import statistics
import sys
import threading
import time
from typing import Any

LARGE = 60_000
"""Bytes that fill several packets of any usual size."""
ROUNDS = 5
AT_ONCE = 32
BLOCK = b"\0" * 65536


def serve(name: str, seconds: float, ports: list[int]) -> None:
    """Answer on these ports."""
    servers = [listening(port) for port in ports]
    print("listening", flush=True)
    for server in servers:
        threading.Thread(target=accept, args=(server, name), daemon=True).start()
    if seconds:
        time.sleep(seconds)
        return
    while os.read(0, 4096):
        pass


def listening(port: int) -> socket.socket:
    """A server on every address, of both families where the machine has them."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256
            )
        except OSError:
            pass
    return socket.create_server(("", port), backlog=256)


def accept(server: socket.socket, name: str) -> None:
    """Serve each connection in a thread of its own."""
    while True:
        link, _ = server.accept()
        threading.Thread(target=answer, args=(link, name), daemon=True).start()


def answer(link: socket.socket, name: str) -> None:
    """`who`: our name; `take N`: read N bytes, then `ok`; `give N`: send N bytes."""
    link.settimeout(60)
    try:
        with link, link.makefile("rb") as lines:
            while line := lines.readline(100):
                word, _, number = line.decode("ascii", "replace").strip().partition(" ")
                if word == "who":
                    link.sendall(name.encode() + b"\n")
                elif word == "take":
                    left = int(number)
                    while left > 0 and (block := lines.read(min(left, len(BLOCK)))):
                        left -= len(block)
                    link.sendall(b"ok\n")
                elif word == "give":
                    send(link, int(number))
                else:
                    return
    except (OSError, ValueError):
        return


def send(link: socket.socket, count: int) -> None:
    """Send so many bytes."""
    while count > 0:
        block = BLOCK[: min(count, len(BLOCK))]
        link.sendall(block)
        count -= len(block)


def probe(question: dict[str, Any]) -> dict[str, Any]:
    """The result of one probe: `outcome` and what was measured."""
    result: dict[str, Any] = {"id": question["id"], "outcome": "silent", "error": ""}
    seconds = float(question["seconds"])
    begun = time.monotonic()
    try:
        link = socket.create_connection((question["host"], int(question["port"])), seconds)
    except OSError as error:
        return {**result, **failed(error)}
    result["connect_ms"] = round((time.monotonic() - begun) * 1000, 3)
    with link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if question["kind"] == "connect":
            return {**result, "outcome": "answer"}
        return {**result, **asked(link, question, seconds)}


def asked(link: socket.socket, question: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What our server says over an open connection."""
    reply: dict[str, Any] = {"outcome": "silent"}
    link.settimeout(seconds)
    with link.makefile("rb") as lines:
        try:
            trips = []
            for _ in range(ROUNDS):
                begun = time.monotonic()
                link.sendall(b"who\n")
                name = lines.readline(300)
                if not name.endswith(b"\n"):
                    return {**reply, "error": "the connection ended without an answer"}
                trips.append(time.monotonic() - begun)
            reply["name"] = name.decode("utf-8", "replace").strip()
            reply["latency_ms"] = round(statistics.median(trips) * 1000, 3)
            if question["kind"] == "speed":
                return {**reply, **speed(link, lines, float(question["for"]))}
            reply["outcome"] = "large-out"
            link.sendall(b"take %d\n" % LARGE)
            send(link, LARGE)
            if lines.readline(10) != b"ok\n":
                return {**reply, "error": "the connection ended at large packets"}
            reply["outcome"] = "large-in"
            link.sendall(b"give %d\n" % LARGE)
            if len(lines.read(LARGE)) != LARGE:
                return {**reply, "error": "the connection ended at large packets"}
            reply["outcome"] = "answer"
        except OSError as error:
            if reply["outcome"] == "silent":
                return {**reply, **failed(error)}
            reply["error"] = str(error)
    return reply


def speed(link: socket.socket, lines: Any, seconds: float) -> dict[str, Any]:
    """Send for so many seconds; bits a second, counted until the other end has them all."""
    begun, total = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        link.sendall(b"take %d\n" % (16 * len(BLOCK)))
        send(link, 16 * len(BLOCK))
        if lines.readline(10) != b"ok\n":
            return {"outcome": "large-out", "error": "the connection ended"}
        total += 16 * len(BLOCK)
    return {"outcome": "answer", "bits": round(8 * total / (time.monotonic() - begun))}


def failed(error: OSError) -> dict[str, Any]:
    """The outcome that an error means."""
    if isinstance(error, ConnectionRefusedError):
        outcome = "refused"
    elif isinstance(error, (TimeoutError, ConnectionResetError, BrokenPipeError)):
        outcome = "silent"
    else:
        outcome = "unreachable"
    return {"outcome": outcome, "error": error.strerror or str(error)}


def ask(probes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of all probes, some at once; what measures speed runs alone, afterwards."""
    results: list[dict[str, Any]] = []
    gate = threading.Semaphore(AT_ONCE)

    def one(question: dict[str, Any]) -> None:
        with gate:
            results.append(probe(question))

    quick = [question for question in probes if question["kind"] != "speed"]
    threads = [threading.Thread(target=one, args=(question,)) for question in quick]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results + [probe(question) for question in probes if question["kind"] == "speed"]


def main(arguments: list[str]) -> None:
    """Do what the first word says."""
    if arguments[0] == "serve":
        serve(arguments[1], float(arguments[2]), [int(port) for port in arguments[3:]])
    else:
        print(json.dumps(ask(json.load(sys.stdin))))


if __name__ == "__main__":
    main(sys.argv[1:])
