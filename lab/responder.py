"""The program in a pod of the lab: it answers each client with the client's address.

`responder.py tcp:8080 udp:5353 ...` listens on all addresses of the pod, both families. TCP: greets
with `peer ADDRESS PORT`, then sends back all that arrives. UDP: answers with the same line.
Standard library only, run with `-I -S`.
"""

import selectors
import socket
import sys
from collections.abc import Callable

CHOOSER = selectors.DefaultSelector()


def plain(address: str) -> str:
    """An IPv4 address without the IPv6 wrapping of a dual-stack socket."""
    return address.removeprefix("::ffff:")


def listen(kind: str, port: int) -> None:
    """One dual-stack socket; IPv4 alone where the machine has no IPv6."""
    try:
        server = socket.socket(
            socket.AF_INET6, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        )
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        any_address = "::"
    except OSError:
        server = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        )
        any_address = "0.0.0.0"
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((any_address, port))
    if kind == "tcp":
        server.listen(128)
    CHOOSER.register(server, selectors.EVENT_READ, accept if kind == "tcp" else answer)


def accept(server: socket.socket) -> None:
    """Greet a new connection."""
    link, peer = server.accept()
    link.sendall(f"peer {plain(peer[0])} {peer[1]}\n".encode())
    CHOOSER.register(link, selectors.EVENT_READ, echo)


def echo(link: socket.socket) -> None:
    """Send back what came; forget a connection that ended."""
    try:
        block = link.recv(65536)
        if block:
            link.sendall(block)
            return
    except OSError:
        pass
    CHOOSER.unregister(link)
    link.close()


def answer(server: socket.socket) -> None:
    """Answer one datagram."""
    _, peer = server.recvfrom(65536)
    server.sendto(f"peer {plain(peer[0])} {peer[1]}\n".encode(), peer)


def main(arguments: list[str]) -> None:
    """Listen on everything asked for, say so, serve for ever."""
    for argument in arguments:
        kind, _, port = argument.partition(":")
        listen(kind, int(port))
    print("listening", flush=True)
    while True:
        for key, _ in CHOOSER.select():
            act: Callable[[socket.socket], None] = key.data
            assert isinstance(key.fileobj, socket.socket)
            try:
                act(key.fileobj)
            except OSError as error:
                print(f"{error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
