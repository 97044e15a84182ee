"""A bare lab (machines, etcd, BIRD, no agents) with Debian's reference plugins on its nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from lab import agents, cluster
from lab.cluster import Lab
from libcalico.process import paths

PTP = {
    "cniVersion": "0.4.0",
    "name": "reference",
    "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.65.1.0/26"}}],
}


def quiet(_: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def lab_name() -> str:
    """A name that no other test run on this machine uses."""
    return f"t{os.getpid()}"


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """One bare lab for a module."""
    name = f"bare{os.getpid()}"
    lab = cluster.up(name, agents_too=False, say=quiet)
    try:
        for node in lab.nodes:
            for plugin in agents.REFERENCE_PLUGINS.iterdir():
                node.path(paths.CNI_BIN / plugin.name).symlink_to(plugin)
            node.path(paths.CNI_NET / "10-reference.conflist").write_text(json.dumps(PTP))
        yield lab
    finally:
        cluster.down(name)
