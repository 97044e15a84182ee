"""Cables: racks are routed, the management net reaches etcd, a pulled cable loses the carrier."""

from __future__ import annotations

import json

import pytest

from lab import proc
from lab.cluster import Lab
from lab.machine import Machine
from tests.support.patience import HANG


def flags(machine: Machine) -> list[str]:
    """Of eth0."""
    found: list[str] = json.loads(machine.run(["ip", "-j", "link", "show", "eth0"]).stdout)[0][
        "flags"
    ]
    return found


def reaches(machine: Machine, address: str, wait: int = 1) -> bool:
    """One ping, and `wait` seconds for its answer."""
    return machine.run(["ping", "-c1", f"-W{wait}", address], check=False).returncode == 0


@pytest.mark.parametrize(
    "address", ["10.99.1.2", "10.99.2.3", "10.99.0.1", "10.99.1.254", "fd99:0:0:2::3"]
)
def test_node1_reaches_the_others(bare: Lab, address: str) -> None:
    assert reaches(bare.nodes[0], address, 60)


def test_nodes_of_two_racks_are_one_router_apart(bare: Lab) -> None:
    text = bare.nodes[0].run(["traceroute", "-n", "-q1", "-w60", "10.99.2.3"]).stdout
    assert [line.split()[1] for line in text.splitlines()[1:]] == ["10.99.1.254", "10.99.2.3"]


def test_etcd_serves_the_nodes(bare: Lab) -> None:
    endpoint = f"--endpoints={bare.plan.etcd_endpoint}"
    bare.nodes[2].run(["etcdctl", endpoint, "put", "/x", "1"])
    assert bare.nodes[0].run(["etcdctl", endpoint, "get", "/x"]).stdout == "/x\n1\n"


def test_a_pulled_cable_loses_the_carrier_and_keeps_the_configuration(bare: Lab) -> None:
    node = bare.nodes[1]
    routes = node.run(["ip", "-j", "route"]).stdout
    bare.link("node2", up=False)
    try:
        # The kernel tells it by a work queue of its own.
        proc.wait_until(lambda: "NO-CARRIER" in flags(node), "no carrier", timeout=HANG)
        assert not reaches(node, "10.99.0.1")
        assert reaches(bare.nodes[0], "10.99.0.1", 60)
    finally:
        bare.link("node2", up=True)
    proc.wait_until(lambda: reaches(node, "10.99.0.1"), "node2 is back", timeout=HANG)
    assert node.run(["ip", "-j", "route"]).stdout == routes
