"""What vanishes from a Node for a moment stays in use; for longer, or elsewhere, it does not."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.node_grace import HOLD, NodeTable, named
from felix.calc.nodes import NodeFacts, Vtep

OWN, NET, END = ip_address("10.99.1.2"), ip_network("10.99.1.0/24"), ip_address("10.65.1.2")
OTHER = ip_address("10.99.1.9")
TUNNEL = ip_address("10.65.8.2")
FULL = NodeFacts(frozenset({OWN}), (NET,), TUNNEL, (Vtep(OWN, END, "66:00:00:00:00:02"),))
BARE = NodeFacts(macs=("66:00:00:00:00:02", ""))


def test_a_blip_is_not_seen() -> None:
    table = NodeTable("me")
    assert table.store("a", FULL) == {"a"}
    assert table.expire(0.0) == (set(), None)
    table.store("a", BARE)
    assert table.used["a"] == NodeFacts(FULL.addresses, (NET,), TUNNEL, FULL.vteps, BARE.macs)
    assert table.expire(100.0) == (set(), HOLD)
    table.store("a", FULL)
    assert table.used["a"] == FULL
    assert table.expire(100.0 + HOLD) == (set(), None)


def test_what_does_not_come_back_is_given_up() -> None:
    table = NodeTable("me")
    table.store("a", FULL)
    table.store("a", NodeFacts(FULL.addresses, (NET,)))
    assert table.used["a"] == FULL
    assert table.expire(7.0) == (set(), HOLD)
    # More of it vanishes meanwhile: the time that began goes on.
    table.store("a", BARE)
    assert table.expire(7.0 + HOLD / 2) == (set(), HOLD / 2)
    assert table.expire(7.0 + HOLD) == ({"a"}, None)
    assert table.used["a"] == BARE


def test_another_address_takes_the_old_ones_place_at_once() -> None:
    table = NodeTable("me")
    table.store("a", FULL)
    moved = NodeFacts(frozenset({OTHER}), (NET,))
    assert table.store("a", moved) == {"a"}
    assert table.used["a"] == moved, "its tunnels ended at the old address"


def test_what_another_node_has_is_not_held() -> None:
    for first in ("a", "b"):
        table = NodeTable("me")
        table.store("a", FULL)
        steps = {"a": BARE, "b": NodeFacts(frozenset({OTHER}), (NET,), TUNNEL)}
        for name in (first, *(steps.keys() - {first})):
            table.store(name, steps[name])
        assert table.used == steps, first
        assert table.expire(0.0) == (set(), None)


def test_a_deleted_node_and_this_one_are_never_held() -> None:
    table = NodeTable("me")
    for name in ("a", "me"):
        table.store(name, FULL)
    assert table.store("a", None) == {"a"}
    assert table.store("me", BARE) == {"me"}
    assert table.used == {"me": BARE}


FACTS = st.builds(
    lambda own, ipip, end: NodeFacts(
        frozenset({own} - {None}),
        (NET,) if own else (),
        TUNNEL if ipip else None,
        (Vtep(own, END, "m"),) if own and end else (),
    ),
    st.sampled_from([None, OWN, OTHER]),
    st.booleans(),
    st.booleans(),
)
STEPS = st.tuples(st.sampled_from("abc"), st.none() | FACTS, st.floats(0, 3))


@given(st.lists(STEPS, max_size=25))
def test_in_the_end_it_is_what_is_stored(steps: list[tuple[str, NodeFacts | None, float]]) -> None:
    """ABS-1, ABS-2; and every change of what is used is told."""
    table, now = NodeTable("c"), 0.0
    stored: dict[str, NodeFacts] = {}
    seen: dict[str, NodeFacts] = {}
    for name, facts, passed in steps:
        now += passed
        if facts is None:
            stored.pop(name, None)
        else:
            stored[name] = facts
        for changed in (table.store(name, facts), table.expire(now)[0]):
            for each in changed:
                seen.pop(each, None)
                if each in table.used:
                    seen[each] = table.used[each]
        assert table.used == seen
        for held, used in table.used.items():
            extra = named(used) - named(stored[held])
            others = [each for other, each in stored.items() if other != held]
            assert not any(extra & named(each) for each in others)
    table.expire(now)
    table.expire(now + HOLD)
    assert table.used == stored
