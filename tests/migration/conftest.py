"""A cluster with a node of Calico and one of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from lab import agents, cluster, pods
from lab.cluster import Lab
from lab.pods import Pod
from tests.lab_scenarios.scene import PORT, Scene, say
from tests.migration.calico_node import CalicoNode

OURS, CALICOS = "node1", "node2"


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
class Mixed(Scene):
    """Our node1 and Calico's node2 on one datastore."""

    calico: CalicoNode | None = None

    @property
    def theirs(self) -> CalicoNode:
        """Calico's node."""
        assert self.calico is not None
        return self.calico

    def labelled(self, name: str, node: str, labels: Mapping[str, str]) -> Pod:
        """Start a pod of ours with labels."""
        ports = [f"tcp:{PORT}", f"udp:{PORT}"]
        self.pods[name] = pods.add(self.lab, name, node, labels=labels, ports=ports)
        return self.pods[name]


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
        agents.start(node, lab.plan, {})
        agents.wait(node, timeout=120)
        client = scene.labelled("client", OURS, {"role": "client"})
        scene.add("stranger", OURS)
        calico.start([client.address])
        yield scene
