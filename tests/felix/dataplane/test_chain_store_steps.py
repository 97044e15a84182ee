"""The wanted rules in steps: given up anywhere, gone on with later; no step holds the loop long."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.graph import Calculator
from felix.config.parameters import Config
from felix.dataplane.devices.mtu import IPIP
from felix.dataplane.rules.backend import Tables
from felix.dataplane.rules.desired import DesiredRules
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.turn.cooperative_steps import in_slices
from felix.rules.dispatch import Bins
from felix.rules.model import Chain, Rule
from libcalico.model import ResourceKey
from libcalico.model.codec import resource_from_tree
from tests.felix.policy_objects import ME, Object, allow, namespace, pod, policy
from tests.size import examples

FAMILIES = (4, 6)
TABLES = ("raw", "mangle", "nat", "filter")
MOST_STALL = 0.05
"""Seconds of CPU in one turn of the loop."""


class Target:
    """A table that keeps what is wanted in it."""

    def __init__(self) -> None:
        self.chains: dict[str, Chain] = {}

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        return iter(())

    def want(self, chain: Chain) -> None:
        self.chains[chain.name] = chain

    def unwant(self, name: str) -> None:
        self.chains.pop(name, None)


class Wanted:
    """The tables of a back end, as far as wanting goes."""

    def __init__(self) -> None:
        self.places = {(family, table): Target() for family in FAMILIES for table in TABLES}

    def dispatch(self, _family: int, *given_: Any) -> Bins:
        return Bins(*given_)

    def want(self, family: int, models: Mapping[str, Any]) -> None:
        pass

    @property
    def chains(self) -> dict[tuple[tuple[int, str], str], Any]:
        """Every chain; the order of what is unordered does not matter."""
        return {
            (place, name): frozenset(chain.rules) if chain.unordered else chain.rules
            for place, target in self.places.items()
            for name, chain in target.chains.items()
        }

    def check(self) -> None:
        """RBK-1: what a chain names is there."""
        for (_, table), target in self.places.items():
            for chain in target.chains.values():
                for rule in chain.rules:
                    goal = getattr(rule.action, "chain", "")
                    moving = goal.startswith(("cali-pi-", "cali-po-", "cali-pri-", "cali-pro-"))
                    assert not moving or goal in target.chains, (table, chain.name, goal)


class Node:
    """The calculation of one node and what it wants, without a kernel."""

    def __init__(self, *objects: Object) -> None:
        self.calc = Calculator(ME)
        self.config = Config()
        self.tables = Wanted()
        self.sets = Sets(frozenset(FAMILIES), 1 << 20, cast("Any", object()))
        self.desire = DesiredRules(frozenset(FAMILIES), cast("Tables", self.tables), self.sets)
        self.put(*objects)
        self.calc.in_sync = True

    def put(self, *objects: Object) -> None:
        for key, value in objects:
            self.calc.update(key, value)

    def update(self) -> Iterator[None]:
        listeners = frozenset({(IPIP, 0)})
        return self.desire.update(self.config, self.calc.take_changes(("cali",)), {}, listeners)

    def told(self) -> dict[str, frozenset[str]]:
        asyncio.run(self.sets._take())
        found: dict[str, set[str]] = {}
        for wanted in self.sets._desired.values():
            found.setdefault(wanted.set_id, set()).update(wanted.members)
        return {set_id: frozenset(members) for set_id, members in found.items()}


def some(steps: Iterator[None], count: int) -> bool:
    """The first steps only; returns whether that was all."""
    taken = sum(1 for _ in islice(steps, count))
    steps.close()  # type: ignore[attr-defined]
    return taken < count


def rule(name: str) -> Object:
    ingress = [allow(source={"selector": f"app == '{name}'"})]
    return policy(f"p{name}", selector="has(app)", ingress=ingress, types=["Ingress"])


PODS = [pod(f"here{n}", f"10.0.0.{n}", {"app": "ab"[n % 2]}) for n in range(3)]
OTHERS = [pod(f"there{n}", f"10.1.0.{n}", {"app": "ab"[n % 2]}, node="other") for n in range(4)]
RULES = [rule("a"), rule("b")]
AWAY: list[Object] = [(key, None) for key, _ in (*PODS, *OTHERS, *RULES)]
WORDS = st.sampled_from([*PODS, *OTHERS, *RULES, *AWAY, namespace("default", team="x")])


def test_sets_of_pools_and_nodes_are_told_when_one_of_them_changed() -> None:
    """A pod that comes costs the same beside five thousand nodes as beside none."""
    node = Node(namespace("default"), *others(2))
    list(node.update())
    assert node.told()["all-hosts-net"] == {"192.0.2.0", "192.0.2.1"}
    node.put(PODS[0])
    list(node.update())
    assert not any(change.set_id.startswith("all-") for change in node.sets._told)
    node.put(*others(3))
    list(node.update())
    assert node.told()["all-hosts-net"] == {"192.0.2.0", "192.0.2.1", "192.0.2.2"}


def others(count: int) -> list[Object]:
    """So many nodes, and a pool in IP-in-IP."""
    nodes = [(f"o{n}", "Node", {"bgp": {"ipv4Address": f"192.0.2.{n}"}}) for n in range(count)]
    pool = ("p", "IPPool", {"cidr": "10.0.0.0/8", "ipipMode": "Always"})
    return [
        (
            ResourceKey(kind, name),
            resource_from_tree({"kind": kind, "metadata": {"name": name}, "spec": spec}),
        )
        for name, kind, spec in (*nodes, pool)
    ]


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.tuples(WORDS, st.integers(0, 30)), min_size=1, max_size=12))
def test_what_was_given_up_is_made_good(story: list[tuple[Object, int]]) -> None:
    """DES-1, RBK-4: each update is given up after some steps, or comes to its end."""
    node = Node(namespace("default"), RULES[0], PODS[0])
    final = dict([namespace("default"), RULES[0], PODS[0]])
    for word, steps in story:
        node.put(word)
        final[word[0]] = word[1]
        if some(node.update(), steps):
            node.tables.check()
    for _ in node.update():
        pass
    node.tables.check()
    fresh = Node(*final.items())
    for _ in fresh.update():
        pass
    assert node.tables.chains == fresh.tables.chains
    assert node.told() == fresh.told()


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 12), WORDS), max_size=15))
def test_what_comes_between_two_steps_is_for_the_next_update(
    story: list[tuple[int, Object]],
) -> None:
    """Superseded while it is being told: legal at the end of each update, right in the end."""
    first = [namespace("default"), *RULES, *PODS, *OTHERS]
    node = Node(*first)
    final = dict(first)
    words = iter(story)
    waiting = next(words, None)
    while waiting is not None:
        for number, _ in enumerate(node.update()):
            if waiting is not None and number >= waiting[0]:
                node.put(waiting[1])
                final[waiting[1][0]] = waiting[1][1]
                waiting = next(words, None)
        node.tables.check()
        if waiting is not None:
            node.put(waiting[1])
            final[waiting[1][0]] = waiting[1][1]
            waiting = next(words, None)
    for _ in node.update():
        pass
    fresh = Node(*final.items())
    for _ in fresh.update():
        pass
    assert node.tables.chains == fresh.tables.chains
    assert node.told() == fresh.told()


def crowd(policies: int, pods: int) -> Node:
    everybody = [pod(f"c{n}", f"10.0.{n >> 8}.{n & 255}", {"app": f"{n % 5}"}) for n in range(pods)]
    rules = [
        policy(
            f"p{n}",
            selector="has(app)" if n % 2 else f"app == '{n % 5}'",
            ingress=[allow(source={"selector": f"x == '{n}'"}, destination={"ports": [n + 1]})],
            types=["Ingress"],
        )
        for n in range(policies)
    ]
    return Node(namespace("default"), *rules, *everybody)


def test_a_step_renders_one_thing() -> None:
    """DES-2, counted: the first rules of 300 policies and 40 endpoints."""
    node = crowd(300, 40)
    most = before = steps = 0
    for _ in node.update():
        steps += 1
        after = node.desire.book.renders if node.desire.book else 0
        most, before = max(most, after - before), after
    assert steps >= 300 + 40
    # The chains of a policy in both families, or those of all tables for host endpoints.
    assert most <= 16
    # Nothing is left, and nothing is done twice: two families, one chain that is named, and that
    # of two policies or more that always come together.
    assert before <= 2 * (300 + 150) + 2 * 40 + 60
    assert sum(1 for _ in node.update()) < 10


def test_the_loop_has_its_turn_while_the_first_rules_are_made() -> None:
    """DES-2, measured at a sixth of the size: CPU of this thread between two turns of another."""
    node = crowd(1600, 50)
    busy: list[float] = []

    async def other() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            busy.append(time.thread_time() - before)

    async def story() -> float:
        watcher = asyncio.create_task(other())
        await asyncio.sleep(0)
        began = time.thread_time()
        await in_slices(node.calc.policy.settle())
        await in_slices(node.update())
        spent = time.thread_time() - began
        watcher.cancel()
        return spent

    # What the tests have loaded is no work of felix's collector, and stays set aside.
    gc.collect()
    gc.freeze()
    spent = asyncio.run(story())
    assert spent > 2 * MOST_STALL, "too little work to say anything"
    assert max(busy) < MOST_STALL, f"{max(busy):.3f} s of {spent:.2f} s"


@pytest.mark.parametrize("steps", [1, 3])
def test_a_cancelled_task_gives_the_steps_up(steps: int) -> None:
    done: list[int] = []

    def work() -> Iterator[None]:
        try:
            for number in range(10):
                done.append(number)
                yield
        finally:
            done.append(-1)

    async def story() -> None:
        task = asyncio.create_task(in_slices(work(), seconds=0.0))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert done == [*range(steps), -1]


def test_a_list_of_policies_that_many_share_is_counted_once() -> None:
    """200 endpoints of a kind with a policy each: what each costs does not grow with the list."""
    node = crowd(200, 1)
    for _ in node.update():
        pass
    book = node.desire.book
    assert book is not None
    shared = book.endpoints["calic0"]
    before = book.renders
    for number in range(50):
        book.set_endpoint(f"calix{number}", shared)
    for _ in book.write():
        pass
    assert len(book._uses.kinds) == 1
    # Two chains each, and those of dispatch, told once in each family.
    assert book.renders - before <= 2 * 50 + 6 * len(FAMILIES)
    assert ResourceKey("Profile", "kns.default") in book._uses
