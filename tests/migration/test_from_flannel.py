"""From flannel: two nodes move to our network one after the other, pods reach each other meanwhile.

    node1: old-1, later new-1  ---- flannel.1 and vxlan.calico ----  node2: old-2, later new-2

The commands and the pools are those of docs/migration/from-flannel.md. Reverse path filtering is
strict on both nodes, as some distributions have it. "Reach" is ping and TCP, both ways, each pod
seen under its own address.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network

import pytest

from lab import agents, pods
from tests.migration import guide
from tests.migration.conftest import Flannel

GUIDE = "from-flannel.md"
AGENTS = {"CALICO_NETWORKING_BACKEND": "vxlan"}
LATER = {"CNI_CONF_NAME": "20-calico.conflist"}
OLD, NEW = ip_network("10.244.0.0/17"), ip_network("10.244.128.0/17")


@contextmanager
def unharmed(made: Flannel, one: str, other: str, what: str) -> Iterator[None]:
    """Traffic between two pods loses nothing while the body runs."""
    with made.traffic(one, other) as seen:
        yield
    print(f"{what}:", *seen.lines, file=sys.stderr)
    assert (seen.lost, seen.stream_error) == (0, ""), seen.lines


def move(made: Flannel, number: int) -> None:
    """One node: drained, the guide's commands, and its pod in our network."""
    node = made.flannels[number - 1]
    pods.remove(made.lab, made.pods.pop(f"old-{number}"))
    guide.follow(node.machine, GUIDE, "Each node")
    assert ip_address(made.add(f"new-{number}", node.name).address) in NEW


def test_our_agents_come_and_nobody_notices(flannel: Flannel) -> None:
    """Traffic of old pods goes on, flannel's routes stay, and new pods are still flannel's."""
    for node in flannel.flannels:
        node.machine.run(["sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1"])
    before = [node.kernel() for node in flannel.flannels]
    with unharmed(flannel, "old-1", "old-2", "our agents come"):
        for machine in flannel.lab.nodes:
            flannel.install(machine, LATER)
            agents.start(machine, flannel.lab.plan, AGENTS)
        flannel.wait_for_agents(flannel.lab.nodes)
        flannel.apply(guide.snippet(GUIDE, "The pool"))
        for each in flannel.flannels:
            flannel.eventually(
                lambda node=each: "vxlan.calico" in flannel.text(node.name, "ip", "-o", "link"),  # type: ignore[misc]
                "our device",
            )
            guide.follow(each.machine, GUIDE, "Our agents on every node")
    assert before == [node.kernel() for node in flannel.flannels]
    still = flannel.add("still-old", "node1")
    assert ip_address(still.address) in OLD
    flannel.connected()
    pods.remove(flannel.lab, flannel.pods.pop("still-old"))


def test_the_first_node_moves(flannel: Flannel) -> None:
    """Its new pod and the other node's old one reach each other, with their own addresses."""
    move(flannel, 1)
    flannel.connected(["new-1", "old-2"])
    with unharmed(flannel, "new-1", "old-2", "between the networks"):
        flannel.add("new-1b", "node1")
        flannel.connected(["new-1b", "old-2"])


@pytest.mark.promise("F-109")
def test_the_second_node_moves_and_nothing_is_left(flannel: Flannel) -> None:
    """Flannel's last device goes under traffic; what the guide checks is gone on both nodes."""
    move(flannel, 2)
    flannel.connected()
    with unharmed(flannel, "new-1", "new-2", "flannel's last device goes"):
        for node in flannel.flannels:
            guide.follow(node.machine, GUIDE, "When all are moved")
        flannel.machine("node1").run(["calicoctl", "delete", "ippool", "flannel"])
    for node in flannel.flannels:
        guide.follow(node.machine, GUIDE, "Check")
    flannel.connected()
    flannel.leave_nothing()
