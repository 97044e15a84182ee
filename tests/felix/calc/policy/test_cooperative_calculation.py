"""Work in slices: whatever comes between two of them, the end is as if all had come at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.policy import PolicyEngine
from felix.calc.policy import engine as engines
from felix.calc.sets import search, set_table
from libcalico.model import ResourceKey
from tests.felix.calc.policy.test_model import final, objects
from tests.felix.policy_brute import calculate
from tests.felix.policy_objects import (
    ME,
    Told,
    World,
    allow,
    namespace,
    pod,
    pod_key,
    policy,
)
from tests.size import examples

Batches = list[list[tuple[ResourceKey, Any]]]


@pytest.fixture(scope="module", autouse=True)
def _smallest_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "SLICE", 0)
        patch.setattr(search, "FEW", 0)
        for name in ("PORTION", "MOVED", "TOUCHED", "TOLD"):
            patch.setattr(set_table, name, 1)
        patch.setattr(search, "PORTION", 1)
        yield


steps_between = st.lists(st.integers(0, 6), min_size=1, max_size=8)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(st.lists(objects(), min_size=1, max_size=4), min_size=2, max_size=12),
    steps_between,
    st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_updates_between_slices_end_as_the_model_says(
    batches: Batches, between: list[int], flushes: list[bool]
) -> None:
    engine, told = PolicyEngine(ME), Told()
    engine.start()
    count = 0
    for number, batch in enumerate(batches):
        for key, value in batch:
            engine.update(key, value)
            count += 1
            # Another user of the loop settled so far, then was called away.
            for _, _slice in zip(range(between[count % len(between)]), engine.settle(),
                                 strict=False):  # fmt: skip
                pass
        if flushes[number % len(flushes)]:
            told.apply(engine.flush())
            assert told.sets == {name: engine.members(name) for name in engine.sets}
            assert told == calculate(final(batches[: number + 1]))
    told.apply(engine.flush())
    assert told == calculate(final(batches))
    assert not engine.dirty


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.lists(objects(), min_size=1, max_size=4), min_size=2, max_size=12))
def test_updates_between_the_slices_of_a_flush_are_for_the_next(batches: Batches) -> None:
    """Each flush is legal by itself (`Told.apply`), whatever comes while it is told."""
    engine, told = PolicyEngine(ME), Told()
    engine.start()
    words = iter([word for batch in batches for word in batch])
    left = True
    while left:
        steps = engine.flushing()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                told.apply(end.value)
                break
            for key, value in [word for word in [next(words, None)] if word is not None]:
                engine.update(key, value)
        word = next(words, None)
        left = word is not None
        if word is not None:
            engine.update(*word)
    told.apply(engine.flush())
    assert told == calculate(final(batches))
    assert not engine.dirty


PEERS = [allow(source={"selector": "app == 'x'"})]
HERE = pod("here", "10.0.0.100", {"app": "here"})
NEED = policy("p", selector="app == 'here'", types=["Ingress"], ingress=PEERS)


def others(count: int, **labels: str) -> list[Any]:
    given_ = {"app": "x", **labels}
    return [pod(f"p{n}", f"10.1.0.{n}", {**given_, "id": str(n)}, node="n2") for n in range(count)]


def some(engine: PolicyEngine, slices: int) -> None:
    for _, _slice in zip(range(slices), engine.settle(), strict=False):
        pass


@pytest.mark.parametrize("slices", range(0, 40, 3))
def test_a_set_that_is_being_filled_misses_nothing(slices: int) -> None:
    world = World(namespace("default"), HERE, *others(10))
    engine, told = world.engine, world.told
    engine.update(*NEED)
    some(engine, slices)
    engine.update(pod_key("p0"), None)
    engine.update(*pod("p1", "10.1.0.1", {"app": "y"}, node="n2"))
    engine.update(*pod("p2", "10.1.0.200", {"app": "x"}, node="n2"))
    engine.update(*pod("new", "10.1.0.201", {"app": "x"}, node="n2"))
    # An address of which one holder goes and another comes.
    engine.update(*pod("heir", "10.1.0.0", {"app": "x"}, node="n2"))
    told.apply(engine.flush())
    (members,) = told.sets.values()
    assert members == {f"10.1.0.{n}" for n in (0, *range(3, 10), 200, 201)}


@pytest.mark.parametrize("slices", range(40))
def test_an_item_that_moves_while_its_set_is_filled_stays_a_member(slices: int) -> None:
    """It matched before and after, with other labels: what was searched so far lacks it."""
    peers = [allow(source={"selector": "has(app) && id != 'none'"})]
    need = policy("p", selector="app == 'here'", types=["Ingress"], ingress=peers)
    world = World(namespace("default"), *others(6))
    engine, told = world.engine, world.told
    engine.update(*need)
    engine.update(*HERE)
    some(engine, slices)
    for number in range(6):
        labels = {"app": f"new{5 - number}", "id": str(number)}
        engine.update(*pod(f"p{number}", f"10.1.0.{number}", labels, node="n2"))
    # Their numbers are free again, for label sets that the selector does not take.
    for number in range(6):
        engine.update(*pod(f"q{number}", f"10.2.0.{number}", {"id": f"q{number}"}, node="n2"))
    told.apply(engine.flush())
    (members,) = told.sets.values()
    assert members == {"10.0.0.100", *(f"10.1.0.{n}" for n in range(6))}


@pytest.mark.parametrize("slices", range(0, 30, 3))
def test_a_namespaces_label_that_changes_twice_on_its_way(slices: int) -> None:
    need = policy("p", selector="app == 'here'", types=["Ingress"], ingress=[
        allow(source={"namespaceSelector": "team == 'red'"})])  # fmt: skip
    world = World(namespace("default", team="red"), HERE, need, *others(8))
    engine, told = world.engine, world.told
    (before,) = ({*members} for members in told.sets.values())
    assert len(before) == 9
    engine.update(*namespace("default", team="blue"))
    some(engine, slices)
    engine.update(*pod("late", "10.1.0.99", {"app": "x", "id": "0"}, node="n2"))
    engine.update(*namespace("default", team="red", more="x"))
    some(engine, slices)
    engine.update(pod_key("p3"), None)
    told.apply(engine.flush())
    (members,) = told.sets.values()
    assert members == before - {"10.1.0.3"} | {"10.1.0.99"}


def test_a_set_that_nobody_needs_any_more_is_not_filled() -> None:
    world = World(namespace("default"), HERE, *others(10))
    engine = world.engine
    engine.update(*NEED)
    some(engine, 2)
    engine.update(NEED[0], None)
    assert not engine.flush()
    assert not engine.sets
    world.put(NEED)
    (members,) = world.told.sets.values()
    assert len(members) == 10


def test_two_who_settle_at_once_do_not_harm_each_other() -> None:
    world = World(namespace("default"), HERE, *others(10))
    engine = world.engine
    engine.update(*NEED)
    one, other = engine.settle(), engine.settle()
    for _ in range(50):
        next(one, None)
        next(other, None)
    world.told.apply(engine.flush())
    (members,) = world.told.sets.values()
    assert len(members) == 10
