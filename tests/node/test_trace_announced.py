"""The peer that announced a route, in the words of BIRD's socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from node.trace.announced import announced, parsed

ROUTE = """\
1007-Table master4:
 10.65.11.0/26        unicast [{name} 20:51:58] * (100) [i]
 \tvia 10.99.1.2 on eth0
1008-\tType: BGP univ
0000\x20
"""


@pytest.mark.parametrize(
    ("name", "version", "peer"),
    [
        ("Mesh_10_99_1_2", 4, "10.99.1.2"),
        ("Node_10_99_1_254_port_1179", 4, "10.99.1.254"),
        ("Global_fd00__1", 6, "fd00::1"),
        ("kernel1", 4, ""),
    ],
)
def test_the_peer_of_a_route(name: str, version: int, peer: str) -> None:
    assert parsed(ROUTE.format(name=name), version) == (peer, "20:51:58" if peer else "")


def test_no_route_has_no_peer() -> None:
    assert parsed("8001 Network not found\n", 4) == ("", "")


def test_the_socket_is_asked(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client:
            client.sendall(b"0001 BIRD 2.0 ready.\n")
            asked.append(client.recv(4096))
            client.sendall(ROUTE.format(name="Mesh_10_99_1_2").encode())

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bird.ctl"))
        listening.listen()
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        assert announced("10.65.11.3", tmp_path) == ("10.99.1.2", "20:51:58")
        server.join()
    assert asked == [b"show route all primary for 10.65.11.3\n"]


def test_a_speaker_that_is_away_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        announced("10.65.11.3", tmp_path)
