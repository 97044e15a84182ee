"""In which order an endpoint sees tiers and policies, and whose list a change makes anew."""

from __future__ import annotations

from typing import Any

import pytest

from felix.calc.policy_model import TierView
from libcalico.model import ResourceKey
from tests.felix.policy_objects import (
    Object,
    World,
    global_policy,
    namespace,
    pod,
    pod_key,
    policy,
    tier,
)

ALL: dict[str, Any] = {"selector": "all()", "types": ["Ingress", "Egress"]}


def world(*more: Object) -> World:
    return World(namespace("default"), pod("a", "10.0.0.1", {"app": "a"}), *more)


def views(there: World) -> tuple[TierView, ...]:
    return there.told.endpoints[pod_key("a")].tiers


@pytest.mark.parametrize(
    ("tiers", "names"),
    [
        ([tier("t1", 2), tier("t2", 1)], ["t2", "t1", "t3"]),
        ([tier("t1", 1), tier("t2", 1), tier("t3", 1)], ["t1", "t2", "t3"]),
        ([tier("t1", None), tier("t2", 9), tier("t3", -1)], ["t3", "t2", "t1"]),
        ([tier("t3", None)], ["t3", "t1", "t2"]),
        ([tier("t2", 0), tier("t1", 0.5), tier("t3", 0.25)], ["t2", "t3", "t1"]),
        ([], ["t1", "t2", "t3"]),
    ],
)
def test_tiers_by_being_defined_then_order_then_name(tiers: list[Object], names: list[str]) -> None:
    policies = [global_policy(f"p-{n}", tier=n, **ALL) for n in ("t1", "t2", "t3")]
    assert [view.name for view in views(world(*tiers, *policies))] == names


def test_policies_by_order_then_name_then_namespace_then_kind() -> None:
    there = world(
        global_policy("b", **ALL),
        policy("b", **ALL),
        policy("a", **ALL),
        global_policy("z", order=5, **ALL),
        policy("y", order=5, **ALL),
        global_policy("x", order=-1, **ALL),
        policy("a.b", **ALL),
    )
    (view,) = views(there)
    # "b//GlobalNetworkPolicy" is before "b/default/NetworkPolicy", "a.b/" before "a/".
    assert [(key.kind[0], key.name) for key in view.ingress] == [
        ("G", "x"), ("N", "y"), ("G", "z"), ("N", "a.b"), ("N", "a"), ("G", "b"), ("N", "b"),
    ]  # fmt: skip
    assert view.egress == view.ingress


def test_each_direction_has_its_policies() -> None:
    there = world(
        policy("in", selector="all()", types=["Ingress"]),
        policy("out", selector="all()", types=["Egress"]),
        policy("both", selector="all()", types=["Egress", "Ingress"]),
        policy("unsaid", selector="all()"),
    )
    (view,) = views(there)
    assert [key.name for key in view.ingress] == ["both", "in", "unsaid"]
    assert [key.name for key in view.egress] == ["both", "out", "unsaid"]


def test_a_tier_ends_in_deny_unless_it_says_pass() -> None:
    there = world(global_policy("p", tier="t", **ALL))
    assert views(there)[0].ends_in_deny
    there.put(tier("t", 1, "Pass"))
    assert not views(there)[0].ends_in_deny
    there.put(tier("t", 1, "Whatever"))
    assert views(there)[0].ends_in_deny
    there.put(tier("t", 1, "Pass"))
    there.remove(ResourceKey("Tier", "t"))
    assert views(there)[0].ends_in_deny


def test_a_policy_may_move_to_another_tier_and_place() -> None:
    there = world(tier("one", 1), tier("two", 2), policy("p", tier="one", **ALL),
                  policy("q", tier="two", **ALL))  # fmt: skip
    assert [view.name for view in views(there)] == ["one", "two"]
    changes = there.put(policy("p", tier="two", order=1, **ALL))
    (view,) = views(there)
    assert [key.name for key in view.ingress] == ["p", "q"]
    assert not changes.sets
    there.put(policy("p", tier="two", order=1, selector="app == 'b'"))
    assert [key.name for key in views(there)[0].ingress] == ["q"]


def test_only_endpoints_that_the_policy_selects_are_told() -> None:
    others = [pod(f"o{n}", f"10.0.1.{n}", {"app": "o"}) for n in range(10)]
    there = world(*others, policy("o", selector="app == 'o'"))
    changes = there.put(policy("p", selector="app == 'a'"))
    assert set(changes.endpoints) == {pod_key("a")}
    changes = there.put(policy("p", selector="app == 'a'", ingress=[]))
    assert not changes
    changes = there.put(tier("default", 7))
    assert not changes.endpoints
