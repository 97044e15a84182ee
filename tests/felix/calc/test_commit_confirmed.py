"""Versions that nobody confirmed are taken back by the node itself (CNF-3)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from felix.calc.commit_confirmed import Unconfirmed
from libcalico import commit_confirmed
from libcalico.model import ResourceKey
from libcalico.model.codec import encode_value, resource_from_tree
from tests.felix.stage import conditions_of
from tests.felix.world import NODE, RESOURCES, World, reaches, until_reached
from tests.support.patience import HANG, wait_for

START = datetime(2026, 8, 22, 10, 0, 0, tzinfo=UTC)
KEY = ResourceKey("GlobalNetworkPolicy", "p")


class Clocks:
    """A node's clocks: `now` may be wrong by `off` seconds."""

    def __init__(self, off: float = 0.0) -> None:
        self.passed, self.off = 0.0, off

    def monotonic(self) -> float:
        return 1000 + self.passed

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed + self.off)

    def table(self) -> Unconfirmed:
        return Unconfirmed(self.monotonic, self.now)


def policy(order: int) -> Any:
    spec = {"order": order, "selector": "all()"}
    return resource_from_tree(
        {"kind": "GlobalNetworkPolicy", "metadata": {"name": "p"}, "spec": spec}
    )


def pending(within: float = 60) -> Any:
    return commit_confirmed.unconfirmed(policy(2), policy(1), within, START)


def test_the_new_version_counts_until_the_deadline() -> None:
    clocks = Clocks()
    table = clocks.table()
    assert table.left() is None
    assert table.effective(KEY, pending()).spec.order == 2
    assert table.left() == 60
    assert table.conditions() == [
        (str(KEY), "is in force until 2026-08-22T10:01:00Z only: calicoctl confirm makes it last")
    ]
    clocks.passed = 59
    assert table.expired() == []
    clocks.passed = 60
    ((key, value),) = table.expired()
    assert (key, value.spec.order) == (KEY, 1)
    assert table.expired() == []
    assert table.left() is None
    ((_, told),) = table.conditions()
    assert "was not confirmed by 2026-08-22T10:01:00Z" in told
    # The same version heard again (a new snapshot) does not come back.
    assert table.effective(KEY, pending()).spec.order == 1


def test_a_felix_that_starts_after_the_deadline_never_enforces_it() -> None:
    clocks = Clocks()
    clocks.passed = 61
    table = clocks.table()
    assert table.effective(KEY, pending()).spec.order == 1
    assert table.left() is None


@pytest.mark.parametrize("off", [-3600, -30, 30, 3600])
def test_a_wrong_clock_never_lengthens_the_time(off: float) -> None:
    clocks = Clocks(off)
    table = clocks.table()
    table.effective(KEY, pending())
    left = table.left()
    assert left is None or left <= 60
    clocks.passed = 60
    table.expired()
    assert table.effective(KEY, pending()).spec.order == 1


def test_hearing_it_again_does_not_begin_the_time_anew() -> None:
    clocks = Clocks(-3600)
    table = clocks.table()
    table.effective(KEY, pending())
    clocks.passed = 50
    table.effective(KEY, pending())
    assert table.left() == 10


def test_confirmed_deleted_or_replaced_it_is_forgotten() -> None:
    for value in (policy(2), None):
        clocks = Clocks()
        table = clocks.table()
        table.effective(KEY, pending())
        assert table.effective(KEY, value) is value
        clocks.passed = 100
        assert (table.expired(), table.conditions()) == ([], [])


def test_what_cannot_be_read_counts_and_is_named() -> None:
    spec = {"order": 2, "selector": "all()"}
    metadata = {"name": "p", "annotations": {commit_confirmed.ANNOTATION: "?"}}
    broken = resource_from_tree({"kind": "GlobalNetworkPolicy", "metadata": metadata, "spec": spec})
    table = Clocks().table()
    assert table.effective(KEY, broken) is broken
    ((_, told),) = table.conditions()
    assert "the stored version counts" in told


def test_a_node_that_is_cut_off_comes_back_by_itself(bare_world: World) -> None:
    """The policy shuts out everybody, etcd as well; nobody writes anything afterwards."""
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    spec = {"node": NODE, "interfaceName": "*", "profiles": ["kns.default"]}
    world.put("hostendpoints", "host", "HostEndpoint", spec)
    world.start_felix()
    world.wait_ready()
    until_reached(world.outside, "10.99.7.1")
    tree = {
        "kind": "GlobalNetworkPolicy",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "closed", "uid": "u", "creationTimestamp": "2026-08-22T10:00:00Z"},
        "spec": {"selector": "all()", "types": ["Ingress", "Egress"], "order": 1},
    }
    key = ResourceKey("GlobalNetworkPolicy", "closed")
    path = f"{RESOURCES}/globalnetworkpolicies/default.closed"

    def shuts(seconds: float) -> bool:
        """Whether the version that lasts so long was in force before it ended."""
        closed = commit_confirmed.unconfirmed(resource_from_tree(tree), None, seconds)
        ends = time.monotonic() + seconds
        world.etcd.put(path, encode_value(key, closed))
        while time.monotonic() < ends:
            if not reaches(world.outside, "10.99.7.1", wait=0.3):
                return True
        return False

    # A busy machine may need longer than the first lasts.
    assert any(shuts(seconds) for seconds in (8, 32, HANG))
    until_reached(world.outside, "10.99.7.1")
    wait_for(lambda: "taken back" in world.log())
    wait_for(lambda: "was not confirmed" in str(conditions_of(world, "closed")))
    # It was never written: the datastore still has the version that does not count.
    assert world.etcd.get(path)
    world.stop_felix()
    world.start_felix()
    world.wait_ready()
    assert reaches(world.outside, "10.99.7.1", wait=HANG)
    wait_for(lambda: "was not confirmed" in str(conditions_of(world, "closed")))
