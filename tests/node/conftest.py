"""A machine in a network namespace of its own, and an etcd inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace


@pytest.fixture
def machine() -> Iterator[Namespace]:
    """A machine with a docker bridge and one real interface, 10.99.1.1/24 and an IPv6 address."""
    with network_namespace("node") as space, space.entered():
        for name, *addresses in (
            ("docker0", "172.17.0.1/16"),
            ("eth0", "10.99.1.1/24", "fd99:1::1/64"),
        ):
            space.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
            for address in addresses:
                nodad = ["nodad"] if ":" in address else []
                space.run("ip", "address", "add", address, "dev", name, *nodad)
            space.run("ip", "link", "set", name, "up")
        yield space


@pytest.fixture
def etcd_inside(machine: Namespace, tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def environ(etcd_inside: Etcd, tmp_path: Path) -> dict[str, str]:
    return {
        **etcd_inside.environment(),
        "NODENAME": "node1",
        "CALICO_NODENAME_FILE": str(tmp_path / "lib" / "nodename"),
    }
