"""Two nodes and a router: addresses that a node borrows, and what everybody may see of a node.

 router 10.99.1.254
  |            |
node1        node2        pool 10.66.0.0/30: one block, of whoever comes first
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lab import cluster, pods, proc
from lab.cluster import Lab
from lab.demo import look
from lab.topology import ROUTER_AS, ROUTER_HOST
from tests.e2e.conftest import say
from tests.support.patience import HANG

OBJECTS = f"""\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {{name: tiny}}
spec: {{cidr: 10.66.0.0/30, blockSize: 30, ipipMode: Never, vxlanMode: Never}}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {{name: tor}}
spec: {{peerIP: 10.99.1.{ROUTER_HOST}, asNumber: {ROUTER_AS}}}
"""
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    """Two nodes with agents, a router, etcd, a pool of one block; all sessions."""
    name = f"two{os.getpid()}"
    lab = cluster.up(name, nodes=2, topology="flat", say=say)
    try:
        lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=OBJECTS.encode())
        yield lab
    finally:
        cluster.down(name)


def test_a_borrowed_address_is_announced_and_reached(two: Lab) -> None:
    """The borrower announces a /32; its prefix is longer than the owner's block, and wins."""
    owner = pods.add(two, "owner", "node1")
    borrower = pods.add(two, "borrower", "node2")
    (block,) = look.etcd(two, "/calico/ipam/v2/assignment/").values()
    assert (block["cidr"], block["affinity"]) == ("10.66.0.0/30", "host:node1")
    (node1, node2), away = two.nodes, two.host("node2").address.ip
    near = two.host("node1").address.ip
    ways = [(node1, borrower.address, away), (two.router, borrower.address, away)]
    # The answers go back to the owner by its block.
    for machine, network, hop in (*ways, (node2, "10.66.0.0/30", near)):
        proc.wait_until(
            lambda m=machine, n=network, h=hop: (  # type: ignore[misc]
                f"via {h} " in m.run(["ip", "route", "show", n]).stdout
            ),
            f"{machine.name} knows the way to {network}",
            timeout=HANG,
        )
    assert pods.answers(two, owner, borrower.address)
    assert pods.answers(two, borrower, owner.address)
    for pod in (borrower, owner):
        pods.remove(two, pod)
    proc.wait_until(
        lambda: not node1.run(["ip", "route", "show", borrower.address]).stdout,
        "the way is gone with the pod",
        timeout=HANG,
    )
    assert not any(look.in_use(two).values())


def test_a_claim_that_is_deleted_comes_back_with_its_route(two: Lab) -> None:
    """Its owner writes it again at once; then all is as before."""
    claims, owner = "/calico/ipam/v2/host/", pods.add(two, "owner", "node1")
    borrower = pods.add(two, "borrower", "node2")
    (key,) = look.etcd(two, claims)
    near = two.host("node1").address.ip

    def routes(*network: str) -> str:
        return two.router.run(["ip", "route", "show", *network]).stdout

    for _ in range(2):
        two.etcd.run(["etcdctl", "del", key])
        proc.wait_until(lambda: key in look.etcd(two, claims), "the claim is back", timeout=HANG)
        proc.wait_until(
            lambda: (
                f"via {near} " in routes("10.66.0.0/30")
                and not routes(f"{owner.address}/32")
                and bool(routes(f"{borrower.address}/32"))
            ),
            "the block has its route, and the borrowed address alone its own",
            timeout=HANG,
        )
        # What was seen may have been the routes of before, which go and come once more.
        proc.wait_until(
            lambda: (
                pods.ping(two, owner, borrower.address) and pods.ping(two, borrower, owner.address)
            ),
            "each pod reaches the other",
            timeout=HANG,
        )
    for pod in (borrower, owner):
        pods.remove(two, pod)


def test_node_status_needs_no_root(two: Lab) -> None:
    node = two.nodes[0]
    assert node.run([*NOBODY, "id", "-u"]).stdout == "65534\n"
    proc.wait_until(
        lambda: (
            node.run(["calicoctl", "node", "status"], check=False).stdout.count("Established") == 2
        ),
        "both sessions are up",
        timeout=HANG,
    )
    seen = node.run([*NOBODY, "calicoctl", "node", "status"]).stdout
    assert "Calico process is running." in seen
    assert seen.count("Established") == 2
