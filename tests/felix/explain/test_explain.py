"""Who is meant, which way a packet goes, who decides at each station."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from felix.explain.ends import What, find
from felix.explain.flow import Kind, kind_of, read_protocol
from felix.explain.walk import By
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import ResourceKey
from tests.support.explain_world import (
    ALLOW,
    DB,
    DENY,
    asked,
    document,
    host,
    policy,
    questions,
    shop,
)

SQL, SSH, OTHER = Kind(6, 5432), Kind(6, 22), Kind(6, 9999)
GUARD = {"selector": "role == 'host'"}
HOSTED = {"role": "host"}


def story(world: Any, source: str, destination: str, kind: Kind = SQL) -> list[tuple[Any, ...]]:
    """(direction, of, stage, allowed, by) of each station."""
    return [
        (s.direction, s.end.title, s.stage, s.ruling.allowed, s.ruling.by)
        for s in asked(world, source, destination, kind).stations
    ]


@pytest.mark.parametrize(
    ("text", "what", "title", "node", "endpoint"),
    [
        ("shop/web-0", What.POD, "shop/web-0", "node1", "node1-k8s-web--0-eth0"),
        ("web-0", What.POD, "shop/web-0", "node1", "node1-k8s-web--0-eth0"),
        ("10.65.1.6", What.POD, "shop/web-0", "node1", "node1-k8s-web--0-eth0"),
        ("fd65::1:6", What.POD, "shop/web-0", "node1", "node1-k8s-web--0-eth0"),
        ("node:node2", What.HOST, "node node2", "node2", None),
        ("10.99.0.2", What.HOST, "node node2", "node2", None),
        ("gate", What.HOST, "host endpoint gate", "node1", "gate"),
        ("hep:gate", What.HOST, "host endpoint gate", "node1", "gate"),
        ("10.99.0.1", What.HOST, "host endpoint gate", "node1", "gate"),
        ("203.0.113.9", What.OUTSIDE, "203.0.113.9", "", None),
    ],
)
def test_who_is_meant(text: str, what: What, title: str, node: str, endpoint: str | None) -> None:
    world = shop(host("gate", "node1", expectedIPs=["10.99.0.1"]))
    end = find(world, text, "shop")
    assert (end.what, end.title, end.node) == (what, title, node)
    assert (None if end.endpoint is None else end.endpoint.name) == endpoint
    if text[0].isdigit():
        assert end.addresses[0] == ip_address(text)


def test_who_is_not_there_is_named() -> None:
    with pytest.raises(MuslinError, match="neither a pod default/web-0 nor a host endpoint web-0"):
        find(shop(), "web-0")
    with pytest.raises(MuslinError, match="there is shop/web-0"):
        find(shop(), "lab/web-0")
    with pytest.raises(MuslinError, match="there is no node x"):
        find(shop(), "node:x")
    with pytest.raises(MuslinError, match="there is no host endpoint x"):
        find(shop(), "hep:x")


def test_between_pods_source_and_destination_decide() -> None:
    world = shop(DB)
    assert story(world, "shop/web-0", "shop/db-0") == [
        ("egress", "shop/web-0", "normal", True, By.RULE),
        ("ingress", "shop/db-0", "normal", True, By.RULE),
    ]
    denied = asked(world, "lab/guest", "shop/db-0")
    assert denied.decider is not None
    ruling = denied.decider.ruling
    assert (ruling.by, ruling.tier) == (By.TIER_END, "default")
    assert [(s.policy.name, s.did) for s in ruling.steps] == [("db", "no match")]
    assert asked(world, "shop/web-0", "shop/db-0", OTHER).allowed is False


def test_a_missing_profile_closes_and_is_named() -> None:
    found = asked(shop(without=("kns.lab",)), "shop/web-0", "lab/guest")
    assert not found.allowed
    assert found.decider is not None
    assert found.decider.ruling.by is By.MISSING_PROFILE
    assert any("it does not exist" in note for note in found.notes)


def test_an_endpoint_that_is_not_served_is_closed() -> None:
    world = shop()
    key = ResourceKey("WorkloadEndpoint", "node1-k8s-guest-eth0", "lab")
    broken = document(
        "WorkloadEndpoint", key.name, "lab", orchestrator="k8s", node="node1", pod="guest",
        endpoint="eth0", interfaceName="no interface at all", ipNetworks=["10.65.1.9/32"],
    )  # fmt: skip
    found = asked(shop(broken, without=(key.name,)), "lab/guest", "shop/db-0")
    assert key in world.objects
    assert not found.allowed
    assert any("is not served: " in note and "interfaceName" in note for note in found.notes)


def test_what_leaves_the_pools_is_masqueraded() -> None:
    found = asked(shop(), "shop/web-0", "203.0.113.9")
    assert found.allowed
    assert any("masqueraded" in note and "10.99.0.1" in note for note in found.notes)
    assert not any("masqueraded" in note for note in asked(shop(), "shop/web-0", "shop/db-0").notes)


@pytest.mark.parametrize(("action", "allowed"), [("Drop", False), ("Accept", True)])
def test_a_pod_and_its_own_node(action: str, allowed: bool) -> None:
    world = shop(document("FelixConfiguration", "default", defaultEndpointToHostAction=action))
    found = asked(world, "shop/web-0", "node:node1")
    assert found.allowed is allowed
    assert found.stations[-1].ruling.by is By.SETTING
    assert asked(world, "node:node1", "shop/web-0").allowed


def test_a_node_reaches_its_own_pods_whatever_policy_says() -> None:
    world = shop(DB)
    assert asked(world, "node:node2", "shop/db-0").allowed
    assert not asked(world, "node:node1", "shop/db-0").allowed


def test_a_host_endpoint_and_its_failsafe_ports() -> None:
    world = shop(host("gate", "node2", "eth0", labels=HOSTED, expectedIPs=["10.99.0.2"]))
    assert story(world, "shop/web-0", "gate", OTHER)[-1] == (
        "ingress", "host endpoint gate", "normal", False, By.NO_PROFILE,
    )  # fmt: skip
    assert story(world, "shop/web-0", "gate", SSH)[-1][3:] == (True, By.FAILSAFE)
    assert story(world, "gate", "203.0.113.9", Kind(17, 53))[0][3:] == (True, By.FAILSAFE)
    assert not asked(world, "gate", "203.0.113.9", OTHER).allowed


def test_untracked_policy_speaks_first_and_its_allow_is_the_last_word() -> None:
    gate = host("gate", "node2", "eth0", labels=HOSTED, expectedIPs=["10.99.0.2"])
    early = policy(
        "early", **GUARD, doNotTrack=True, applyOnForward=True, types=["Ingress"],
        ingress=[{**DENY, "protocol": "UDP"}, {**ALLOW, "protocol": "TCP"}],
    )  # fmt: skip
    world = shop(gate, early)
    assert story(world, "shop/web-0", "gate", OTHER)[1:] == [
        ("ingress", "host endpoint gate", "untracked", True, By.RULE)
    ]
    assert story(world, "shop/web-0", "gate", Kind(17, 9))[-1][2:] == ("untracked", False, By.RULE)
    assert story(world, "shop/web-0", "gate", Kind(132, 9))[-1][2:] == (
        "normal", False, By.NO_PROFILE,
    )  # fmt: skip


def test_a_host_endpoint_of_all_interfaces_judges_what_passes_through() -> None:
    every = host("all", "node2", "*", labels=HOSTED, profiles=["projectcalico-default-allow"])
    first = policy(
        "first", **GUARD, preDNAT=True, applyOnForward=True, types=["Ingress"],
        ingress=[{**DENY, "protocol": "TCP", "destination": {"ports": [9999]}}],
    )  # fmt: skip
    through = policy(
        "through", **GUARD, applyOnForward=True, types=["Ingress", "Egress"], egress=[ALLOW],
        ingress=[{**ALLOW, "protocol": "TCP", "destination": {"ports": [5432]}}],
    )  # fmt: skip
    world = shop(every, first, through)
    assert story(world, "shop/web-0", "shop/db-0", OTHER)[-1][2:] == ("preDNAT", False, By.RULE)
    assert [s[2] for s in story(world, "shop/web-0", "shop/db-0")] == [
        "normal", "preDNAT", "forward", "normal", "forward",
    ]  # fmt: skip
    assert asked(world, "shop/web-0", "shop/db-0").allowed
    denied = asked(world, "shop/web-0", "shop/db-0", Kind(6, 80))
    assert denied.decider is not None
    assert (denied.decider.stage, denied.decider.ruling.by) == ("forward", By.TIER_END)
    # Its own pods talk through it as well: `*` stands for their interfaces, too.
    assert not asked(world, "shop/web-1", "shop/db-0", Kind(6, 80)).allowed
    assert asked(world, "lab/guest", "shop/web-0", Kind(6, 80)).allowed


def test_what_only_the_node_knows_is_said_to_be_unknown() -> None:
    """EXP-3"""
    through = policy("through", **GUARD, applyOnForward=True, types=["Egress"], egress=[DENY])
    world = shop(host("gate", "node1", "eth1", labels=HOSTED), through)
    found = asked(world, "shop/web-0", "shop/db-0")
    assert found.allowed
    assert not found.certain
    assert [s.sure for s in found.stations if s.stage == "forward"] == [False]
    guessed = asked(world, "shop/db-0", "node:node1")
    assert not guessed.certain
    assert any("name one" in note for note in guessed.notes)


def test_who_stands_behind_a_service_is_not_known() -> None:
    """EXP-3"""
    web = {"services": {"name": "web", "namespace": "shop"}}
    asks = policy("asks", types=["Egress"], egress=[{"action": "Allow", "destination": web}])
    for world, certain in ((shop(), True), (shop(asks), False)):
        found = asked(world, "shop/web-0", "shop/db-0")
        assert found.certain is certain
        note = "GlobalNetworkPolicy(asks) names services, and who stands behind them"
        assert any(note in text for text in found.notes) is not certain


def test_families() -> None:
    assert questions(shop(), "shop/web-0", "shop/db-0").versions() == [4, 6]
    assert questions(shop(), "shop/web-0", "203.0.113.9").versions() == [4]
    world = shop(DB)
    assert asked(world, "shop/web-0", "shop/db-0", version=6).allowed
    with pytest.raises(MuslinError, match=r"203.0.113.9 has no IPv6 address"):
        asked(world, "shop/web-0", "203.0.113.9", version=6)


def test_kinds_that_make_no_sense_are_refused() -> None:
    assert kind_of(1, 6) == Kind(58, 0, 0, 128, 0)
    assert kind_of(read_protocol("udp"), 4, port=53) == Kind(17, 53)
    assert str(kind_of(1, 4, icmp=(3, 4))) == "icmp type 3 code 4"
    for call in (
        lambda: kind_of(6, 4, port=65536),
        lambda: kind_of(6, 4, icmp=(8, None)),
        lambda: kind_of(47, 4, port=1),
        lambda: kind_of(1, 4, source_port=1),
        lambda: read_protocol("tpc"),
    ):
        with pytest.raises(InvalidValue):
            call()
