"""Scripted sequences in other orders: the same end, and never an illegal order on the way.

Each sequence is told as it stands and in five expansions: in reverse, everything twice, with
another sequence in between, many steps in one flush, and each step in parts. What was told in
the end is what the model says of the objects alone; every flush on the way is applied with checks
(`Told`): sets before the rules that name them, policies before the endpoints that have them.
"""

from __future__ import annotations

from typing import Any

import pytest

from felix.calc.policy import PolicyEngine
from libcalico.model import ResourceKey
from tests.felix.policy_brute import calculate
from tests.felix.policy_objects import (
    ME,
    Object,
    Told,
    account,
    allow,
    deny,
    global_network_set,
    global_policy,
    namespace,
    network_set,
    pod,
    policy,
    tier,
)

Step = tuple[ResourceKey, Any]
Script = list[Step]

PEERS = allow(source={"selector": "app == 'db'"})
PORTS = allow(protocol="TCP", destination={"selector": "has(app)", "ports": ["http"]})
OUTSIDE = deny(destination={"selector": "kind == 'outside'", "namespaceSelector": "global()"})
TEAM = allow(source={"namespaceSelector": "team == 'red'"})


def gone(item: Object) -> Step:
    return item[0], None


WEB = pod("web", "10.0.0.1", {"app": "web"}, ports={"http": ("TCP", 80)})
DB = pod("db", "10.0.0.2", {"app": "db"}, node="n2", ports={"http": ("TCP", 8080)})
HEIR = pod("heir", "10.0.0.2", {"app": "db"}, node="n3")
SETS = [global_network_set("out", ["192.0.2.0/24"], {"kind": "outside"}),
        network_set("more", ["10.0.0.2/32", "0.0.0.0/0"], {"app": "db"})]  # fmt: skip

SCRIPTS: dict[str, Script] = {
    "a pod comes, is labelled, goes": [
        namespace("default", team="red"),
        policy("p", selector="app == 'web'", ingress=[PEERS, TEAM], egress=[PORTS]),
        pod("web", "10.0.0.1", {"app": "none"}),
        WEB,
        DB,
        gone(WEB),
        pod("web", "10.0.0.9", {"app": "web"}),
    ],
    "an address changes hands": [
        namespace("default"),
        WEB,
        policy("p", selector="app == 'web'", ingress=[PEERS]),
        DB,
        HEIR,
        SETS[1],
        gone(DB),
        gone(SETS[1]),
    ],
    "policies and tiers are put in order": [
        WEB,
        tier("early", 1),
        global_policy("early.p", tier="early", selector="all()", ingress=[PEERS], order=5),
        global_policy("early.q", tier="early", selector="has(app)", egress=[OUTSIDE]),
        policy("p", selector="app == 'web'", ingress=[PEERS], order=1),
        *SETS,
        tier("early", 2, "Pass"),
        global_policy("early.p", tier="early", selector="all()", egress=[PORTS], order=7),
        gone(global_policy("early.q")),
    ],
    "namespaces are labelled": [
        namespace("default", team="red"),
        account("web", role="x"),
        pod("web", "10.0.0.1", {"app": "web"}, profiles=["kns.default", "ksa.default.web"]),
        DB,
        policy("p", selector="app == 'web'", ingress=[TEAM]),
        global_policy("g", namespaceSelector="team == 'blue'", ingress=[deny()]),
        namespace("default", team="blue"),
        account("web", role="y"),
        namespace("default", team="red", more="z"),
        gone(account("web")),
    ],
    "all goes": [
        namespace("default"),
        WEB,
        DB,
        *SETS,
        policy("p", selector="all()", ingress=[PEERS], egress=[OUTSIDE, PORTS]),
        gone(WEB),
        gone(DB),
        gone(policy("p")),
        gone(SETS[0]),
        gone(namespace("default")),
    ],
}
OTHER: Script = [
    namespace("other", team="red"),
    pod("else", "10.0.1.1", {"app": "web"}, namespace="other"),
    policy("else", namespace="other", selector="all()", ingress=[PEERS, TEAM]),
    pod("there", "10.0.1.2", {"app": "db"}, namespace="other", node="n2"),
    policy("else", namespace="other", selector="has(app)", egress=[PORTS]),
]

Flushes = list[Script]


def as_written(script: Script) -> Flushes:
    return [[step] for step in script]


def reverse(script: Script) -> Flushes:
    """Every step, then back to what was before it, then every step again."""
    before: list[Step] = []
    state: dict[ResourceKey, Any] = {}
    for key, value in script:
        before.append((key, state.get(key)))
        state[key] = value
    return [[step] for step in (*script, *reversed(before), *script)]


def repeat(script: Script) -> Flushes:
    return [[step] for step in script for _ in range(2)]


def interleave(script: Script) -> Flushes:
    mixed: Flushes = []
    for number, step in enumerate(script):
        mixed.append([step])
        mixed += [[other] for other in OTHER[number : number + 1]]
    return mixed + [[other] for other in OTHER[len(script) :]]


def squash(script: Script) -> Flushes:
    return [script[start : start + 4] for start in range(0, len(script), 4)]


def split(script: Script) -> Flushes:
    """Each step takes the object away first."""
    return [part for key, value in script for part in ([(key, None)], [(key, value)])]


EXPANSIONS = [as_written, reverse, repeat, interleave, squash, split]


def play(flushes: Flushes, start_at: int, slices: int) -> Told:
    engine, told = PolicyEngine(ME), Told()
    for number, steps in enumerate(flushes):
        if number == start_at:
            engine.start()
        for key, value in steps:
            engine.update(key, value)
            for _, _slice in zip(range(slices), engine.settle(), strict=False):
                pass
        told.apply(engine.flush())
    engine.start()
    told.apply(engine.flush())
    assert not engine.dirty
    return told


def end_of(flushes: Flushes) -> dict[ResourceKey, Any]:
    state: dict[ResourceKey, Any] = {}
    for key, value in (step for steps in flushes for step in steps):
        state.pop(key, None)
        if value is not None:
            state[key] = value
    return state


@pytest.mark.parametrize("expand", EXPANSIONS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("slices", [0, 2])
def test_every_expansion_of_a_script_ends_the_same(name: str, expand: Any, slices: int) -> None:
    flushes = expand(SCRIPTS[name])
    expected = calculate(end_of(flushes))
    if expand is not interleave:
        assert expected == calculate(end_of(as_written(SCRIPTS[name])))
    for start_at in (0, len(flushes) // 2, len(flushes)):
        assert play(flushes, start_at, slices) == expected


def test_scripts_say_something() -> None:
    told = calculate(end_of(as_written(SCRIPTS["policies and tiers are put in order"])))
    assert told.sets
    assert told.policies
    assert told.endpoints
    assert calculate(end_of(as_written(SCRIPTS["all goes"]))).policies == {}
