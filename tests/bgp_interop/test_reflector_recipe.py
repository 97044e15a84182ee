"""The reflectors of docs/reflectors.md, as they are written there, before nodes of ours.

    n1, n2: calico-bgp -- hub -- reflector1 10.99.0.201 (BIRD), reflector2 10.99.0.202 (FRR)

The page's texts are run as they stand but for the addresses. Each reflector is killed in turn: what
was known stays, and what is new is told by the other.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bgp.world import World, cluster
from tests.bgp_interop.frr import DAEMONS
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

PAGE = Path(__file__).parents[2] / "docs" / "reflectors.md"
FIRST, SECOND = "10.99.0.201", "10.99.0.202"
ADDRESSES = {"10.0.255.1": FIRST, "10.0.255.2": SECOND, "10.0.0.0/16": "10.99.0.0/24"}


def text(language: str) -> str:
    """A text of the page with the lab's addresses."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for theirs, ours in ADDRESSES.items():
        found = found.replace(theirs, ours)
    assert "10.0." not in found
    return str(found)


class Reflector:
    """A machine with the daemons of one recipe."""

    def __init__(self, world: World, space: Namespace, folder: Path) -> None:
        self.world, self.space, self.folder = world, space, folder
        self.running: list[subprocess.Popen[bytes]] = []

    def launch(self, *command: str) -> None:
        with (self.world.directory / f"{self.folder.name}.log").open("ab") as log:
            started = subprocess.Popen(self.space.command(*command), stdout=log, stderr=log)
        self.running.append(started)

    def kill(self) -> None:
        for each in self.running:
            each.send_signal(signal.SIGKILL)
            each.wait(HANG)
        self.running.clear()

    def forwards_nothing(self) -> bool:
        """Whether the kernel has no way to a pod."""
        return "10.65." not in self.space.run("ip", "route")


class Bird(Reflector):
    def start(self) -> None:
        (self.folder / "bird.conf").write_text(text("bird"))
        control = str(self.folder / "bird.ctl")
        self.launch("bird", "-f", "-c", str(self.folder / "bird.conf"), "-s", control)


class Frr(Reflector):
    def start(self) -> None:
        (self.folder / "frr.conf").write_text(text("frr"))
        daemons = dict(line.split("=", 1) for line in text("daemons").split("\n") if line)
        assert daemons["bgpd"] == "yes"
        options = shlex.split(daemons["bgpd_options"].strip('"'))
        for path in (self.folder, self.folder / "frr.conf"):
            shutil.chown(str(path), "frr", "frr")
        for daemon, more in (("zebra", []), ("bgpd", options)):
            (self.folder / f"{daemon}.vty").unlink(missing_ok=True)
            private = ["--vty_socket", str(self.folder), "-z", f"{self.folder}/zserv.api"]
            private += ["-i", f"{self.folder}/{daemon}.pid", "-f", str(self.folder / "frr.conf")]
            self.launch(f"{DAEMONS}/{daemon}", *private, "-P", "0", *more, "--log", "stdout")
            wait_for((self.folder / f"{daemon}.vty").exists, "its socket")


Made = tuple[World, Bird, Frr]


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with cluster(2) as world, ExitStack() as stack:
        machines = []
        for name, address in (("reflector1", FIRST), ("reflector2", SECOND)):
            space = stack.enter_context(network_namespace(name))
            end = ("peer", "name", "eth0", "netns", space.name)
            world.hub.run("ip", "link", "add", name, "type", "veth", *end)
            world.hub.run("ip", "link", "set", name, "master", "br0", "up")
            space.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            space.run("ip", "link", "set", "eth0", "up")
            space.run("ip", "link", "set", "lo", "up")
            folder = world.directory / name
            folder.mkdir(mode=0o755)
            machines.append((space, folder))
        bird, frr = Bird(world, *machines[0]), Frr(world, *machines[1])
        for each in (bird, frr):
            stack.callback(each.kill)
            each.start()
        for node in world.nodes.values():
            world.register(node)
            world.block(node.name, f"10.65.{node.number}.0/26")
        for tree in yaml.safe_load_all(text("yaml")):
            world.apply(tree["kind"], tree["metadata"]["name"], tree["spec"])
        for node in world.nodes.values():
            node.start()
        yield world, bird, frr


def knows(world: World, name: str, prefix: str, next_hop: str) -> None:
    node = world.nodes[name]
    wait_for(
        lambda: node.ear.table.get(prefix) == (next_hop,), f"{name} knows {prefix} by {next_hop}"
    )


@pytest.mark.promise("PAIN-14")
def test_both_reflect_and_neither_is_on_the_path(made: Made) -> None:
    world, bird, frr = made
    for name, node in world.nodes.items():
        wait_for(lambda node=node: node.up(FIRST, SECOND), f"{name}'s sessions")  # type: ignore[misc]
    knows(world, "n1", "10.65.2.0/26", "10.99.0.2")
    knows(world, "n2", "10.65.1.0/26", "10.99.0.1")
    assert bird.forwards_nothing()
    assert frr.forwards_nothing()


@pytest.mark.promise("PAIN-14")
@pytest.mark.parametrize("dead", ["bird", "frr"])
def test_one_is_enough(made: Made, dead: str) -> None:
    world, bird, frr = made
    victim, gone, left = (bird, FIRST, SECOND) if dead == "bird" else (frr, SECOND, FIRST)
    n1, n2 = world.nodes.values()
    for node in (n1, n2):
        wait_for(lambda node=node: node.up(FIRST, SECOND), "sessions")  # type: ignore[misc]
    knows(world, "n1", "10.65.2.0/26", "10.99.0.2")
    n1.ear.lost.clear()
    victim.kill()
    try:
        wait_for(lambda: info(n1, gone) != "Established", "it is missed")
        assert info(n1, left) == "Established"
        new = "10.65.8.0/26" if dead == "bird" else "10.65.9.0/26"
        world.block("n2", new)
        knows(world, "n1", new, "10.99.0.2")
        assert n1.ear.lost == []
    finally:
        victim.start()


def info(node: Any, peer: str) -> str:
    return str(node.peers().get(peer, {}).get("info", ""))
