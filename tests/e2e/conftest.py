"""Labs with the real agents, shared by the tests of a module."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lab import cluster
from lab.cluster import Lab
from lab.demo import look
from lab.machine import Machine
from libcalico.process import paths
from tests.support import stopping

POOLS = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: four}
spec: {cidr: 10.65.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: "fd65::/48", blockSize: 122, ipipMode: Never, vxlanMode: Never}
"""


def say(text: str) -> None:
    """Progress into pytest's captured output."""
    print(text, file=sys.stderr)


@pytest.fixture(scope="module")
def small() -> Iterator[Lab]:
    """One node with agents, a router, etcd."""
    name = f"small{os.getpid()}"
    lab = cluster.up(name, nodes=1, topology="flat", say=say)
    try:
        yield lab
    finally:
        cluster.down(name)


@pytest.fixture
def dual(small: Lab) -> Iterator[Lab]:
    """Both pools, and a conflist that asks for both families."""
    node = small.nodes[0]
    node.run(["calicoctl", "apply", "-f", "-"], stdin=POOLS.encode())
    with plugin(node, ipam={"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"}):
        yield small


@contextlib.contextmanager
def plugin(node: Machine, **settings: Any) -> Iterator[None]:
    """The node's CNI plugin has other settings while the body runs."""
    file = node.path(paths.CNI_NET / "10-calico.conflist")
    text = file.read_text()
    config = json.loads(text)
    config["plugins"][0].update(settings)
    file.write_text(json.dumps(config))
    try:
        yield
    finally:
        file.write_text(text)


@contextlib.contextmanager
def stopped(machine: Machine, title: str) -> Iterator[None]:
    """A process of a machine does nothing while the body runs."""
    pids = look.processes(machine, title)
    assert pids
    for pid in pids:
        stopping.pause(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
