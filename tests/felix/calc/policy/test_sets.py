"""Members of sets: counted, told once, cancelled within a flush."""

from __future__ import annotations

from felix.calc.policy_model import PolicyChanges, SetChange, SetKind
from tests.felix.policy_objects import (
    World,
    allow,
    namespace,
    network_set,
    pod,
    pod_key,
    policy,
)

HERE = pod("here", "10.0.0.100", {"app": "here"})
NEED = policy("p", selector="app == 'here'", types=["Ingress"],
              ingress=[allow(source={"selector": "app == 'x'"})])  # fmt: skip


def world(*more: object) -> World:
    return World(namespace("default"), HERE, NEED, *more)  # type: ignore[arg-type]


def only(changes: PolicyChanges) -> SetChange:
    assert not changes.policies
    assert not changes.endpoints
    (change,) = changes.sets
    return change


def test_a_shared_address_leaves_with_its_last_holder() -> None:
    one, two = (pod(n, "10.0.0.1", {"app": "x"}, node="n2") for n in ("one", "two"))
    there = world(one)
    (set_id,) = there.told.sets
    assert there.told.sets[set_id] == {"10.0.0.1"}
    assert not there.put(two)
    assert not there.remove(one[0])
    assert only(there.remove(two[0])) == SetChange(
        set_id, SetKind.NETS, removed=frozenset({"10.0.0.1"})
    )


def test_an_address_that_moves_within_one_flush_is_no_event() -> None:
    there = world(pod("one", "10.0.0.1", {"app": "x"}, node="n2"))
    there.engine.update(pod_key("one"), None)
    assert not there.put(pod("two", "10.0.0.1", {"app": "x"}, node="n3"))
    assert there.engine.members(next(iter(there.told.sets))) == {"10.0.0.1"}


def test_nets_may_overlap_and_be_named_twice() -> None:
    there = world(
        network_set("s", ["10.0.0.0/24", "10.0.0.0/25", "10.0.0.1/32"], {"app": "x"}),
        pod("one", "10.0.0.1", {"app": "x"}, node="n2"),
    )
    (members,) = there.told.sets.values()
    assert members == {"10.0.0.0/24", "10.0.0.0/25", "10.0.0.1"}
    there.put(network_set("s", ["10.0.0.0/25"], {"app": "x"}))
    assert members == {"10.0.0.0/25", "10.0.0.1"}


def test_labels_and_addresses_may_change_together() -> None:
    there = world(pod("one", "10.0.0.1", {"app": "x"}, node="n2"))
    change = only(there.put(pod("one", "10.0.0.2", {"app": "x", "more": "y"}, node="n2")))
    assert change.added == {"10.0.0.2"}
    assert change.removed == {"10.0.0.1"}
    change = only(there.put(pod("one", "10.0.0.3", {"app": "y"}, node="n2")))
    assert not change.added
    assert change.removed == {"10.0.0.2"}


def test_the_same_object_again_is_nothing() -> None:
    one = pod("one", "10.0.0.1", {"app": "x"}, node="n2")
    there = world(one)
    total = there.engine.operations.total
    assert not there.engine.update(*one)
    assert not there.put(one, HERE, NEED, namespace("default"))
    assert there.engine.operations.total == total


def test_a_set_that_another_policy_takes_over_stays() -> None:
    there = world(pod("one", "10.0.0.1", {"app": "x"}, node="n2"))
    other = policy("q", selector="app == 'here'", types=["Ingress"],
                   ingress=[allow(source={"selector": "app == 'x'"})])  # fmt: skip
    there.engine.update(NEED[0], None)
    changes = there.put(other)
    assert changes.sets == []
    assert set(changes.policies) == {NEED[0], other[0]}


def test_named_ports_follow_what_pods_declare() -> None:
    there = World(namespace("default"), HERE, policy(
        "p", selector="app == 'here'", types=["Egress"],
        egress=[allow(protocol="TCP", destination={"ports": ["http"]})],
    ))  # fmt: skip
    (set_id,) = there.told.sets
    assert there.engine.sets[set_id] is SetKind.ADDRESS_PORTS
    there.put(pod("one", "10.0.0.1", node="n2", ports={"http": ("TCP", 80)}))
    assert there.told.sets[set_id] == {"10.0.0.1,tcp:80"}
    change = only(there.put(pod("one", "10.0.0.1", node="n2", ports={"http": ("TCP", 81)})))
    assert change.added == {"10.0.0.1,tcp:81"}
    assert change.removed == {"10.0.0.1,tcp:80"}
    assert only(there.put(pod("one", "10.0.0.1", node="n2"))).removed == {"10.0.0.1,tcp:81"}
