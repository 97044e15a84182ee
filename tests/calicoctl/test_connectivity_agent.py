"""The probe's program as it runs in a pod: a server and questions, in processes of this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from calicoctl.connectivity import agent
from calicoctl.connectivity.running import program
from tests.support.ports import free_ports

COMMAND = [sys.executable, "-I", "-S", "-c", program()]


@pytest.fixture
def port() -> Iterator[int]:
    """A server of ours on this port and the next free one."""
    one, other = free_ports(2)
    server = subprocess.Popen(
        [*COMMAND, "serve", "t/name", "0", str(one), str(other)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    assert server.stdout.readline() == b"listening\n"
    try:
        yield one
        # It ends with its standard input, and by that alone.
        assert server.poll() is None
        server.stdin.close()
        assert server.wait(timeout=60) == 0
    finally:
        server.kill()
        server.wait()


def asked(*probes: dict[str, Any]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*COMMAND, "ask"], input=json.dumps(probes).encode(), capture_output=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return sorted(found, key=lambda one: int(one["id"]))


def question(number: int, port: int, kind: str, host: str = "127.0.0.1") -> dict[str, Any]:
    return {"id": number, "host": host, "port": port, "seconds": 60, "kind": kind, "for": 0.05}


def test_a_server_answers_every_kind_of_question(port: int) -> None:
    full, connect, speed = asked(
        question(0, port, "full"), question(1, port, "connect"), question(2, port, "speed")
    )
    assert (full["outcome"], full["name"]) == ("answer", "t/name")
    assert full["latency_ms"] > 0
    assert connect["outcome"] == "answer"
    assert (speed["outcome"], speed["bits"] > 0) == ("answer", True)


def test_a_closed_port_refuses_and_a_strange_host_is_unreachable() -> None:
    (closed,) = free_ports(1)
    refused, strange = asked(
        question(0, closed, "full"), question(1, closed, "full", "no.such.host.invalid")
    )
    assert refused["outcome"] == "refused"
    assert strange["outcome"] == "unreachable"
    assert strange["error"]


def test_a_server_that_says_nothing_is_silent_and_one_that_hangs_up_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        patient = {**question(0, mute.getsockname()[1], "full"), "seconds": 0.2}
        (silent,) = asked(patient)
    assert silent["outcome"] == "silent"


def test_large_packets_that_are_lost_are_told_apart() -> None:
    """A server that answers small questions, and takes no more than a packet."""
    import threading

    def half_deaf(server: socket.socket) -> None:
        link, _ = server.accept()
        with link:
            for _ in range(agent.ROUNDS):
                link.recv(100)
                link.sendall(b"half\n")
            closed.wait(60)

    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=half_deaf, args=(server,))
        thread.start()
        (found,) = asked({**question(0, server.getsockname()[1], "full"), "seconds": 5})
        closed.set()
        thread.join()
    assert (found["outcome"], found["name"]) == ("large-out", "half")
