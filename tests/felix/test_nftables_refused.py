"""DPL-5 in nftables: while the kernel refuses our rules, no pod is reached without them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from linux.netlink.wire import NLM_F_CREATE, text
from linux.nftables.connection import Connection
from linux.nftables.expressions import be32
from linux.nftables.messages import NEWTABLE, TABLE_FLAGS, TABLE_NAME, request
from tests.felix.in_kernel import NFTABLES, mode
from tests.felix.world import World, eventually

ADDRESS, ROUTE = "10.65.0.40", "10.65.0.40/32"
OWNED = 2
"""Only the socket that made the table may change it; it goes with the socket."""


@pytest.fixture
def owner(bare_world: World) -> Iterator[Connection]:
    """Somebody else owns the table that felix wants to write."""
    bare_world.environment |= mode(NFTABLES)
    bare_world.etcd.start()
    bare_world.write_cluster()
    with closing(bare_world.node.call(Connection)) as stranger:
        body = text(TABLE_NAME, "calico") + be32(TABLE_FLAGS, OWNED)
        stranger.commit([request(NEWTABLE, NLM_F_CREATE, 4, body)])
        yield stranger


def test_without_rules_no_pod_has_a_route(bare_world: World, owner: Connection) -> None:
    world = bare_world
    world.add_pod("first", "cali0first", ADDRESS)
    world.start_felix()
    eventually(lambda: "not in the kernel yet" in world.log(), 15, "the first commit is refused")
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        assert not world.route(ROUTE)
        time.sleep(0.02)
    assert not world.ready()
    owner.close()
    eventually(lambda: world.route(ROUTE), 15)
    world.wait_ready()
    status = world.folder / "run" / "calico" / "status" / "felix.json"
    eventually(lambda: json.loads(status.read_text())["backend"] == NFTABLES, 12)
    assert "cali0first" in world.chain("cali-from-wl-dispatch-0")
