"""Hosts outside Kubernetes: one node of a lab is started by the systemd unit's own commands.

 node1: calico-node by hand ---- rack 1 ---- node2: by calico-node.service and calico.env

1. The unit's commands, with its capabilities and no more, make a node whose pods reach others.
2. systemd is told when it is started, and stopping leaves the kernel as it is.
3. node1 is renumbered under traffic: every node follows, and the pods' stream survives.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import agents, cluster, pods, proc
from lab.cluster import Lab
from lab.demo import traffic
from lab.machine import Machine
from lab.pods import Pod
from node.settings.environment import settings as node_settings
from node.settings.variables import VARIABLES
from node.start.modules import WANTED
from tests.e2e.conftest import say
from tests.node import units
from tests.node.units import Unit
from tests.support.patience import HANG

MANIFESTS = Path(__file__).parents[2] / "manifests" / "systemd"
SERVICE = MANIFESTS / "calico-node.service"
EXAMPLE = MANIFESTS / "calico.env.example"
PORT = 7000
LONGEST_GAP = HANG
"""Seconds: confirmed, stored, the speaker started again, its session up."""
POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
"""


@dataclass
class World:
    """A lab whose second node is a unit's, and a pod on each."""

    lab: Lab
    unit: Unit
    pods: tuple[Pod, Pod]


def start_by_unit(node: Machine, lab: Lab) -> Unit:
    """Install as docs/node.md says, with the example's settings changed where a lab differs."""
    program = shutil.which("calico-node", path=node.environment()["PATH"])
    assert program is not None
    node.path("/opt/muslin/bin").mkdir(parents=True)
    node.path("/opt/muslin/bin/calico-node").symlink_to(program)
    own = agents.environment(lab.plan, node.name)
    changed = (
        units.variables(EXAMPLE.read_text()) | own | {"IP_AUTODETECTION_METHOD": "first-found"}
    )
    without_tls = {
        k: v for k, v in changed.items() if not k.startswith("ETCD_C") and k != "ETCD_KEY_FILE"
    }
    node.path("/etc/calico/calico.env").write_text(
        "".join(f"{name}={value}\n" for name, value in without_tls.items())
    )
    agents.install(node, lab.plan)
    unit = Unit(node, units.read(SERVICE))
    unit.start()
    return unit


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    lab = cluster.up(f"unit{os.getpid()}", nodes=2, topology="flat", agents_too=False, say=say)
    unit = None
    try:
        by_hand, by_unit = lab.nodes
        agents.install(by_hand, lab.plan)
        agents.start(by_hand, lab.plan, {})
        unit = start_by_unit(by_unit, lab)
        for node in lab.nodes:
            agents.wait(node, timeout=HANG)
        by_hand.run(["calicoctl", "apply", "-f", "-"], stdin=POOL.encode(), timeout=HANG)
        # It has agents now, so pods bring their namespaces along.
        lab.state.agents = True
        one, other = (
            pods.add(lab, f"on-{node.name}", node.name, ports=[f"tcp:{PORT}"]) for node in lab.nodes
        )
        reached(lab, one, other)
        yield World(lab, unit, (one, other))
    except BaseException:
        for node in lab.nodes:
            print(agents.log_tail(node, 40), file=sys.stderr)
        if unit is not None:
            print(unit.machine.path(unit.log).read_text()[-6000:], file=sys.stderr)
        raise
    finally:
        if unit is not None:
            unit.close()
        cluster.down(lab.name)


def reached(lab: Lab, one: Pod, other: Pod) -> None:
    for here, there in ((one, other), (other, one)):
        proc.wait_until(
            lambda here=here, there=there: pods.ping(lab, here, there.address),  # type: ignore[misc]
            f"{here.name} reaches {there.name}",
            timeout=HANG,
        )


@pytest.mark.promise("F-118")
def test_a_host_outside_kubernetes_is_a_node_by_its_unit(world: World) -> None:
    assert world.unit.states[0] == "READY=1"
    (main,) = world.unit.pids()
    status = Path(f"/proc/{main}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert int(fields["CapBnd"], 16).bit_count() == len(
        world.unit.service["CapabilityBoundingSet"][0].split()
    )
    said = world.unit.machine.path(world.unit.log).read_text()
    assert "chose this node's IPv4 address 10.99.1.2/24: " in said
    assert "Operation not permitted" not in said
    nodes = world.lab.nodes[0].run(["calicoctl", "get", "nodes", "-o", "json"]).stdout
    found = {one["metadata"]["name"]: one["spec"]["bgp"] for one in json.loads(nodes)["items"]}
    assert found["node2"]["ipv4Address"] == "10.99.1.2/24"


def stored(world: World, node: str) -> str:
    text = world.lab.nodes[1].run(["calicoctl", "get", "node", node, "-o", "json"]).stdout
    address: str = json.loads(text)["spec"]["bgp"]["ipv4Address"]
    return address


def way(world: World) -> str:
    """node2's way to node1's pod."""
    return world.lab.nodes[1].run(["ip", "route", "get", world.pods[0].address]).stdout


@pytest.mark.promise("PAIN-10")
def test_an_address_that_changes_under_traffic(world: World) -> None:
    """The new address comes, and the old one goes at once, as when a host is renumbered."""
    node1 = world.lab.nodes[0]
    node1.run(["sysctl", "-qw", "net.ipv4.conf.all.promote_secondaries=1"])
    with traffic.between(world.lab, *world.pods, PORT) as seen:
        node1.run(["ip", "address", "add", "10.99.1.11/24", "dev", "eth0"])
        node1.run(["ip", "address", "delete", "10.99.1.1/24", "dev", "eth0"])
        proc.wait_until(lambda: stored(world, "node1") == "10.99.1.11/24", "stored", timeout=HANG)
        proc.wait_until(lambda: "via 10.99.1.11 " in way(world), "node2 follows", timeout=HANG)
        reached(world.lab, *world.pods)
    print("\n".join(seen.lines))
    assert not seen.stream_error, "\n".join(seen.lines)
    # Both ways at 100/s: what was lost before the other node knew where to send.
    assert seen.lost / 200 < LONGEST_GAP, "\n".join(seen.lines)


def test_stopping_the_unit_leaves_the_kernel_as_it_is(world: World) -> None:
    reached(world.lab, *world.pods)
    node2 = world.lab.nodes[1]
    routes = node2.run(["ip", "route", "show", "proto", "109"]).stdout
    assert routes
    assert world.unit.stop() == 0
    assert node2.run(["ip", "route", "show", "proto", "109"]).stdout == routes
    assert pods.answers(world.lab, world.pods[0], world.pods[1].address)
    assert world.unit.states[-1] == "STOPPING=1"


def test_the_example_is_understood_and_the_unit_is_complete() -> None:
    example = units.variables(EXAMPLE.read_text())
    known = {name for one in VARIABLES for name in one.each()}
    families = tuple(name.removesuffix("*") for name in known if name.endswith("*"))
    assert all(name in known or name.startswith(families) for name in example)
    assert node_settings(example).log_dir is None
    unit = units.read(SERVICE)
    (modprobe,) = (line for line in unit["ExecStartPre"] if "modprobe" in line)
    assert set(WANTED) <= set(modprobe.split())
    assert modprobe.startswith("-"), "a kernel with everything built in has no modules"
