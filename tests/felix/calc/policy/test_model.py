"""Random histories against the brute-force model: what was told adds up, whatever happened.

Every flush is applied with checks (`Told`): sets before their users, adds and removals that
are real. Every history is also played again in another order, and ends the same.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.policy import PolicyEngine
from felix.calc.sets import label_sets
from libcalico.model import ResourceKey, Rule
from libcalico.model.resources.rules import ServiceAccountMatch
from tests.felix.policy_brute import calculate
from tests.felix.policy_objects import (
    ME,
    Told,
    global_network_set,
    global_policy,
    host,
    network_set,
    pod,
    policy,
    profile,
    rule,
    tier,
)
from tests.size import examples

NAMESPACES = ("red", "blue")
VALUES = ("x", "y", "")
LABELS = ("app", "tier", "pcns.team", "pcsa.role")
# Few addresses, so that many are shared, also with network sets.
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1")
NETS = ("10.0.0.1/32", "10.0.0.0/24", "10.0.0.2", "0.0.0.0/0", "fd00::/64", "10.0.0.7/24")
PROFILES: tuple[list[str], ...] = (
    ["kns.red"],
    ["kns.red", "kns.blue"],
    ["kns.blue", "kns.red", "ksa.web"],
    [],
)
TIERS = ("default", "early", "unheard")

STAGES: tuple[dict[str, bool], ...] = (
    {},
    {"applyOnForward": True},
    {"applyOnForward": True, "doNotTrack": True},
    {"applyOnForward": True, "preDNAT": True},
    {"preDNAT": True, "doNotTrack": True},
)

labels = st.dictionaries(st.sampled_from(LABELS), st.sampled_from(VALUES), max_size=3)
_leaves = st.one_of(
    st.builds("{} == '{}'".format, st.sampled_from(LABELS), st.sampled_from(VALUES)),
    st.builds("{} != '{}'".format, st.sampled_from(LABELS), st.sampled_from(VALUES)),
    st.builds("{} in {{'x', 'y'}}".format, st.sampled_from(LABELS)),
    st.builds("{} not in {{'x'}}".format, st.sampled_from(LABELS)),
    st.builds("{} starts with 'x'".format, st.sampled_from(LABELS)),
    st.builds("has({})".format, st.sampled_from(LABELS)),
    st.sampled_from(["all()", "global()", "projectcalico.org/namespace == 'red'"]),
)
selectors = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds("({}) && ({})".format, inner, inner),
        st.builds("({}) || ({})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=3,
)
some_selector = st.one_of(st.just(""), selectors)
namespace_selectors = st.sampled_from(["", "", "all()", "global()", "team == 'x'", "has(team)"])


@st.composite
def entities(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["selector"] = draw(some_selector)
        fields["namespaceSelector"] = draw(namespace_selectors)
    if draw(st.integers(0, 3)) == 0:
        fields["notSelector"] = draw(some_selector)
    if draw(st.integers(0, 3)) == 0:
        fields["serviceAccounts"] = ServiceAccountMatch(names=["web"])
    if draw(st.integers(0, 2)) == 0:
        fields["ports"] = draw(st.sampled_from([["http"], ["http", 80], ["dns", "http"]]))
    if draw(st.integers(0, 4)) == 0:
        fields["notPorts"] = ["http"]
    return fields


rules = st.builds(
    lambda action, source, destination: rule(
        action, protocol="TCP", source=source, destination=destination
    ),
    st.sampled_from(["Allow", "Deny", "Pass", "Log", "Broken"]),
    entities(),
    entities(),
)
rule_lists: st.SearchStrategy[list[Rule]] = st.lists(rules, max_size=2)
policy_fields = st.fixed_dictionaries(
    {
        "tier": st.sampled_from(TIERS),
        "order": st.sampled_from([None, 1, 1, 2.5]),
        "ingress": rule_lists,
        "egress": rule_lists,
        "selector": st.one_of(some_selector, st.just("broken =")),
        "types": st.sampled_from([[], ["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
        "serviceAccountSelector": st.sampled_from(["", "", "role == 'x'"]),
    }
)


@st.composite
def objects(draw: st.DrawFn) -> tuple[ResourceKey, Any]:
    """One object to be, or not to be."""
    namespace = draw(st.sampled_from(NAMESPACES))
    name = draw(st.sampled_from(["one", "two"]))
    kind = draw(st.integers(0, 13))
    if kind <= 2:
        found = pod(
            draw(st.sampled_from(["p1", "p2", "p3"])),
            draw(st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=2, unique=True)),
            draw(labels),
            namespace=namespace,
            node=draw(st.sampled_from([ME, ME, "n2"])),
            profiles=draw(st.sampled_from(PROFILES)),
            ports=draw(st.sampled_from([{}, {"http": ("TCP", 80)}, {"http": ("TCP", 8080),
                                                                     "dns": ("UDP", 53)}])),
            account=draw(st.sampled_from(["", "web"])),
        )  # fmt: skip
    elif kind == 3:
        nets = draw(st.lists(st.sampled_from(NETS), max_size=3))
        found = network_set(name, nets, draw(labels), namespace)
    elif kind == 4:
        found = global_network_set(
            name, draw(st.lists(st.sampled_from(NETS), max_size=3)), draw(labels)
        )
    elif kind in (5, 10):
        profile_name = draw(st.sampled_from(["kns.red", "kns.blue", "ksa.web"]))
        found = profile(profile_name, draw(labels), draw(rule_lists.filter(_readable)), [])
    elif kind == 6:
        orders = st.sampled_from([None, 1, 2])
        action = draw(st.sampled_from([None, "Deny", "Pass"]))
        found = tier(draw(st.sampled_from(TIERS[:2])), draw(orders), action)
    elif kind == 7:
        found = global_policy(
            name,
            **draw(policy_fields),
            namespaceSelector=draw(namespace_selectors),
            **draw(st.sampled_from(STAGES)),
        )
    elif kind in (12, 13):
        found = host(
            draw(st.sampled_from(["h1", "h2"])),
            draw(st.sampled_from(["eth0", "eth1", "*", ""])),
            draw(labels),
            node=draw(st.sampled_from([ME, ME, "n2"])),
            addresses=draw(st.lists(st.sampled_from(ADDRESSES), max_size=2, unique=True)),
            profiles=draw(st.sampled_from(PROFILES)),
            ports=draw(st.sampled_from([{}, {"http": ("TCP", 80)}])),
        )
    else:
        found = policy(name, namespace=namespace, **draw(policy_fields))
    return found if draw(st.integers(0, 3)) else (found[0], None)


def _readable(given_rules: list[Rule]) -> bool:
    return all(one.action != "Broken" for one in given_rules)


histories = st.lists(st.lists(objects(), min_size=1, max_size=4), min_size=3, max_size=15)


def play(batches: list[list[tuple[ResourceKey, Any]]], start_at: int) -> Told:
    """Feed the batches, in sync from one of them on; each flush is checked."""
    engine, told = PolicyEngine(ME), Told()
    for number, batch in enumerate(batches):
        if number == start_at:
            engine.start()
        before = engine.flush()
        if number < start_at:
            assert not before
        told.apply(before)
        for key, value in batch:
            engine.update(key, value)
        dirty = engine.dirty
        changes = engine.flush()
        assert dirty or not changes
        told.apply(changes)
    engine.start()
    told.apply(engine.flush())
    assert not engine.dirty
    assert not engine.flush()
    assert told.policies == engine.policies
    assert told.profiles == engine.profiles
    assert told.endpoints == engine.endpoints
    assert told.host_endpoints == engine.host_endpoints
    assert told.sets == {name: engine.members(name) for name in engine.sets}
    return told


def final(batches: list[list[tuple[ResourceKey, Any]]]) -> dict[ResourceKey, Any]:
    state: dict[ResourceKey, Any] = {}
    for batch in batches:
        for key, value in batch:
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
    return state


@settings(deadline=None, max_examples=examples(150))
@given(
    histories,
    st.sampled_from([0, 0, 1, 2, 20]),
    st.sampled_from([0, 1, 2, 1000]),
    st.randoms(use_true_random=False),
)
def test_every_history_ends_as_the_model_says(
    batches: list[list[tuple[ResourceKey, Any]]],
    start_at: int,
    many_values: int,
    shuffler: random.Random,
) -> None:
    state = final(batches)
    expected = calculate(state)
    order: list[tuple[ResourceKey, Any]] = list(state.items())
    shuffler.shuffle(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_sets, "MANY_VALUES", many_values)
        assert play(batches, start_at) == expected
        assert play([[one] for one in order], start_at) == expected


@settings(deadline=None, max_examples=examples(50))
@given(histories)
def test_when_all_objects_are_gone_nothing_is_left(
    batches: list[list[tuple[ResourceKey, Any]]],
) -> None:
    gone: list[tuple[ResourceKey, Any]] = [(key, None) for key in final(batches)]
    assert play([*batches, gone], 0) == Told()
