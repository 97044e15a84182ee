"""What others took from a native table, or put into it, is written again. Pure."""

from __future__ import annotations

from itertools import product

import pytest

from linux.nftables.dump import Actual
from linux.nftables.expressions import Family
from linux.nftables.messages import Hook
from linux.nftables.plan import Change, DesiredTable, Plan
from linux.nftables.port_sets import PortSet
from linux.nftables.rules import Packed

HASHES = ("to-1", "to-2", "drop")
RULES = Packed(HASHES, (b"",) * len(HASHES))
HOOK = Hook("filter", 2, 0)
FAMILIES: tuple[Family, ...] = (4, 6)


def planned(have: dict[str, tuple[Hook | None, tuple[str, ...]]], hook: Hook | None) -> list[str]:
    wanted, plan = DesiredTable({"cali-x": (hook, RULES)}), Plan("calico")
    plan.make([Change(4, wanted, Actual(True, have), ["cali-x"], [])])
    return plan.written


@pytest.mark.parametrize("hook", [None, HOOK])
def test_a_chain_that_differs_in_anything_is_written(hook: Hook | None) -> None:
    """Above all a drop at its end that is lost, and an accept of others in front."""
    assert planned({"cali-x": (hook, HASHES)}, hook) == []
    assert planned({}, hook) == ["cali-x"]
    for kept in product([True, False], repeat=len(HASHES)):
        rules = tuple(name for name, stays in zip(HASHES, kept, strict=True) if stays)
        for place in range(len(rules) + 1):
            found = (*rules[:place], "", *rules[place:])
            assert planned({"cali-x": (hook, found)}, hook) == ["cali-x"]
        if rules != HASHES:
            assert planned({"cali-x": (hook, rules)}, hook) == ["cali-x"]
    assert planned({"cali-x": (hook, HASHES[::-1])}, hook) == ["cali-x"]


@pytest.mark.parametrize("other", [None, Hook("filter", 1, 0), Hook("filter", 2, -300)])
def test_a_chain_that_the_kernel_calls_elsewhere_is_made_anew(other: Hook | None) -> None:
    assert planned({"cali-x": (other, HASHES)}, HOOK) == ["cali-x"]


def test_a_map_goes_in_a_batch_after_that_of_its_rules() -> None:
    plan = Plan("calico")
    have = Actual(True, {"cali-x": (None, HASHES), "old": (None, HASHES)}, {"where": {"a": "old"}})
    plan.make([Change(4, DesiredTable(), have, ["cali-x", "old"], [])])
    (first, middle), (again, end) = plan.parts(1 << 20)
    assert (first, middle, end) == (0, again, len(plan.requests))
    assert plan.names[middle:] == ["remove map where", "remove chain cali-x", "remove chain old"]
    assert all(name.startswith("empty chain") for name in plan.names[:middle])


def test_an_interface_leads_to_a_new_chain_a_batch_later() -> None:
    """A packet that is inside the rules has none of the new chain's, and would pass its end."""
    old = {"root": (None, HASHES), "old": (None, HASHES)}
    plan, changes = Plan("calico"), []
    for family in FAMILIES:
        maps = {"where": {"a": "old", "b": "new"}}
        wanted = DesiredTable({**dict.fromkeys(old, (None, RULES)), "new": (None, RULES)}, maps)
        actual = Actual(True, dict(old), {"where": {"a": "old"}})
        elements = [("where", "a"), ("where", "b")]
        changes.append(Change(family, wanted, actual, ["new"], elements))
    plan.make(changes)
    (_, middle), (_, end) = plan.parts(1 << 20)
    assert set(plan.names[:middle]) == {"make chain new", "write chain new"}
    assert plan.names[middle:end] == ["change map where"] * 2


@pytest.mark.parametrize("asked", [False, True])
def test_all_is_one_batch_where_no_packet_can_ask(asked: bool) -> None:
    """The first write of all, and an element that comes back to a chain that stands."""
    wanted = DesiredTable({"old": (None, RULES)}, {"where": {"a": "old"}})
    plan = Plan("calico")
    actual = Actual(True, {"old": (None, HASHES)}, {"where": {}}) if asked else Actual()
    plan.make([Change(4, wanted, actual, ["old"], [("where", "a")])])
    assert plan.parts(1 << 20) == [(0, len(plan.requests))]
    assert plan.names[-1] == "change map where"


def test_a_set_of_ports_is_made_a_batch_before_its_rules_and_removed_a_batch_after() -> None:
    ports = PortSet(((80, 80), (443, 443)))
    asking = Packed(HASHES, RULES.rules, {ports.name: ports})
    plan, changes = Plan("calico"), []
    for family in FAMILIES:
        have = Actual(True, {"policy": (None, ("other",))}, port_sets={"ports-1_3"})
        wanted = DesiredTable({"policy": (None, asking)})
        changes.append(Change(family, wanted, have, ["policy"], [], ["ports-1_3"]))
    plan.make(changes)
    (_, made), (_, written), (_, end) = plan.parts(1 << 20)
    assert set(plan.names[:made]) == {"make set ports-80_443"}
    assert set(plan.names[made:written]) == {"empty chain policy", "write chain policy"}
    assert plan.names[written:end] == ["remove set ports-1_3"] * 2
    assert all(change.actual.port_sets == {"ports-80_443"} for change in changes)
