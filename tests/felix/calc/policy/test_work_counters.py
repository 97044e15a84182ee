"""What a change costs, in operations: what it touches, not what there is."""

from __future__ import annotations

import pytest

from felix.calc.policy_model import PolicyChanges
from felix.calc.work_counters import WorkCounters
from libcalico.model import ResourceKey
from tests.felix.policy_objects import (
    Object,
    World,
    allow,
    namespace,
    network_set,
    pod,
    pod_key,
    policy,
    tier,
)

LOCAL, REMOTE, POLICIES = 20, 2000, 500


@pytest.fixture(scope="module")
def world() -> World:
    """20 local and 2,000 remote pods of 100 applications; 500 policies, each for one of them."""
    objects: list[Object] = [namespace("default", team="red"), tier("default", 1)]
    for n in range(LOCAL):
        objects.append(pod(f"l{n}", f"10.1.0.{n}", {"app": f"a{n}", "id": f"l{n}"}))
    for n in range(REMOTE):
        labels = {"app": f"a{n % 100}", "id": f"r{n}"}
        objects.append(pod(f"r{n}", f"10.2.{n // 256}.{n % 256}", labels, node="n2"))
    for n in range(POLICIES):
        peers = allow(source={"selector": f"app == 'a{(n + 1) % 100}'"})
        objects.append(policy(f"p{n}", selector=f"app == 'a{n % 100}'", ingress=[peers]))
    return World(*objects)


def cost(world: World, *objects: Object) -> tuple[WorkCounters, PolicyChanges]:
    """What a change costs, and what it says."""
    spent = world.engine.operations
    before = (spent.evaluations, spent.members, spent.rules, spent.views)
    changes = world.put(*objects)
    after = (spent.evaluations, spent.members, spent.rules, spent.views)
    return WorkCounters(*(b - a for a, b in zip(before, after, strict=True))), changes


def test_only_policies_of_local_pods_are_active(world: World) -> None:
    figures = world.engine.figures()
    assert figures["active_policies"] == POLICIES // 100 * LOCAL
    assert figures["sets"] == LOCAL


def test_a_remote_pods_new_label_that_no_rule_mentions(world: World) -> None:
    labels = {"app": "a50", "id": "r50", "new": "x"}
    spent, changes = cost(world, pod("r50", "10.2.0.50", labels, node="n2"))
    assert spent == WorkCounters()
    assert not changes


def test_a_remote_pod_that_enters_a_set_and_leaves_another(world: World) -> None:
    labels = {"app": "a6", "id": "r5"}
    spent, changes = cost(world, pod("r5", "10.2.0.5", labels, node="n2"))
    # The selector that it left, and the one that it met: no match is remembered.
    assert spent == WorkCounters(evaluations=2, members=2)
    assert len(changes.sets) == 2
    cost(world, pod("r5", "10.2.0.5", {**labels, "app": "a5"}, node="n2"))


def test_a_policys_rule(world: World) -> None:
    peers = allow(source={"selector": "app == 'a3'"}, protocol="TCP")
    spent, changes = cost(world, policy("p1", selector="app == 'a1'", ingress=[peers]))
    assert spent == WorkCounters(rules=1)
    assert list(changes.policies) == [ResourceKey("NetworkPolicy", "p1", "default")]
    assert not changes.sets
    assert not changes.endpoints


def test_a_rule_with_a_new_selector_asks_whom_its_rarest_label_finds(world: World) -> None:
    peers = allow(source={"selector": "app == 'a60' && id != 'r60'"})
    spent, changes = cost(world, policy("p2", selector="app == 'a2'", ingress=[peers]))
    holders = REMOTE // 100
    assert spent == WorkCounters(evaluations=holders, members=holders - 1, rules=1)
    assert [len(change.full or ()) for change in changes.sets if change.full] == [holders - 1]


def test_a_policy_that_selects_nobody_here(world: World) -> None:
    spent, changes = cost(world, policy("q", selector="app == 'a99'", ingress=[allow()]))
    assert spent.total <= 1
    assert not changes


def test_a_new_local_pod_costs_its_policies(world: World) -> None:
    spent, changes = cost(world, pod("l20", "10.1.0.20", {"app": "a20", "id": "l20"}))
    assert spent.views == 1
    assert spent.rules == POLICIES // 100
    assert spent.evaluations <= 2 + REMOTE // 100
    assert len(changes.policies) == POLICIES // 100
    assert list(changes.endpoints) == [pod_key("l20")]


def test_a_second_pod_of_the_same_labels_resolves_no_policy_again(world: World) -> None:
    spent, changes = cost(world, pod("l0b", "10.1.0.99", {"app": "a0", "id": "l0"}))
    assert (spent.rules, spent.evaluations, spent.views) == (0, 0, 1)
    assert not changes.policies


def test_a_net_of_a_set_costs_its_members(world: World) -> None:
    cost(world, network_set("s", [f"192.0.2.{n}/32" for n in range(100)], {"app": "a4"}))
    nets = [f"192.0.2.{n}/32" for n in range(1, 101)]
    spent, changes = cost(world, network_set("s", nets, {"app": "a4"}))
    assert spent == WorkCounters(evaluations=1, members=2)
    (change,) = changes.sets
    assert change.added == {"192.0.2.100"}
    assert change.removed == {"192.0.2.0"}


def test_a_namespace_label_that_nobody_mentions(world: World) -> None:
    spent, changes = cost(world, namespace("default", team="red", owner="me"))
    assert spent == WorkCounters()
    assert not changes


def test_endpoints_with_the_same_policies_share_the_work() -> None:
    pods = [pod(f"p{n}", f"10.0.0.{n}", {"app": "x", "id": str(n)}) for n in range(50)]
    world = World(namespace("default"), *pods)
    spent, changes = cost(world, policy("p", selector="app == 'x'"))
    assert spent.views == 1
    assert len(changes.endpoints) == 50
