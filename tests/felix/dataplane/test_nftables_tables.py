"""NFD-1 to NFD-4: the back end as the rule book and the main loop use it, on a real kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import pytest

from felix.calc.policy_model import EndpointPolicy, SetKind, TierView
from felix.dataplane.rules.chain_store import ChainStore
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.rules.nftables import NftTables, open_sets
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.model import Accept, Chain, Drop, InSet, Mark, Rule, Side
from felix.rules.static import tables
from libcalico.model.keys import ResourceKey
from linux.nftables import NamedSets
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG
from tests.support.rulebook import WrittenBook

FAMILIES = frozenset({4, 6})
WEB = ResourceKey("GlobalNetworkPolicy", "web")
OPEN = EndpointPolicy((TierView("default", (WEB,), (WEB,)),), ("kns.default",))
NEEDS_A_SET = Chain("cali-pi-web", (Rule(Accept(), (InSet(Side.SOURCE, "cali40s:web"),)),))


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nfd") as space, space.entered():
        yield space


def story(told: Callable[[NftTables, Sets, ChainStore], Awaitable[None]]) -> None:
    async def run() -> None:
        rules, sets = NftTables(FAMILIES), Sets(FAMILIES, 100, open_sets(FAMILIES))
        settings = RuleSettings()
        for family in (4, 6):
            rules.want(family, tables(family, settings, Facts(hosts=False)))
        book = WrittenBook(rules.places, settings, rules.dispatch)
        book.write_all()
        try:
            await told(rules, sets, book)
        finally:
            rules.close()
            sets.close()

    asyncio.run(run())


def test_a_pod_costs_two_chains_and_two_elements_a_family(space: Namespace) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        assert await rules.commit() == {}
        for number in range(50):
            book.set_endpoint(f"cali{number}", OPEN)
        assert await rules.commit() == {}
        assert (rules.saves, rules.restores) == (1, 3)
        before = rules.chains
        book.set_endpoint("cali77", OPEN)
        assert await rules.commit() == {}
        assert rules.restores == 5
        assert rules.chains == before + 4
        dispatch = space.run("nft", "list", "map", "ip6", "calico", "cali-to-wl-dispatch")
        assert '"cali77" : goto filter-cali-tw-cali77' in dispatch
        book.remove_endpoint("cali77")
        assert await rules.commit() == {}
        assert rules.chains == before
        assert "cali77" not in space.run("nft", "list", "ruleset")
        assert await rules.commit() == {}
        assert rules.restores == 6
        assert not await rules.read_back()
        assert rules.drifted == 0

    story(told)


def test_an_interface_that_cannot_exist_holds_nobody_up(space: Namespace) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        book.set_endpoint("cali-much-too-long-for-a-link", OPEN)
        book.set_endpoint("cali1", OPEN)
        assert await rules.commit() == {}
        book.remove_endpoint("cali-much-too-long-for-a-link")
        assert await rules.commit() == {}
        dispatch = space.run("nft", "list", "map", "ip", "calico", "cali-from-wl-dispatch")
        assert dispatch.count("goto") == 1

    story(told)


def test_a_flushed_rule_set_comes_back_with_its_sets(space: Namespace) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        sets.want("s:web", SetKind.NETS, {"10.0.0.1", "10.0.0.0/24", "fd00::1"})
        assert await sets.commit() == {}
        rules.places[4, "filter"].want(NEEDS_A_SET)
        assert await rules.commit() == {}
        space.run("nft", "flush", "ruleset")
        # As the loop meets it, either by a write ...
        rules.places[4, "filter"].want(Chain("cali-other", (Rule(Drop()),)))
        failures = await rules.commit()
        assert failures
        assert rules.refused == {}, "the chain is not to blame for the set that is gone"
        assert rules.take_lost()
        assert not rules.take_lost()
        sets.forget()
        assert await sets.commit() == {}
        assert await rules.commit() == {}
        assert "10.0.0.0/24" in space.run("nft", "list", "set", "ip", "calico", "cali40s-web")
        # ... or by reading back.
        space.run("nft", "flush", "ruleset")
        assert await rules.read_back()
        assert rules.take_lost()
        sets.forget()
        assert await sets.commit() == {}
        assert await rules.commit() == {}
        assert not await rules.read_back()
        assert rules.drifted > 0

    story(told)


def test_a_chain_that_the_kernel_refuses_is_named_once_it_is_sure(space: Namespace) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        assert await rules.commit() == {}
        place = (4, "filter")
        rules.places[place].want(NEEDS_A_SET)
        assert await rules.commit()
        assert rules.refused == {}, "the set may have been taken away: it is made again first"
        assert await rules.commit()
        assert rules.refused == {place: {"cali-pi-web": "No such file or directory"}}
        assert await rules.accepts(place, [NEEDS_A_SET]) == frozenset()
        rules.places[place].want(Chain("cali-pi-web", (Rule(Drop(), (Mark(1, 1),)),)))
        assert await rules.commit() == {}
        assert rules.refused == {}
        sets.want("s:web", SetKind.NETS, {"10.0.0.1"})
        assert await sets.commit() == {}
        assert await rules.accepts(place, [NEEDS_A_SET]) == {"cali-pi-web"}

    story(told)


def test_counters_are_told_by_the_models_names(space: Namespace) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        book.set_endpoint("cali1", OPEN)
        assert await rules.commit() == {}
        found = await rules.counters(4, "filter", ["cali-fw-cali1", "cali-none"])
        assert found.keys() == {"cali-fw-cali1"}
        assert all(comment.startswith("cali:") for _, _, comment in found["cali-fw-cali1"])
        assert any("Start of tier default" in comment for _, _, comment in found["cali-fw-cali1"])

    story(told)


def test_other_prefixes_change_nothing_in_the_maps(space: Namespace) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        book.set_endpoint("cali1", OPEN)
        assert await rules.commit() == {}
        book.configure(RuleSettings(prefixes=("cali", "tap")))
        assert await rules.commit() == {}
        assert '"cali1"' in space.run("nft", "list", "map", "ip", "calico", "cali-to-wl-dispatch")

    story(told)


def test_nothing_is_said_to_be_written_before_a_change_of_others_was_looked_at(
    space: Namespace,
) -> None:
    async def told(rules: NftTables, sets: Sets, book: ChainStore) -> None:
        heard = asyncio.Event()
        rules.watch(cast("NamedSets", sets._kernel), heard.set)
        book.set_endpoint("cali1", OPEN)
        assert await rules.commit() == {}
        before = space.run("nft", "list", "chain", "ip", "calico", "filter-FORWARD")
        for found in ({"filter-FORWARD"}, {"filter-FORWARD"}):
            heard.clear()
            space.run("nft", "flush", "chain", "ip", "calico", "filter-FORWARD")
            await asyncio.wait_for(heard.wait(), HANG)
            book.set_endpoint("cali2", OPEN)
            assert not rules.commit_now()
            assert await rules.commit() == {}
            assert space.run("nft", "list", "chain", "ip", "calico", "filter-FORWARD") == before
            assert rules.drift.lasting == (found if rules.drifted == 2 else set())
        book.set_endpoint("cali3", OPEN)
        assert rules.commit_now()

    story(told)
