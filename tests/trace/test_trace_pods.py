"""Causes in the pods: no server, no pod, a full queue; and traces that follow the pod itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import pods
from tests.support.ended import ended
from tests.support.patience import wait_for
from tests.trace.scene import Scene, scene

FULL = """
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("0.0.0.0", 9090))
server.listen(0)
waiting = []
for _ in range(2):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", 9090))
    waiting.append(client)
print("full", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Scene]:
    """The lab. Rules do not matter here."""
    with scene("iptables-nft") as made:
        yield made


def test_nothing_listens_on_the_port(two: Scene) -> None:
    name, text = two.cause(port="9999")
    assert (name, text[-6:]) == ("closed-port", "@node2")
    assert "port 9999" in text


def test_nothing_listens_for_datagrams(two: Scene) -> None:
    name, text = two.cause("--proto", "udp", port="9999")
    assert (name, text[-6:]) == ("closed-port", "@node2")


def test_the_pods_own_end_is_down(two: Scene) -> None:
    """Its process died half way, or a plugin left it so."""
    plant, undo = (f"ip link set eth0 {state}" for state in ("down", "up"))
    listed = ["ip", "-j", "route", "show"]
    (default,) = [
        f"{r['dst']} via {r['gateway']} dev eth0 onlink"
        for r in json.loads(two.node2.run(listed, netns=two.server.netns).stdout)
        if r["dst"] == "default"
    ]
    gateway = default.split()[2]
    undo += f"; ip route add {gateway} dev eth0 scope link; ip route add {default}"
    with two.planted(two.node2, plant, undo, pod=two.server):
        name, text = two.cause()
        assert (name, text[-6:]) == ("pod-down", "@node2")


def test_the_source_pods_end_is_down(two: Scene) -> None:
    (gateway,) = [
        r["gateway"]
        for r in json.loads(
            two.node1.run(["ip", "-j", "route", "show"], netns=two.client.netns).stdout
        )
        if r["dst"] == "default"
    ]
    undo = (
        f"ip link set eth0 up; ip route add {gateway} dev eth0 scope link;"
        f" ip route add default via {gateway} dev eth0"
    )
    with two.planted(two.node1, "ip link set eth0 down", undo, pod=two.client):
        name, text = two.cause()
        assert (name, text[-6:]) == ("interface-down", "@node1")


def test_the_queue_of_the_server_is_full(two: Scene) -> None:
    command = two.node2.command([sys.executable, "-c", FULL], netns=two.server.netns)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert server.stdout.readline() == b"full\n"
        name, text = two.cause(port="9090")
        server.stdin.close()
    assert (name, text[-6:]) == ("backlog", "@node2")
    assert "ListenOverflows" in text


def test_a_ping_is_followed(two: Scene) -> None:
    tree = two.reaching("--proto", "icmp", port="")
    assert tree["reached"] is True
    assert tree["probe"]["result"] == "answered"
    assert tree["forward"][-1]["place"] == "destination"


def test_the_pods_own_attempt_is_followed_and_none_is_sent(two: Scene) -> None:
    command = two.node1.command(
        ["sh", "-c", f"while :; do nc -z -w 60 {two.server.address} 8080; sleep 0.2; done"],
        netns=two.client.netns,
    )
    with subprocess.Popen(command, start_new_session=True) as client:
        try:
            words = two.words("client", "server", "--port", "8080", "--no-send", "-o", "json")
            tree = json.loads(two.node1.run(words).stdout)
        finally:
            os.killpg(client.pid, signal.SIGKILL)
    assert tree["probe"] is None
    assert tree["reached"] is True
    assert tree["forward"][-1]["place"] == "destination"


def test_outputs_of_the_nodes_are_joined_as_well(two: Scene, tmp_path: Path) -> None:
    """The lines of the program on both, in files: the same story, without --via."""
    files = [two.node1.path("/tmp/one.trace"), two.node1.path("/tmp/two.trace")]
    ends = [two.client.address, two.server.address, "--port=8080"]
    # It ends with its standard input: when the other has ended, however long that takes.
    there = ["calico-node", "trace", *ends, "--no-send", "--attended", "--seconds", "600"]
    there += ["--destination-interface", two.interface(two.server)]
    with (
        files[1].open("wb") as out,
        ended(
            subprocess.Popen(
                two.node2.command(there),
                stdin=subprocess.PIPE,
                stdout=out,
                env=two.node2.environment(),
            )
        ) as watch,
    ):
        wait_for(lambda: b'"ready"' in files[1].read_bytes(), "the other node watches")
        here = ["calicoctl", "node", "trace", *ends, "--wait", "0"]
        here += ["--source-interface", two.interface(two.client)]
        files[0].write_text(two.node1.run(here).stdout)
        watch.communicate()
        assert watch.returncode == 0
    command = ["calicoctl", "trace", "client", "server", "--port", "8080", "-o", "json"]
    joined = [f"--node-output=/tmp/{name}.trace" for name in ("one", "two")]
    tree = json.loads(two.node1.run([*command, *joined]).stdout)
    assert tree["reached"] is True
    assert [each["node"] for each in tree["forward"]][-1] == "node2"
    wrong = two.node1.run(
        ["calicoctl", "trace", "server", "client", "--port", "8080", *joined], check=False
    )
    assert wrong.returncode == 1
    assert "is of another connection" in wrong.stderr


def test_a_node_that_cannot_be_asked_is_named(two: Scene) -> None:
    command = ["calicoctl", "trace", "client", "server", "--port", "8080", "--wait", "0"]
    done = two.node1.run(command)
    assert "Missing: node node2 was not asked: this machine is node1" in done.stdout
    assert "REACHED: connected" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_watch_leaves_nothing_behind(two: Scene, number: int) -> None:
    """TRC-1: by any signal, tables and programs are gone with the process."""
    command = ["calico-node", "trace", two.client.address, two.server.address, "--port=8080"]
    command += ["--no-send", "--seconds", "600"]
    watch = two.node1.start(command)
    assert watch.stdout is not None
    assert b'"ready"' in watch.stdout.readline()
    assert "muslin-trace-" in two.node1.run(["nft", "list", "tables"]).stdout
    watch.send_signal(number)
    watch.wait()
    watch.stdout.close()
    wait_for(
        lambda: "muslin-trace" not in two.node1.run(["nft", "list", "tables"]).stdout,
        "the kernel removes the table",
    )


def test_a_watch_is_bound_by_its_count(two: Scene) -> None:
    command = ["calico-node", "trace", two.client.address, two.server.address, "--port=8080"]
    command += ["--count", "5", "--wait", "0", "--source-interface", two.interface(two.client)]
    lines = [json.loads(line) for line in two.node1.run(command).stdout.splitlines()]
    assert lines[-1] == {"type": "end", "lost": 0, "cut": True}
    assert sum(line["type"] in ("packet", "rule") for line in lines) == 5


def test_bad_words_are_refused_with_what_is_allowed(two: Scene) -> None:
    for words, said in (
        (["client", "server"], "--port"),
        (["client", "server", "--port", "80", "--proto", "icmp"], "has no ports"),
        (["client", "server", "--port", "80", "--via", "node2"], "NODE=COMMAND"),
        (["client", "server", "--port", "80", "--via", "node9=ssh x"], "a node: node1, node2"),
        (["client", "absent", "--port", "80"], "neither a pod default/absent"),
        (["192.0.2.1", "192.0.2.2", "--port", "80"], "neither end lies on a node"),
    ):
        done = two.node1.run(["calicoctl", "trace", *words], check=False)
        assert done.returncode == 1
        assert said in done.stderr


def test_pods_of_one_node(two: Scene) -> None:
    near = pods.add(two.lab, "near", "node1", ports=["tcp:8080"])
    try:
        tree = two.reaching("client", "near")
        assert tree["reached"] is True
        assert {each["node"] for each in tree["forward"]} == {"node1"}
        assert tree["forward"][-1]["place"] == "destination"
    finally:
        pods.remove(two.lab, near)
