"""Who is meant by a policy, a set or a profile: clusters, namespaces, accounts; with packets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.felix.stage import Stage, allow, both
from tests.felix.world import OPEN_PROFILE, Pod, World, endpoint_spec
from tests.support.patience import wait_for

NAMES = ("client", "other", "server")
NAMESPACE, ACCOUNT = "projectcalico.org/namespace", "projectcalico.org/serviceaccount"
ALL_TCP = both("client * tcp 80", "other * tcp 80")


@pytest.fixture
def stage(stage: Stage) -> Iterator[Stage]:
    """The stage; pods that a test moved are back where they were afterwards."""
    world = stage.world
    yield stage
    for plural in ("networkpolicies", "networksets"):
        world.etcd.ctl("del", "--prefix", f"/calico/resources/v3/projectcalico.org/{plural}/")
    world.etcd.ctl("del", "--prefix", place(world, "shop"))
    world.put("profiles", "kns.default", "Profile", OPEN_PROFILE)
    for name, pod in zip(NAMES, (stage.client, stage.other, stage.server), strict=True):
        store(world, name, pod)


def place(world: World, namespace: str) -> str:
    return f"/calico/resources/v3/projectcalico.org/workloadendpoints/{namespace}/"


def store(world: World, name: str, pod: Pod, namespace: str = "default", **spec: Any) -> None:
    """A pod's endpoint as the plugin stores it, with the labels of its place and account."""
    labels = {"role": name, NAMESPACE: namespace, ACCOUNT: spec.pop("account", "default")}
    ports = [{"name": "http", "protocol": "TCP", "port": 80}]
    value = {**endpoint_spec(name, pod), "ports": ports, **spec}
    world.put("workloadendpoints", world.endpoint_name(name), "WorkloadEndpoint", value,
              namespace, labels)  # fmt: skip


def network_policy(world: World, namespace: str, ingress: list[dict[str, Any]]) -> None:
    spec = {"selector": "role == 'server'", "types": ["Ingress"], "ingress": ingress}
    world.put("networkpolicies", "own", "NetworkPolicy", spec, namespace)


@contextmanager
def moved_to_shop(stage: Stage, name: str, pod: Pod) -> Iterator[None]:
    """A pod in another namespace."""
    world = stage.world
    world.delete_endpoint(name)
    store(world, name, pod, "shop")
    wait_for(lambda: pod.reaches("10.99.7.2", wait=0.3))
    yield
    world.delete("workloadendpoints", "shop", world.endpoint_name(name))


@pytest.mark.promise("F-70")
def test_a_global_policy_is_of_every_namespace_and_another_of_its_own(stage: Stage) -> None:
    with moved_to_shop(stage, "server", stage.server):
        # A policy of another namespace does not select it.
        network_policy(stage.world, "default", [])
        stage.policy("case", [allow(protocol="TCP")])
        stage.comes_to(ALL_TCP, both("client * ping", "other * ping"))
        # Rules of a global policy mean pods of every namespace.
        stage.policy("case", [allow(source={"selector": "role == 'client'"})])
        stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
        # One of its own namespace selects it, and its rules mean nobody else's pods.
        stage.clear()
        network_policy(stage.world, "shop", [allow(source={"selector": "has(role)"})])
        stage.comes_to(set(), ALL_TCP)
    network_policy(stage.world, "default", [allow(source={"selector": "has(role)"})])
    store(stage.world, "server", stage.server)
    stage.comes_to(ALL_TCP, set())
    with moved_to_shop(stage, "other", stage.other):
        stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))


@pytest.mark.promise("F-71")
@pytest.mark.parametrize("default", ["Deny", "Pass", None])
def test_what_no_rule_of_a_tier_matches_meets_its_default_action(
    stage: Stage, default: str | None
) -> None:
    spec = {"order": 1} | ({"defaultAction": default} if default else {})
    stage.world.put("tiers", "one", "Tier", spec)
    rule = allow(protocol="TCP", destination={"ports": [80]})
    stage.policy("one.some", [rule], tier="one")
    # What passes comes to the next tier, where nothing selects it, and to its open profile.
    passes = both("client * tcp 80")
    rest = both("client * tcp 81", "client * ping")
    stage.comes_to(passes | rest if default == "Pass" else passes, rest | passes)
    # The default of a tier holds where one of its policies selects, and nowhere else.
    stage.policy("one.some", [rule], tier="one", selector="role == 'nobody'")
    stage.comes_to(passes | rest, set())


@pytest.mark.promise("F-73")
def test_a_network_set_of_a_namespace_is_seen_by_its_own_policies(stage: Stage) -> None:
    world = stage.world
    nets = {"nets": ["10.65.0.1/32", "fd65::1/128"]}
    others = {"nets": ["10.65.0.2/32", "fd65::2/128"]}
    world.put("networksets", "friends", "NetworkSet", nets, "default", {"f": ""})
    world.put("networksets", "friends", "NetworkSet", others, "shop", {"f": ""})
    network_policy(world, "default", [allow(source={"selector": "has(f)"})])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    # To a global policy both are the same.
    world.delete("networkpolicies", "default", "own")
    stage.policy("case", [allow(source={"selector": "has(f)"})])
    stage.comes_to(ALL_TCP, set())


@pytest.mark.promise("F-74")
def test_a_rule_means_pods_by_their_service_account(stage: Stage) -> None:
    world = stage.world
    store(world, "client", stage.client, account="reader")
    store(world, "other", stage.other, account="writer")
    network_policy(world, "default", [allow(source={"serviceAccounts": {"names": ["reader"]}})])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    store(world, "client", stage.client, account="writer")
    store(world, "other", stage.other, account="reader")
    stage.comes_to(both("other * tcp 80"), both("client * tcp 80"))


@pytest.mark.promise("F-76")
def test_profiles_hand_down_rules_and_labels(stage: Stage) -> None:
    world = stage.world
    team: dict[str, Any] = {
        "labelsToApply": {"team": "red"},
        "ingress": [allow(protocol="TCP", destination={"ports": [80]})],
        "egress": [allow()],
    }
    world.put("profiles", "team", "Profile", team)
    try:
        # No policy selects it: its profile alone decides.
        store(world, "server", stage.server, profiles=["team"])
        stage.comes_to(both("client * tcp 80"), both("client * tcp 81", "client * ping"))
        # Two profiles: what the first does not decide is the second's.
        store(world, "server", stage.server, profiles=["team", "kns.default"])
        stage.comes_to(both("client * tcp 80", "client * tcp 81"), set())
        # The labels are of who has the profile, in selectors of policies and in rules.
        stage.policy("case", [allow(source={"selector": "team == 'red'"})],
                     selector="team == 'red'")  # fmt: skip
        stage.comes_to(set(), ALL_TCP)
        store(world, "other", stage.other, profiles=["kns.default", "team"])
        stage.comes_to(both("other * tcp 80"), both("client * tcp 80"))
        team["labelsToApply"] = {"team": "blue"}
        world.put("profiles", "team", "Profile", team)
        stage.comes_to(ALL_TCP, set())
    finally:
        world.delete("profiles", "team")
