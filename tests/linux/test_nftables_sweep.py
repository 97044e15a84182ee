"""What nobody wants stays until a sweep, harms nobody, and is then gone to the last element."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from linux.nftables import Ruleset
from linux.nftables import statements as st
from tests.linux.test_nftables import INPUT, chain, story
from tests.support.netns import Namespace, network_namespace

PODS = tuple(f"cali{number}" for number in range(6))


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("nft") as space, space.entered():
        yield space


def want(rules: Ruleset, *pods: str) -> None:
    for family in (4, 6):
        rules.want_map(family, "where")
        rules.want(family, "INPUT", chain(b""), INPUT)
        for pod in PODS:
            if pod in pods:
                rules.want(family, f"policy-{pod}", chain(st.verdict(st.DROP)))
                rules.want(family, pod, chain(st.verdict(st.JUMP, f"policy-{pod}")))
                rules.want_element(family, "where", pod, pod)
            else:
                rules.unwant_element(family, "where", pod)
                rules.unwant(family, pod)
                rules.unwant(family, f"policy-{pod}")


def listed(space: Namespace) -> str:
    return str(space.run("nft", "list", "ruleset"))


async def commit(rules: Ruleset, *, sweep: bool) -> None:
    if not rules.commit_now(sweep=sweep):
        await rules.commit(sweep=sweep)


def test_what_nobody_wants_stays_until_a_sweep(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want(rules, *PODS)
        await commit(rules, sweep=False)
        full = listed(space)
        want(rules, *PODS[2:])
        assert not rules.garbage
        commits = rules.commits
        await commit(rules, sweep=False)
        assert (rules.garbage, rules.dirty, rules.commits) == (True, False, commits)
        assert listed(space) == full
        assert await rules.refresh() == ()
        await commit(rules, sweep=False)
        assert listed(space) == full, "it was known to be there"

        await commit(rules, sweep=True)
        assert (rules.garbage, rules.commits) == (False, commits + 1)
        assert not {*PODS[:2]} & set(listed(space).replace('"', " ").replace("-", " ").split())
        assert await rules.refresh() == ()

    story(told)


def test_what_is_wanted_again_before_the_sweep_is_not_taken_away(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want(rules, *PODS)
        await commit(rules, sweep=False)
        full = listed(space)
        want(rules)
        await commit(rules, sweep=False)
        want(rules, *PODS)
        for family in (4, 6):
            rules.want(family, "policy-cali0", chain(b"", comment="another"))
        await commit(rules, sweep=False)
        assert not rules.garbage
        assert "another" in listed(space)
        want(rules, *PODS)
        await commit(rules, sweep=True)
        assert listed(space) == full

    story(told)


def test_what_the_kernel_calls_goes_at_once(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want(rules, "cali0")
        await commit(rules, sweep=False)
        for family in (4, 6):
            rules.unwant(family, "INPUT")
        await commit(rules, sweep=False)
        assert "hook input" not in listed(space)
        assert not rules.garbage

    story(told)


def test_a_sweep_that_fails_comes_again(space: Namespace) -> None:
    async def told(rules: Ruleset) -> None:
        want(rules, *PODS)
        await commit(rules, sweep=False)
        want(rules, "cali1")
        await commit(rules, sweep=False)
        for table in ("ip mine", "ip6 mine"):
            space.run("nft", "flush", "table", *table.split())
            space.run("nft", "delete", "chain", *table.split(), "policy-cali2")
        assert not rules.commit_now(sweep=True)
        await rules.commit(sweep=True)
        assert not rules.garbage
        found = listed(space)
        with network_namespace("other") as other, other.entered(), Ruleset((4, 6), "mine") as fresh:
            want(fresh, "cali1")
            await fresh.commit()
            assert listed(other) == found

    story(told)


FOREIGN = {
    "a chain that asks a map": """
        add map ip mine foo { type ifname : verdict; }
        add chain ip mine bar
        add rule ip mine bar iifname vmap @foo
    """,
    "a map that leads to a chain of ours": """
        add map ip mine foo { type ifname : verdict; }
        add element ip mine foo { "eth7" : goto cali0 }
    """,
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_others_put_into_our_table_holds_nothing_up(space: Namespace, foreign: str) -> None:
    async def told(rules: Ruleset) -> None:
        want(rules, "cali0")
        await commit(rules, sweep=False)
        space.run("nft", "-f", "-", input=FOREIGN[foreign])
        await rules.refresh()
        want(rules, "cali1")
        await commit(rules, sweep=False)
        assert '"cali1" : goto cali1' in listed(space)
        await commit(rules, sweep=True)
        assert not {"foo", "bar", "cali0"} & set(listed(space).replace('"', " ").split())

    story(told)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_came_and_went_between_two_sweeps_the_rest_is_what_is_wanted(
    space: Namespace, seed: int
) -> None:
    dice = random.Random(seed)

    async def told(rules: Ruleset) -> None:
        pods: set[str] = set()
        for _ in range(60):
            pods.symmetric_difference_update(dice.sample(PODS, 2))
            want(rules, *pods)
            sweep = dice.random() < 0.2
            if dice.random() < 0.1:
                await rules.commit(refresh=True, sweep=sweep)
            else:
                await commit(rules, sweep=sweep)
            found = listed(space)
            assert all(f'"{pod}" : goto {pod}' in found for pod in pods)
            if sweep:
                assert found.count(" : goto ") == 2 * len(pods)
                assert found.count("chain ") == 2 * (1 + 2 * len(pods))

    story(told)
