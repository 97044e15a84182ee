"""Policies from the datastore to packets, in both back ends and both families.

Each case puts policies, waits until exactly what it says comes through, and takes them away.
"""

from __future__ import annotations

import pytest

from tests.felix import talk
from tests.felix.stage import ONLY_CLIENT, Rules, Stage, allow, both, rules_of
from tests.support.patience import HANG, wait_for

CASES: dict[str, tuple[Rules, set[str], set[str]]] = {
    "nothing is allowed": ([], set(), both("client * tcp 80", "client * udp 53", "client * ping")),
    "a label and a port": (
        [allow(protocol="TCP", source=ONLY_CLIENT, destination={"ports": [80, "90:95"]})],
        both("client * tcp 80", "client * tcp 93"),
        both("client * tcp 81", "other * tcp 80", "client * udp 80", "client * ping"),
    ),
    "a named port": (
        [allow(protocol="TCP", destination={"ports": ["http"]})],
        both("client * tcp 80"),
        both("client * tcp 81", "client * udp 80"),
    ),
    "networks of one family": (
        [allow(source={"nets": ["10.65.0.0/31"]})],
        {"client 4 tcp 80", "client 4 ping"},
        {"other 4 tcp 80", "client 6 tcp 80", "client 6 ping"},
    ),
    "networks but for some": (
        [allow(source={"nets": ["10.65.0.0/24", "fd65::/64"],
                       "notNets": ["10.65.0.2/32", "fd65::2/128"]})],
        both("client * tcp 80"),
        both("other * tcp 80"),
    ),
    "not from a label": (
        [allow(source={"notSelector": "role == 'other'"})],
        both("client * tcp 80", "client * udp 53"),
        both("other * tcp 80", "other * udp 53"),
    ),
    "not to these ports": (
        [allow(protocol="TCP", destination={"notPorts": [81, "90:95"]})],
        both("client * tcp 80", "client * tcp 89"),
        both("client * tcp 81", "client * tcp 92"),
    ),
    "protocols by name and by number": (
        [allow(protocol=17), allow(notProtocol="TCP", destination={"nets": ["10.65.0.3/32"]})],
        {*both("client * udp 53"), "client 4 ping"},
        {*both("client * tcp 80"), "client 6 ping"},
    ),
    "echo requests only": (
        [allow(protocol="ICMP", icmp={"type": 8}), allow(protocol="ICMPv6", icmp={"type": 128})],
        both("client * ping"),
        both("client * tcp 80"),
    ),
    "all but echo requests": (
        [allow(notICMP={"type": 8})],
        {*both("client * tcp 80", "client * udp 53"), "client 6 ping"},
        {"client 4 ping"},
    ),
    "the first rule that matches decides": (
        [{"action": "Deny", "protocol": "TCP", "destination": {"ports": [81]}}, allow()],
        both("client * tcp 80", "client * ping"),
        both("client * tcp 81"),
    ),
    "many ports": (
        [allow(protocol="TCP", destination={"ports": list(range(100, 140))})],
        both("client * tcp 100", "client * tcp 116", "client * tcp 139"),
        both("client * tcp 99", "client * tcp 140"),
    ),
}  # fmt: skip


@pytest.mark.promise("F-69")
@pytest.mark.parametrize("case", CASES)
def test_what_a_policy_lets_in(stage: Stage, case: str) -> None:
    rules, passes, fails = CASES[case]
    stage.policy("case", rules)
    stage.comes_to(passes, fails)


@pytest.mark.parametrize("count", [3, 4])
def test_the_third_and_fourth_choice_are_enforced(stage: Stage, count: int) -> None:
    """One of many source ports, destination ports, source nets and destination nets at once."""
    source = {"nets": ["10.65.0.1/32", "192.0.2.0/24"], "ports": ["http", 2000]}
    destination = {"nets": ["10.65.0.3/32", "192.0.2.0/24"], "ports": ["http", 90]}
    if count == 3:
        del source["ports"]
    rule = allow(protocol="TCP", source=source, destination=destination)
    stage.policy("case", [rule])
    fails = {"other 4 tcp 90 2000", "client 4 tcp 91 2000", "client 6 tcp 90 2000"}
    if count == 4:
        fails.add("client 4 tcp 90 2001")
    stage.comes_to({"client 4 tcp 90 2000"}, fails)
    # The destination's network is the last block: take the server out of it.
    destination["nets"] = ["10.65.0.77/32", "192.0.2.0/24"]
    stage.policy("case", [rule])
    stage.comes_to(set(), {"client 4 tcp 90 2000", "client 4 tcp 80 2000"})


@pytest.mark.promise("F-69")
@pytest.mark.promise("F-71")
def test_a_tier_passes_to_the_next_and_the_last_to_profiles(stage: Stage) -> None:
    for number, tier in enumerate(("one", "two")):
        stage.world.put("tiers", tier, "Tier", {"order": number})
    to = {"protocol": "TCP", "destination": {"ports": [81]}}
    stage.policy(
        "one.pass",
        [{"action": "Deny", **to}, {"action": "Pass", "source": ONLY_CLIENT}],
        tier="one",
    )
    stage.comes_to(
        both("client * tcp 80", "client * ping"), both("client * tcp 81", "other * tcp 80")
    )
    stage.policy("two.pass", [allow(protocol="TCP", destination={"ports": [80]})], tier="two")
    stage.comes_to(both("client * tcp 80"), both("client * ping", "other * tcp 80"))


@pytest.mark.promise("F-69")
def test_a_logged_packet_is_logged_and_goes_on(stage: Stage) -> None:
    stage.policy("case", [{"action": "Log", "protocol": "TCP"}, allow()])
    stage.comes_to(both("client * tcp 80"), set())
    wait_for(lambda: 'prefix "calico-packet: "' in rules_of(stage))
    assert "level 5" in rules_of(stage) or "level notice" in rules_of(stage)
    assert talk.tcp(stage.client, stage.server, 80, wait=HANG)
    rules = stage.world.kernel.counted("cali-pi-gnp/case")
    assert next(packets for packets, text in rules if "calico-packet" in text) > 0


def test_egress_too_is_policed(stage: Stage) -> None:
    stage.policy(
        "case",
        [],
        selector="role == 'client'",
        types=["Egress"],
        egress=[allow(protocol="TCP", destination={"selector": "role == 'server'"})],
    )
    stage.comes_to(both("client * tcp 80", "other * udp 53"), both("client * udp 53"))


@pytest.mark.promise("F-73")
def test_a_network_set_and_a_change_of_labels(stage: Stage) -> None:
    world = stage.world
    nets = ["10.65.0.1/32", "fd65::1/128"]
    world.put("globalnetworksets", "friends", "GlobalNetworkSet", {"nets": nets}, labels={"f": ""})
    stage.policy("case", [allow(source={"selector": "has(f)"})])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    try:
        world.put_endpoint("other", stage.other, labels={"role": "other", "f": "yes"})
        stage.comes_to(both("client * tcp 80", "other * tcp 80"), set())
        nets.clear()
        world.put(
            "globalnetworksets", "friends", "GlobalNetworkSet", {"nets": nets}, labels={"f": ""}
        )
        stage.comes_to(both("other * tcp 80"), both("client * tcp 80"))
    finally:
        world.put_endpoint("other", stage.other, labels={"role": "other"})
