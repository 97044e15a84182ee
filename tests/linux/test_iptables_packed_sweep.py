"""PKD-1, PKD-3: what nobody wants any more is taken away without a program, and nothing else is."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Sequence

import pytest

from linux.iptables import Desired, Table
from linux.iptables.packed import Packer
from tests.linux.test_iptables_packed import Family, commit, grow, saved, wanted
from tests.support.netns import Namespace, network_namespace

PODS = 6


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, Namespace]]:
    with network_namespace("packed") as packed, network_namespace("restored") as restored:
        yield packed, restored


def without(*gone: int) -> Desired:
    """All pods but these."""
    names = [f"pod{number:011d}" for number in gone]
    full = wanted(PODS)

    def stays(text: str) -> bool:
        return not any(name in text for name in names)

    return Desired(
        chains={
            chain: tuple(filter(stays, rules))
            for chain, rules in full.chains.items()
            if stays(chain)
        },
        inserts=full.inserts,
        unordered=full.unordered,
        closed=full.closed,
    )


def ways(space: Namespace) -> list[int]:
    """The pods to which rules lead."""
    text = "\n".join(saved(space, 4))
    return sorted(map(int, re.findall(r"(?m)^-A our-dispatch -i pod(\d+)", text)))


def take_way(space: Namespace, pod: int) -> None:
    """As somebody else would."""
    way = f"-A our-dispatch -i pod{pod:011d}"
    [rule] = [line for line in saved(space, 4) if line.startswith(way)]
    space.run("iptables-nft", *rule.replace("-A", "-D", 1).replace('"', "").split())


def name_chain(space: Namespace, pod: int) -> tuple[str, ...]:
    """Have somebody else's rule go to a pod's chain; the rule."""
    foreign = ("other", "-j", f"our-fw-pod{pod:011d}")
    space.run("iptables-nft", "-N", "other")
    space.run("iptables-nft", "-A", *foreign)
    return foreign


def sweep(space: Namespace, made: Table, desired: Desired, *, now: bool) -> None:
    async def story() -> None:
        if now:
            for chain in wanted(PODS).chains.keys() - desired.chains.keys():
                made.unwant(chain)
            await commit(made, desired)
        if not now or made.commit_now(sweep=True) is None:
            await made.commit(desired)
        made.close()

    with space.entered():
        asyncio.run(story())


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("now", [False, True])
def test_what_is_taken_away_is_what_a_restore_takes(
    spaces: tuple[Namespace, Namespace], family: Family, now: bool
) -> None:
    """The first, the last, two neighbours; what stays keeps its place and its counters."""
    programs = []
    for space in spaces:
        made = grow(space, family, warm=space is spaces[0], pods=PODS, now=True)
        before = made.programs.restores
        sweep(space, made, without(1, 2, 5), now=now)
        programs.append(made.programs.restores - before)
    assert programs == [0, 1]
    found, expected = (
        re.sub(r"(?m)^:(FORWARD|INPUT|OUTPUT).*", "", "\n".join(saved(space, family, "-c")))
        for space in spaces
    )
    assert found == expected
    assert sum(":our-fw" in line for line in found.splitlines()) == PODS - 3


def test_a_pod_of_the_same_name_comes_again(spaces: tuple[Namespace, Namespace]) -> None:
    """In one batch with others that go, too."""
    space, other = spaces
    made = grow(space, 4, warm=True, pods=PODS)
    restores = made.programs.restores
    for desired in (without(3), without(1, 5), without(1, 2, 3, 4, 5), wanted(PODS)):
        sweep(space, made, desired, now=False)
    assert made.programs.restores == restores
    grow(other, 4, warm=False, pods=PODS)
    assert sorted(saved(space, 4)) == sorted(saved(other, 4))
    dispatch = [line for line in saved(space, 4) if line.startswith("-A our-dispatch")]
    assert "-j DROP" in dispatch[-1]


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_came_and_went_between_two_sweeps_the_rest_is_what_is_wanted(
    spaces: tuple[Namespace, Namespace], seed: int
) -> None:
    space, other = spaces
    dice = random.Random(seed)
    made = grow(space, 4, warm=True, pods=PODS, now=True)
    gone: set[int] = set()

    async def story() -> None:
        for _ in range(40):
            gone.symmetric_difference_update(dice.sample(range(1, PODS), 2))
            desired = without(*gone)
            for chain in wanted(PODS).chains.keys() - desired.chains.keys():
                made.unwant(chain)
            await commit(made, desired)
            if dice.random() < 0.25:
                await made.commit(refresh=dice.random() < 0.5)
                assert chains() == set(desired.chains)
            else:
                assert chains() >= set(desired.chains)
        await made.commit(without(*gone))
        made.close()

    def chains() -> set[str]:
        return {line.split()[0][1:] for line in saved(space, 4) if line.startswith(":our-")}

    with space.entered():
        asyncio.run(story())
    sweep(other, grow(other, 4, warm=False, pods=PODS), without(*gone), now=False)
    assert sorted(saved(space, 4)) == sorted(saved(other, 4))


@pytest.mark.parametrize("now", [False, True])
def test_a_rule_in_the_place_of_another_stays(
    spaces: tuple[Namespace, Namespace], now: bool
) -> None:
    """Somebody changed the chain since it was read: it is read again, and made right."""
    space, _ = spaces
    made = grow(space, 4, warm=True, pods=PODS, now=True)
    space.run("iptables-nft", "-t", "filter", "-D", "our-dispatch", "1")
    saves = made.programs.saves

    async def story() -> None:
        desired = without(2)
        made.unwant("our-fw-pod00000000002")
        await commit(made, desired)
        if now:
            assert made.commit_now(sweep=True) is None
        await made.commit(desired)
        made.close()

    with space.entered():
        asyncio.run(story())
    assert made.programs.saves == saves + 1
    left = {line.split("--goto ")[-1] for line in saved(space, 4) if "-A our-dispatch -i" in line}
    text = "\n".join(saved(space, 4))
    assert len(left) == PODS - 1
    assert "pod00000000002" not in text
    assert all(f"-g our-fw-pod{number:011d}" in text for number in (0, 1, 3, 4, 5))


def test_a_chain_that_a_foreign_rule_names_does_not_hold_up_the_rest(
    spaces: tuple[Namespace, Namespace],
) -> None:
    """IPT-6, with a kernel that refuses the packed batch."""
    space, _ = spaces
    made = grow(space, 4, warm=True, pods=PODS)
    foreign = name_chain(space, 1)
    sweep(space, made, without(1, 4), now=False)
    named = [line for line in saved(space, 4) if "pod00000000001" in line]
    assert sorted(line.split()[0] for line in named) == ["-A", ":our-fw-pod00000000001"]
    assert not [line for line in saved(space, 4) if "-A our-fw-pod00000000004" in line]

    space.run("iptables-nft", "-D", *foreign)
    with space.entered():
        asyncio.run(made.commit(refresh=True))
    assert not {"pod00000000001", "pod00000000004"} & set(
        re.findall(r"pod\d+", str(saved(space, 4)))
    )


def test_a_chain_that_somebody_removed_is_gone(spaces: tuple[Namespace, Namespace]) -> None:
    space, _ = spaces
    made = grow(space, 4, warm=True, pods=PODS)
    take_way(space, 3)
    for action in ("-F", "-X"):
        space.run("iptables-nft", action, "our-fw-pod00000000003")
    sweep(space, made, without(3), now=False)
    assert ways(space) == [0, 1, 2, 4, 5]
    assert "pod00000000003" not in "\n".join(saved(space, 4))


@pytest.mark.parametrize("now", [False, True])
def test_a_rule_that_somebody_took_while_the_batch_was_on_its_way(
    spaces: tuple[Namespace, Namespace], monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    """The kernel refuses the batch; no number of it is believed any more."""
    space, _ = spaces
    made = grow(space, 4, warm=True, pods=PODS)
    send = Packer.send

    def late(packer: Packer, requests: Sequence[bytes]) -> None:
        monkeypatch.setattr(Packer, "send", send)
        take_way(space, 2)
        send(packer, requests)

    async def story() -> None:
        made.unwant("our-fw-pod00000000002")
        await commit(made, without(2))
        monkeypatch.setattr(Packer, "send", late)
        if now:
            assert made.commit_now(sweep=True) is None
        await made.commit(without(2))
        made.close()

    with space.entered():
        asyncio.run(story())
    assert ways(space) == [0, 1, 3, 4, 5]


def test_a_refused_sweep_is_no_reason_to_learn_everything_again(
    spaces: tuple[Namespace, Namespace],
) -> None:
    space, _ = spaces
    made = grow(space, 4, warm=True, pods=PODS)
    name_chain(space, 1)
    sweep(space, made, without(1), now=False)
    restores = made.programs.restores
    sweep(space, made, wanted(PODS), now=False)
    assert ways(space) == [0, 1, 2, 3, 4, 5]
    assert made.programs.restores == restores
