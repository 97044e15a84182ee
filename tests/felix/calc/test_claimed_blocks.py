"""Blocks by their claims, and borrowed addresses by the endpoints, in any order."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.blocks import BlockFacts
from felix.calc.sets.claimed_blocks import ClaimedBlocks, IPNetwork
from felix.calc.sets.places import EndpointPlaces
from felix.calc.sets.population import Population
from libcalico.model.resources.ipam import BlockAffinity

NODES = ("me", "a", "b")
CIDRS: list[IPNetwork] = [
    *(ip_network(f"10.65.{n}.0/29") for n in range(3)),
    ip_network("10.65.3.1/32"),
    ip_network("fd65::/125"),
    ip_network("10.77.0.0/19"),
]
TEXTS = ["10.65.0.1", "10.65.0.2", "10.65.1.1", "10.65.2.1", "10.65.3.1", "10.77.0.1", "fd65::1"]
CONFIRMED = BlockAffinity()
STATES = st.sampled_from([None, CONFIRMED, BlockAffinity(state="pending"), BlockAffinity("", True)])
ADDRESSES = st.lists(st.sampled_from(TEXTS), max_size=2, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from(NODES), st.sampled_from(CIDRS), STATES),
        st.tuples(st.just("pod"), st.integers(0, 4), st.sampled_from(NODES), ADDRESSES),
        st.tuples(st.just("gone"), st.integers(0, 4)),
        st.tuples(st.just("tunnels"), st.sampled_from(NODES), ADDRESSES),
        st.tuples(st.just("set"), st.sampled_from(TEXTS)),
        st.tuples(st.just("start")),
    ),
    max_size=25,
)


class World:
    """Blocks with the population that feeds them, and the plain truth beside."""

    def __init__(self) -> None:
        self.population = Population()
        self.places = EndpointPlaces(self.population)
        self.heard: dict[IPNetwork, BlockFacts] = {}
        self.blocks = ClaimedBlocks("me", self.places, self._changed)
        self.claims: dict[tuple[str, IPNetwork], BlockAffinity] = {}
        self.pods: dict[int, tuple[str, list[str]]] = {}
        self.ends: dict[str, list[str]] = {}

    def _changed(self, cidr: IPNetwork) -> None:
        facts = self.blocks.facts.get(cidr)
        if facts is None:
            self.heard.pop(cidr)
        else:
            assert self.heard.get(cidr) != facts, "nothing is said twice"
            self.heard[cidr] = facts

    def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("claim", host, cidr, value):
                self.claim(host, cidr, value)
            case ("pod", number, node, addresses):
                self.pod(number, node, *addresses)
            case ("gone", number):
                self.gone(number)
            case ("tunnels", node, addresses):
                self.ends[node] = addresses
                self.blocks.tunnels(node, map(ip_address, addresses))
            case ("set", text):
                if text not in self.population.numbers:
                    label_set = self.population.label_sets.intern({"net": text}, ())
                    self.population.put(text, label_set, text, ())
            case ("start",):
                self.blocks.start()

    def claim(self, host: str, cidr: IPNetwork, value: BlockAffinity | None = CONFIRMED) -> None:
        self.blocks.claim(host, cidr, value)
        self.claims.pop((host, cidr), None)
        if value is not None:
            self.claims[host, cidr] = value

    def pod(self, name: int, node: str, *addresses: str) -> None:
        before = self.places.members(name)
        number = self.population.numbers.get(name)
        members = addresses[0] if len(addresses) == 1 else addresses
        if number is None:
            label_set = self.population.label_sets.intern({"pod": str(name)}, ())
            number = self.population.put(name, label_set, members, ())
        else:
            self.population.equip(number, members, ())
        self.places.put(number, node, before)
        self.pods[name] = node, list(addresses)

    def gone(self, name: int) -> None:
        if self.pods.pop(name, None) is not None:
            before = self.places.members(name)
            self.population.remove(name)
            self.places.left(before)

    def truth(self) -> dict[IPNetwork, BlockFacts]:
        """The facts as a plain look at everything gives them."""
        found = {}
        for cidr in {cidr for _, cidr in self.claims} | self.blocks.left:
            claims = {h: c for (h, each), c in self.claims.items() if each == cidr}
            owners = {host for host, c in claims.items() if c.confirmed and not c.deleted}
            users = set()
            for text in TEXTS:
                if ip_address(text) in cidr and (user := self.user(text, cidr, owners)):
                    users.add((ip_address(text), user))
            owner = f"host:{min(owners)}" if owners else ""
            found[cidr] = BlockFacts(owner, frozenset(users))
        return found

    def user(self, text: str, cidr: IPNetwork, owners: set[str]) -> str:
        if cidr.num_addresses > 4096:
            return ""
        ends = {node for node, addresses in self.ends.items() if text in addresses}
        pods = {node for node, addresses in self.pods.values() if text in addresses}
        if using := (ends | pods) & owners:
            return "me" if cidr.num_addresses == 1 and using == {"me"} else ""
        return min(ends or pods & {"me"} or pods, default="")


@given(STEPS)
def test_what_is_known_is_what_a_fresh_look_finds(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in steps:
        world.step(step)
        if world.blocks.started:
            assert world.blocks.facts == world.truth()
        assert world.heard == world.blocks.facts
    world.blocks.start()
    assert world.blocks.facts == world.heard == world.truth()
    borrowed = {cidr: dict(facts.users) for cidr, facts in world.heard.items() if facts.users}
    assert world.blocks.borrowed == borrowed


def started() -> World:
    world = World()
    world.claim("a", CIDRS[0])
    world.blocks.start()
    return world


def test_who_may_borrow() -> None:
    world = started()
    lent = ip_address("10.65.0.1")
    world.pod(1, "b", "10.65.0.1")
    assert world.blocks.borrowed == {CIDRS[0]: {lent: "b"}}
    assert world.blocks.take_news() == {CIDRS[0]}
    world.pod(2, "a", "10.65.0.1")
    assert world.blocks.borrowed == {}, "CLB-2"
    world.gone(2)
    world.blocks.tunnels("me", [lent])
    assert world.blocks.borrowed == {CIDRS[0]: {lent: "me"}}, "CLB-3"
    world.blocks.tunnels("a", [lent])
    assert world.blocks.borrowed == {}, "the owner's tunnel counts as its pod does"
    assert world.blocks.take_news() == {CIDRS[0]}
    assert world.blocks.take_news() == set()


def test_a_pod_draws_nothing_to_an_address_in_no_block() -> None:
    world = started()
    world.pod(1, "b", "192.0.2.1")
    assert world.blocks.homeless(world.blocks.survey())
    assert world.blocks.borrowed == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_claim_leaves_behind_is_known_until_its_last_pod_is_gone(restarted: bool) -> None:
    world = started()
    for number in (1, 2):
        world.pod(number, "a", f"10.65.0.{number}")
    assert world.blocks.facts == {CIDRS[0]: BlockFacts("host:a", frozenset())}
    world.claim("a", CIDRS[0], None)
    if restarted:
        fresh = World()
        fresh.pod(1, "a", "10.65.0.1")
        fresh.pod(2, "a", "10.65.0.2")
        used = fresh.blocks.survey()
        assert fresh.blocks.homeless(used)
        fresh.blocks.start([CIDRS[0], CIDRS[1]], used)
        world = fresh
    users = frozenset((ip_address(f"10.65.0.{n}"), "a") for n in (1, 2))
    assert world.blocks.facts == {CIDRS[0]: BlockFacts("", users)}
    world.gone(1)
    assert world.blocks.left == {CIDRS[0]}
    world.gone(2)
    assert (world.blocks.left, world.blocks.facts) == (set(), {})


def test_a_claim_that_is_written_again_ends_it() -> None:
    world = started()
    world.pod(1, "a", "10.65.0.1")
    world.claim("a", CIDRS[0], None)
    assert world.blocks.left
    world.claim("a", CIDRS[0])
    assert not world.blocks.left
    assert world.blocks.facts == {CIDRS[0]: BlockFacts("host:a", frozenset())}


def test_most_endpoints_cost_nothing_but_their_number() -> None:
    world = World()
    cidr = ip_network("10.66.0.0/26")
    world.claim("a", cidr)
    for number in range(64):
        world.pod(number, "a", str(cidr[number]))
    assert world.blocks.survey() == [], "none is looked at more closely"
    world.blocks.start()
    assert world.population.nodes.itemsize == 4
