"""BGPFilter rules: each match field, each operation, order, and that nothing widens."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.routes import filters
from bgp.routes.filters import EXPORT, IMPORT, Subject, run
from tests.bgp.make import net, rules

ROUTE = Subject(
    net("10.65.1.0/26"),
    internal=True,
    learned=True,
    interface="eth0",
    as_path=(64500, 7),
    communities=("1:2",),
    large_communities=("1:2:3",),
)


def verdict(rule: dict[str, Any], subject: Subject = ROUTE) -> bool | None:
    """What one rule decides."""
    rule = {"action": "Accept", **rule}
    return run([rules(exportV4=[rule])], EXPORT, subject).accepted


@pytest.mark.promise("F-44")
@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({}, True),
        ({"cidr": "10.65.1.0/26", "matchOperator": "Equal"}, True),
        ({"cidr": "10.65.0.0/16", "matchOperator": "Equal"}, False),
        ({"cidr": "10.65.0.0/16", "matchOperator": "NotEqual"}, True),
        ({"cidr": "10.65.1.0/26", "matchOperator": "NotEqual"}, False),
        ({"cidr": "10.65.0.0/16", "matchOperator": "In"}, True),
        ({"cidr": "10.65.1.0/27", "matchOperator": "In"}, False),
        ({"cidr": "10.65.0.0/16", "matchOperator": "NotIn"}, False),
        ({"cidr": "10.66.0.0/16", "matchOperator": "NotIn"}, True),
        (
            {"cidr": "10.65.0.0/16", "matchOperator": "In", "prefixLength": {"min": 24, "max": 28}},
            True,
        ),
        ({"cidr": "10.65.0.0/16", "matchOperator": "In", "prefixLength": {"min": 27}}, False),
        ({"cidr": "10.65.0.0/16", "matchOperator": "In", "prefixLength": {"max": 25}}, False),
        ({"cidr": "10.65.0.0/16", "matchOperator": "NotIn", "prefixLength": {"max": 25}}, True),
        ({"source": "RemotePeers"}, True),
        ({"interface": "eth0"}, True),
        ({"interface": "eth*"}, True),
        ({"interface": "eth"}, False),
        ({"peerType": "iBGP"}, True),
        ({"peerType": "eBGP"}, False),
        ({"communities": {"values": ["1:2"]}}, True),
        ({"communities": {"values": ["1:2:3"]}}, True),
        ({"communities": {"values": ["1:3"]}}, False),
        ({"asPathPrefix": [64500]}, True),
        ({"asPathPrefix": [64500, 7]}, True),
        ({"asPathPrefix": [7]}, False),
        ({"priority": 1024}, True),
        ({"priority": 1}, False),
        ({"peerType": "iBGP", "interface": "eth1"}, False),
    ],
)
def test_matches(rule: dict[str, Any], matches: bool) -> None:
    """FLT-1; a rule that does not match says nothing."""
    assert verdict(rule) is (True if matches else None)
    assert verdict({**rule, "action": "Reject"}) is (False if matches else None)


def test_own_routes_are_not_from_remote_peers() -> None:
    own = Subject(net("10.65.1.0/26"), internal=True, learned=False)
    assert verdict({"source": "RemotePeers"}, own) is None


def test_the_first_match_of_all_filters_decides() -> None:
    no = rules(exportV4=[{"cidr": "10.9.0.0/16", "matchOperator": "In", "action": "Reject"}])
    yes, never = rules(exportV4=[{"action": "Accept"}]), rules(exportV4=[{"action": "Reject"}])
    assert run([no, yes, never], EXPORT, ROUTE).accepted is True
    assert run([no, never, yes], EXPORT, ROUTE).accepted is False
    assert run([no], EXPORT, ROUTE).accepted is None
    assert run([yes], IMPORT, ROUTE).accepted is None
    six = Subject(net("fd00::/64"), internal=True, learned=True)
    assert run([yes], EXPORT, six).accepted is None
    assert run([rules(exportV6=[{"action": "Reject"}])], EXPORT, six).accepted is False


@pytest.mark.promise("F-45")
def test_operations() -> None:
    operations: list[dict[str, Any]] = [
        {"addCommunity": {"value": "65000:7"}},
        {"addCommunity": {"value": "1:2"}},
        {"addCommunity": {"value": "9:8:7"}},
        {"prependASPath": {"prefix": [65001, "1.1"]}},
        {"prependASPath": {"prefix": [65002]}},
        {"setPriority": {"value": 512}},
    ]
    found = run([rules(importV4=[{"action": "Accept", "operations": operations}])], IMPORT, ROUTE)
    after = found.subject
    assert after.communities == ("1:2", "65000:7")
    assert after.large_communities == ("1:2:3", "9:8:7")
    assert after.prepended == (65002, 65001, 65537)
    assert (after.priority, after.priority_set) == (512, True)
    rejecting = rules(importV4=[{"action": "Reject", "operations": operations}])
    assert run([rejecting], IMPORT, ROUTE).subject is ROUTE


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"action": "Maybe"}, "spec.exportV4[0].action"),
        ({"cidr": "10.0.0/8", "matchOperator": "In"}, "spec.exportV4[0].cidr"),
        ({"cidr": "fd00::/8", "matchOperator": "In"}, "a network of IPv4"),
        ({"cidr": "10.0.0.0/8"}, "spec.exportV4[0].matchOperator"),
        ({"prefixLength": {"min": 1}}, "needs cidr"),
        ({"source": "Everybody"}, "spec.exportV4[0].source"),
        ({"peerType": "BGP"}, "spec.exportV4[0].peerType"),
        ({"communities": {"values": ["x"]}}, "spec.exportV4[0].communities"),
        ({"operations": [{}]}, "spec.exportV4[0].operations[0]"),
        ({"operations": [{"addCommunity": {"value": "7"}}]}, "operations[0].addCommunity"),
    ],
)
def test_what_cannot_be_read_is_no_filter(rule: dict[str, Any], words: str) -> None:
    """FLT-2."""
    with pytest.raises(ValueError, match=r"BGPFilter\(f\)") as caught:
        rules(exportV4=[{"action": "Accept", **rule}])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("sent", "priority"),
    [(None, 1024), (100, 1024), (200, 1024), (2_147_482_623, 1024), (2_147_483_135, 512)],
)
def test_priorities_travel_in_local_pref(sent: int | None, priority: int) -> None:
    assert filters.priority_of(sent) == priority
    assert filters.priority_of(filters.local_pref_of(priority)) == priority


some_nets = st.builds(
    lambda number, length: ip_network((number << 16, length), strict=False),
    st.integers(0, 0xFFFF),
    st.integers(0, 32),
)
operators = st.sampled_from(["Equal", "NotEqual", "In", "NotIn"])


@given(
    some_nets, some_nets, operators, st.none() | st.integers(0, 32), st.none() | st.integers(0, 32)
)
def test_against_the_plain_meaning(
    prefix: Any, cidr: Any, operator: str, low: int | None, high: int | None
) -> None:
    """An operator and its negation part all routes between them; lengths bound both."""
    rule: dict[str, Any] = {"cidr": str(cidr), "matchOperator": operator}
    if low is not None or high is not None:
        rule["prefixLength"] = {"min": low, "max": high}
    subject = Subject(prefix, internal=False, learned=True)
    inside = prefix == cidr if operator.endswith("Equal") else prefix.subnet_of(cidr)
    floor = cidr.prefixlen if low is None else low
    inside = inside and floor <= prefix.prefixlen <= (32 if high is None else high)
    assert (verdict(rule, subject) is True) is (inside is not operator.startswith("Not"))
