"""A cluster with a node of Calico and one of ours, and one in flannel's network."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab import agents, cluster, pods
from lab.cluster import Lab
from lab.machine import Machine
from lab.pods import Pod
from tests.lab_scenarios.scene import PORT, Scene, say
from tests.migration import flannel_node
from tests.migration.calico_node import CalicoNode
from tests.migration.flannel_node import FlannelNode
from tests.support.patience import HANG

OURS, CALICOS = "node1", "node2"
FULL_SIZE = "MUSLIN_FULL_SIZE" in os.environ
FAST = (
    "test_both_kinds_work_in_one_cluster",
    "test_a_node_is_taken_over",
    "test_pods_have_flannels_addresses_and_ways",
    "test_policy_is_enforced_in_packets",
    "test_no_route_and_no_speaker_of_ours",
)
"""What the fast tier takes; by path everything runs."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if FULL_SIZE:
        return
    here = Path(__file__).parent
    left = [item for item in items if item.path.parent == here and item.name not in FAST]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


@contextmanager
def bare(name: str) -> Iterator[Lab]:
    """Two nodes that nobody has touched yet, with etcd and a router; taken down afterwards."""
    lab = cluster.up(f"{name}{os.getpid()}", nodes=2, topology="flat", agents_too=False, say=say)
    try:
        yield lab
    except BaseException:
        say(Scene(lab).report())
        raise
    finally:
        cluster.down(lab.name)


@dataclass
class Labelled(Scene):
    """A scene whose pods may have labels, and to whose nodes our agents come later."""

    def labelled(self, name: str, node: str, labels: Mapping[str, str]) -> Pod:
        """Start a pod with labels, in the network that the node's runtime finds first."""
        ports = [f"tcp:{PORT}", f"udp:{PORT}"]
        self.pods[name] = pods.add(self.lab, name, node, labels=labels, ports=ports)
        return self.pods[name]

    def install(self, node: Machine, settings: Mapping[str, str]) -> None:
        """Our plugins and network list, by `settings`, and calicoctl's configuration."""
        agents.write_config(node, self.lab.plan)
        environment = {**agents.environment(self.lab.plan, node.name), **settings}
        command = [sys.executable, "-m", "cni.install", "--chain="]
        node.run(command, environment=environment, timeout=120)


@dataclass
class Mixed(Labelled):
    """Our node1 and Calico's node2 on one datastore."""

    calico: CalicoNode | None = None

    @property
    def theirs(self) -> CalicoNode:
        """Calico's node."""
        assert self.calico is not None
        return self.calico


@pytest.fixture(scope="module")
def mixed() -> Iterator[Mixed]:
    """Calico ran first: its datastore and its node stand before ours joins."""
    with bare("fromcalico") as lab:
        calico = CalicoNode(lab, CALICOS, str(lab.host(OURS).address.ip))
        scene = Mixed(lab, calico=calico)
        scene.pods["web"] = calico.wire("web", "10.65.166.143", {"app": "web"})
        scene.pods["db"] = calico.wire("db", "10.65.166.144", {"app": "db"})
        calico.store()
        calico.install()
        node = lab.machine(OURS)
        agents.install(node, lab.plan)
        agents.wait(node, agents.start(node, lab.plan, {}), timeout=HANG)
        client = scene.labelled("client", OURS, {"role": "client"})
        scene.add("stranger", OURS)
        calico.start([client.address])
        yield scene


@dataclass
class Flannel(Labelled):
    """Two nodes in flannel's network with an old pod each."""

    flannels: list[FlannelNode] = field(default_factory=list)

    def wait_for_agents(self, nodes: Sequence[Machine]) -> None:
        """Until they are ready on these; then there is somebody who knows namespaces."""
        for node in nodes:
            agents.wait(node, timeout=HANG)
        self.lab.state.agents = True


@pytest.fixture(scope="module")
def flannel() -> Iterator[Flannel]:
    """Two nodes of flannel's, whose pods reach each other."""
    with bare("fromflannel") as lab:
        scene = Flannel(lab, flannels=flannel_node.start_all(lab))
        for node in scene.flannels:
            scene.add(f"old-{node.number}", node.name)
        scene.connected()
        yield scene
