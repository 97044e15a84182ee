"""DPL-5 in nftables: while the kernel refuses our rules, no pod is reached without them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from felix.dataplane.rules.backend import must_take_nftables
from linux.netlink.wire import NLM_F_CREATE, text
from linux.nftables.connection import Connection
from linux.nftables.expressions import be32
from linux.nftables.messages import NEWTABLE, TABLE_FLAGS, TABLE_NAME, request
from tests.felix.in_kernel import NFTABLES, mode
from tests.felix.world import World
from tests.support.netns import network_namespace
from tests.support.patience import wait_for

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
    wait_for(lambda: "not in the kernel yet" in world.log(), "the first commit is refused")
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        assert not world.route(ROUTE)
        time.sleep(0.02)
    assert not world.ready()
    owner.close()
    wait_for(lambda: world.route(ROUTE))
    world.wait_ready()
    status = world.folder / "run" / "calico" / "status" / "felix.json"
    wait_for(lambda: json.loads(status.read_text())["backend"] == NFTABLES)
    assert "cali0first" in world.chain("cali-from-wl-dispatch-0")


def test_what_is_lacking_is_said_and_nothing_is_written() -> None:
    with network_namespace("nft") as space:
        space.call(lambda: must_take_nftables(frozenset({4, 6})))
        assert space.run("nft", "list", "ruleset") == ""
        code = (
            "import os; os.setuid(65534)\n"
            "from felix.dataplane.rules.backend import must_take_nftables\n"
            "try: must_take_nftables(frozenset({4}))\n"
            "except Exception as error: print(error)\n"
        )
        said = space.run(sys.executable, "-c", code)
    assert said.startswith("write rules in nftables: Operation not permitted (EPERM)")
    assert "CAP_NET_ADMIN" in said
    assert "nftablesMode Disabled" in said
