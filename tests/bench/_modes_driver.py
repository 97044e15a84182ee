"""One end of a measurement: `serve PORT`, `stream ADDRESS PORT SECONDS`, `ask ADDRESS PORT COUNT`.

Runs in pods and on nodes, also inside a guest: standard library only, run with `-I -S`.
`stream` sends as fast as it can and prints what the other end counted; `ask` prints the seconds
that each of COUNT one-byte requests took to be answered, one after another on one connection.
"""

import json
import socket
import sys
import threading
import time

BLOCK = 1 << 20
STREAM, ASK = b"s", b"a"


def serve(port: int) -> None:
    """Answer for ever."""
    server = socket.create_server(("0.0.0.0", port))
    print("ready", flush=True)
    while True:
        link, _ = server.accept()
        threading.Thread(target=answer, args=(link,), daemon=True).start()


def answer(link: socket.socket) -> None:
    """One connection; its first byte says what it is for."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with link:
        if link.recv(1) == ASK:
            while link.recv(1):
                link.sendall(b"!")
            return
        room, total, begun = bytearray(BLOCK), 0, time.perf_counter()
        while got := link.recv_into(room):
            total += got
        taken = time.perf_counter() - begun
        link.sendall(json.dumps({"bytes": total, "seconds": taken}).encode())


def connect(address: str, port: int, first: bytes) -> socket.socket:
    """A connection for one purpose."""
    link = socket.create_connection((address, port), timeout=60)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(first)
    return link


def stream(address: str, port: int, seconds: float) -> object:
    """Send for some seconds; what the other end counted."""
    with connect(address, port, STREAM) as link:
        block, until = bytes(BLOCK), time.perf_counter() + seconds
        while time.perf_counter() < until:
            link.sendall(block)
        link.shutdown(socket.SHUT_WR)
        said = b""
        while got := link.recv(4096):
            said += got
        return json.loads(said)


def ask(address: str, port: int, count: int) -> object:
    """The seconds of each request; the first tenth warms up."""
    with connect(address, port, ASK) as link:
        taken = []
        for _ in range(count + count // 10):
            begun = time.perf_counter()
            link.sendall(b"?")
            if not link.recv(1):
                raise SystemExit("the other end closed the connection")
            taken.append(time.perf_counter() - begun)
        return taken[count // 10 :]


def main(words: list[str]) -> None:
    """One end."""
    if words[0] == "serve":
        serve(int(words[1]))
    elif words[0] == "stream":
        print(json.dumps(stream(words[1], int(words[2]), float(words[3]))))
    else:
        print(json.dumps(ask(words[1], int(words[2]), int(words[3]))))


if __name__ == "__main__":
    main(sys.argv[1:])
