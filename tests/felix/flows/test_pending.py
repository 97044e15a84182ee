"""PND-1: the pending trace is that of the world in which staged policies are in force."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.policy import PolicyEngine
from felix.explain.matching import Matcher
from felix.explain.walk import walk
from felix.flows.hits import Hits
from felix.flows.pending import Pending, packet_of
from flows.record import Action, Hit, PolicyKind
from linux.tracking.connections import Key
from tests.felix.calc.policy.test_staged import staged
from tests.felix.policy_objects import (
    ME,
    Object,
    allow,
    deny,
    global_policy,
    namespace,
    network_set,
    pod,
    pod_key,
    policy,
    rule,
    tier,
)
from tests.size import examples

HERE = (
    namespace("default", team="a"),
    pod("a", "10.0.0.1", {"app": "a"}, ports={"http": ("TCP", 80)}),
    pod("b", "10.0.0.2", {"app": "b"}),
    pod("c", "10.0.0.3", {"app": "c"}, node="other"),
    network_set("net", ["192.0.2.0/24"], {"net": "x"}),
)


def engine(*objects: Object) -> PolicyEngine:
    made = PolicyEngine(ME)
    made.start()
    for key, value in (*HERE, *objects):
        made.update(key, value)
    made.flush()
    return made


def key(source: str = "10.0.0.3", port: int = 80, protocol: int = 6, source_port: int = 1) -> Key:
    return Key(
        protocol, ip_address(source).packed, ip_address("10.0.0.1").packed, source_port, port
    )


def trace(made: PolicyEngine, which: Key) -> tuple[Hit, ...]:
    return Pending(made, Hits(made)).trace(pod_key("a"), which, ingress=True)


def names(hits: tuple[Hit, ...]) -> list[tuple[PolicyKind, str, Action, int]]:
    return [(hit.kind, hit.name, hit.action, hit.rule_index) for hit in hits]


def test_without_staged_policies_it_is_what_is_enforced() -> None:
    made = engine(policy("in", ingress=[deny(protocol="UDP"), allow()], selector="app == 'a'"))
    assert names(trace(made, key())) == [(PolicyKind.CALICO_NETWORK_POLICY, "in", Action.ALLOW, 1)]


@pytest.mark.parametrize(
    ("source", "action"),
    [
        ({"selector": "app == 'c'"}, Action.DENY),
        ({"selector": "app == 'b'"}, Action.ALLOW),
        ({"namespaceSelector": "team == 'a'"}, Action.DENY),
        ({"nets": ["10.0.0.3/32"]}, Action.DENY),
    ],
)
def test_a_staged_policy_decides_by_whom_it_would_select(
    source: dict[str, Any], action: Action
) -> None:
    """No set of a staged policy is ever made."""
    planned = staged(policy("no", ingress=[deny(source=source)], selector="app == 'a'", order=1))
    made = engine(policy("in", ingress=[allow()], selector="app == 'a'", order=2), planned)
    (hit,) = trace(made, key())
    assert hit.action is action
    assert (hit.kind is PolicyKind.STAGED_NETWORK_POLICY) is (action is Action.DENY)
    assert not any("app == 'c'" in name for name in made.sets)


def test_named_ports_and_network_sets_of_a_staged_policy() -> None:
    ports = staged(
        policy(
            "p", ingress=[deny(protocol="TCP", destination={"ports": ["http"]})],
            selector="app == 'a'", order=1,
        )
    )  # fmt: skip
    made = engine(policy("in", ingress=[allow()], selector="app == 'a'", order=2), ports)
    assert trace(made, key(port=80))[0].action is Action.DENY
    assert trace(made, key(port=81))[0].action is Action.ALLOW
    nets = staged(
        policy(
            "n", ingress=[deny(source={"selector": "net == 'x'"})], selector="app == 'a'", order=1
        )
    )
    made = engine(policy("in", ingress=[allow()], selector="app == 'a'", order=2), nets)
    assert trace(made, key("192.0.2.9"))[0].action is Action.DENY
    assert trace(made, key("192.0.3.9"))[0].action is Action.ALLOW


def test_a_staged_deletion_opens_what_its_target_shuts() -> None:
    shut = policy("shut", ingress=[deny()], selector="app == 'a'")
    made = engine(shut, staged(shut, "Delete"))
    (hit,) = trace(made, key())
    assert (hit.kind, hit.name, hit.action) == (PolicyKind.PROFILE, "kns.default", Action.ALLOW)


def test_tiers_are_passed_and_ended() -> None:
    made = engine(
        tier("first", 1.0),
        tier("open", 2.0, "Pass"),
        global_policy("gate", tier="first", ingress=[rule("Pass")]),
        global_policy("seldom", tier="open", ingress=[allow(protocol="SCTP")]),
        staged(policy("in", ingress=[], selector="app == 'a'")),
    )
    assert [(hit.kind, hit.tier, hit.action) for hit in trace(made, key())] == [
        (PolicyKind.GLOBAL_NETWORK_POLICY, "first", Action.PASS),
        (PolicyKind.END_OF_TIER, "open", Action.PASS),
        (PolicyKind.END_OF_TIER, "default", Action.DENY),
    ]


def test_source_ports_count_where_a_rule_looks_at_them() -> None:
    low = staged(
        policy(
            "low", ingress=[deny(protocol="TCP", source={"ports": ["1:1023"]})],
            selector="app == 'a'",
        )
    )  # fmt: skip
    made = engine(low)
    pending = Pending(made, Hits(made))
    one, other = key(source_port=7), key(source_port=7000)
    assert (
        pending.trace(pod_key("a"), one, ingress=True)[0].kind is PolicyKind.STAGED_NETWORK_POLICY
    )
    assert pending.trace(pod_key("a"), other, ingress=True)[0].kind is PolicyKind.END_OF_TIER
    assert pending.known(pod_key("a"), one, ingress=True)
    pending.forget()
    assert not pending.known(pod_key("a"), one, ingress=True)


MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(
            [
                {"selector": "app == 'b'"},
                {"selector": "app != 'b'"},
                {"nets": ["10.0.0.0/31"]},
                {"notSelector": "app == 'c'"},
                {"selector": "net == 'x'"},
            ]
        ),
        "protocol": st.sampled_from(["TCP", "UDP", "ICMP"]),
    },
)
RULES = st.lists(
    st.tuples(st.sampled_from(["Allow", "Deny", "Pass", "Log"]), MATCHES).map(
        lambda one: rule(one[0], **one[1])
    ),
    max_size=4,
)


@settings(max_examples=examples(150), deadline=None)
@given(first=RULES, second=RULES, replaced=st.booleans(), data=st.data())
def test_it_is_what_the_enforced_world_decides(
    first: list[Any], second: list[Any], replaced: bool, data: st.DataObject
) -> None:
    """The staged policy beside the one in force, against an engine in which it is in force."""
    old = policy("old", ingress=first, selector="app == 'a'", order=2)
    new = policy("old" if replaced else "new", ingress=second, selector="app == 'a'", order=1)
    made, then = engine(old, staged(new)), engine(old, new)
    which = key(
        data.draw(st.sampled_from(["10.0.0.2", "10.0.0.3", "192.0.2.5", "8.8.8.8"])),
        protocol=data.draw(st.sampled_from([6, 17, 1])),
    )
    policies = then.endpoint(pod_key("a"))
    assert policies is not None
    ruling = walk(policies.tiers, policies.profiles, packet_of(which), Matcher(then), ingress=True)
    wanted = Hits(then).walked(ruling, policies, ingress=True)
    got = trace(made, which)

    def plain(hits: tuple[Hit, ...]) -> list[Hit]:
        """Staged policies as what they would become."""
        kind = PolicyKind.CALICO_NETWORK_POLICY

        def one(hit: Hit) -> Hit:
            staged_one = hit.kind is PolicyKind.STAGED_NETWORK_POLICY
            trigger = one(hit.trigger) if hit.trigger is not None else None
            return Hit(
                kind if staged_one else hit.kind, hit.tier, hit.namespace, hit.name, hit.action,
                hit.policy_index, hit.rule_index, trigger,
            )  # fmt: skip

        return [one(hit) for hit in hits]

    assert plain(got) == plain(wanted)
