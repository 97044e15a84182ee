"""One question over the control socket; tests/calicoctl/test_node_bird.py asks a real BIRD."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from libcalico.local.bird_socket import answer


def test_an_answer_in_parts_is_read_to_its_end(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client:
            client.sendall(b"0001 BIRD 2.0 ready.\n")
            asked.append(client.recv(4096))
            for part in (b"1007-Table\n 10.0.0.0/8 00", b"00 \n10", b"08-\tType: BGP\n0000 \n"):
                client.sendall(part)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bird.ctl"))
        listening.listen()
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        told = answer(tmp_path / "bird.ctl", "show route")
        server.join()
    assert told == "1007-Table\n 10.0.0.0/8 0000 \n1008-\tType: BGP\n0000 \n"
    assert asked == [b"show route\n"]


def test_a_speaker_that_hangs_up_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bird.ctl"))
        listening.listen()
        server = threading.Thread(target=lambda: listening.accept()[0].close())
        server.start()
        with pytest.raises(OSError, match="closed the connection"):
            answer(tmp_path / "bird.ctl", "show route")
        server.join()
