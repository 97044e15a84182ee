"""Connections begun at a steady pace.

`... server ADDRESS PORT` or `... client ADDRESS PORT RATE SECONDS`.

The client prints one line of JSON: the seconds that each connection took to come about, and how
many failed. It begins each at its time, so a slow one holds up those after it, and this is seen.
"""

from __future__ import annotations

import json
import socket
import sys
import time

_GONE_AT_ONCE = b"\1\0\0\0\0\0\0\0"


def server(address: str, port: int) -> None:
    """Accept and close until killed."""
    with socket.create_server((address, port), backlog=4096) as listener:
        print("listens", flush=True)
        while True:
            listener.accept()[0].close()


def client(address: str, port: int, rate: float, seconds: float) -> None:
    """Begin connections."""
    took: list[float] = []
    failed = 0
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _GONE_AT_ONCE)
            start = time.perf_counter()
            try:
                one.connect((address, port))
            except OSError:
                failed += 1
                continue
            took.append(time.perf_counter() - start)
    lasted = time.perf_counter() - began
    print(json.dumps({"took": took, "failed": failed, "lasted": lasted}))


if __name__ == "__main__":
    role, address, port, *numbers = sys.argv[1:]
    if role == "server":
        server(address, int(port))
    else:
        client(address, int(port), *map(float, numbers))
