"""bgp is SIGKILLed again and again while routes come and go: no packet is lost, nothing is left.

Once with passwords on all sessions: a start-up with its passwords read late, or a key that stays in
the kernel, would show here. Full size: 20 times.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack

import pytest

from tests.bgp.routed import OURS, Felix, Stream, kernel_table, use_pool
from tests.bgp.world import ROUTER, Node, World, cluster
from tests.support.patience import wait_for

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
KILLS = 20 if FULL else 3
STEADY = 100 if FULL else 8
"""Blocks of the neighbour that stay all the time."""


class Churn:
    """Blocks of a node come and go, one after another, until told to end."""

    def __init__(self, world: World, node: Node) -> None:
        self.world, self.node, self.turns = world, node, 0
        self.present: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Wait until some more has changed."""
        least = self.turns + 4
        wait_for(lambda: self.turns > least, "churn")

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            cidr = f"10.66.{self.turns % 7}.0/26"
            if cidr in self.present:
                self.world.unblock(self.node.name, cidr)
                self.present.discard(cidr)
            else:
                self.world.block(self.node.name, cidr)
                self.present.add(cidr)
            self.turns += 1


def wanted(steady: set[str], churn: Churn, node: Node) -> dict[str, str]:
    """What the kernel must hold of the neighbour's blocks: all of them, by way of its address."""
    return dict.fromkeys(steady | churn.present, f"via {node.address}")


def learned(node: Node, by: Node) -> dict[str, str]:
    """The kernel's routes to blocks of `by`, the device and flags left out."""
    table = kernel_table(node.space)
    way = f"via {by.address}"
    return {prefix: way for prefix, rest in table.items() if f"{way} " in rest}


def protect(world: World, secret: str) -> None:
    """Every session of every node has this password: the router's, and the mesh's."""
    world.secret = secret
    for node in world.nodes.values():
        folder = world.directory / f"passwords-{node.name}" / "bgp"
        folder.mkdir(parents=True)
        (folder / "key").write_text(secret)
        (folder / "key").chmod(0o600)
        node.environ["CALICO_BGP_PASSWORD_DIR"] = str(folder.parent)
    reference = {"secretKeyRef": {"name": "bgp", "key": "key"}}
    world.apply("BGPConfiguration", "default", {"nodeMeshPassword": reference})
    world.peer_with_router(password=reference)


@pytest.mark.promise("M-189")
@pytest.mark.promise("F-43")
@pytest.mark.parametrize("secret", ["", "gegen Fremde 7"], ids=["open", "with passwords"])
def test_killed_during_churn(secret: str) -> None:
    """Streams over learned routes, ours and the router's, lose nothing; the tables converge.

    What stands in the kernel at the end is what a node that starts from nothing would have.
    """
    with ExitStack() as stack:
        world = stack.enter_context(cluster(2))
        n1, n2 = world.nodes.values()
        use_pool(world)
        steady = {f"10.65.{128 + number}.0/26" for number in range(STEADY)}
        for node in (n1, n2):
            world.register(node)
            address = f"10.65.{node.number}.1"
            node.space.run("ip", "address", "add", f"{address}/32", "dev", "lo")
            world.block(node.name, f"10.65.{node.number}.0/26")
        for cidr in sorted(steady):
            world.block(n2.name, cidr)
        steady.add("10.65.2.0/26")
        if secret:
            protect(world, secret)
        else:
            world.peer_with_router()
        world.start_bird()
        felix = Felix(n1)
        stack.callback(felix.stop)
        felix.start()
        n1.start()
        n2.start()
        felix.wait()
        churn = Churn(world, n2)
        wait_for(lambda: n1.up(ROUTER, n2.address) and n2.up(ROUTER, n1.address), "sessions")
        all_there = lambda: learned(n1, n2) == wanted(steady, churn, n2)  # noqa: E731
        wait_for(all_there, "routes")
        wait_for(lambda: "10.65.1.0/26" in world.kernel_routes(), "the router's")
        ways = [
            Stream(n1.space, n2.space, "10.65.2.1"),
            Stream(world.hub, n1.space, "10.65.1.1"),
        ]
        with ExitStack() as running:
            for way in ways:
                running.enter_context(way.running())
            with churn:
                for turn in range(KILLS if FULL or not secret else 1):
                    churn.goes_on()
                    n1.kill(signal.SIGKILL)
                    churn.goes_on()
                    n1.start()
                    if turn % 3 == 2:
                        continue  # killed again while it starts
                    wait_for(lambda: n1.up(ROUTER, n2.address), "sessions")
            wait_for(lambda: n1.up(ROUTER, n2.address), "sessions")
            wait_for(all_there, "converged")
        for way in ways:
            assert way.sent > 50
            assert (way.refused, way.lost) == ([], []), f"to {way.address}: of {way.sent}"
        converged = kernel_table(n1.space)
        n1.kill(signal.SIGKILL)
        felix.stop()
        n1.space.run("ip", "-4", "route", "flush", "proto", OURS)
        assert kernel_table(n1.space) == {}
        felix.start()
        n1.start()
        wait_for(lambda: kernel_table(n1.space) == converged, "a fresh start")
