"""IPT-8: what comes is appended, what goes waits for a sweep, some order means nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.iptables import Desired, HashScheme, Table
from linux.iptables.detect import Backend
from linux.iptables.plan import make_plan
from linux.iptables.render import Renderer
from linux.iptables.save import parse_save
from tests.linux.test_iptables_plan import Model, _restore, _save
from tests.support.netns import Namespace, network_namespace

SCHEME = HashScheme("our:", ("our-",))
Family = Literal[4, 6]
BOTH = pytest.mark.parametrize(
    ("backend", "family"), [("nft", 4), ("nft", 6), ("legacy", 4), ("legacy", 6)]
)
BAG = st.lists(st.sampled_from(["--jump A1", "--jump B2", "--jump C3", "--jump D4"]), unique=True)
SMALL = st.dictionaries(
    st.sampled_from(["our-a", "our-b"]),
    st.lists(st.sampled_from(["--jump X", "--jump Y"])).map(tuple),
)


def text_of(rule: str) -> str:
    return rule.split(" ", 4)[4]


@given(
    st.sampled_from(["nft", "legacy"]),
    st.lists(st.tuples(BAG, SMALL, st.booleans()), min_size=1, max_size=6),
)
def test_growth_and_sweep_end_where_they_must(
    backend: Backend, story: list[tuple[list[str], dict[str, tuple[str, ...]], bool]]
) -> None:
    model: Model = {"FORWARD": []}
    renderer = Renderer(SCHEME)
    for bag, others, sweep in story:
        desired = Desired({"our-bag": tuple(bag), **others}, unordered={"our-bag"})
        wanted = renderer.render(desired)
        before = {name: list(rules) for name, rules in model.items()}
        plan = make_plan(parse_save(_save(model), "filter", SCHEME), wanted, backend, sweep=sweep)
        model = _restore(model, plan.lines)
        assert all([*map(text_of, model[n])] == list(rules) for n, rules in others.items())
        there = [*map(text_of, model["our-bag"])]
        assert set(bag) <= set(there)
        assert len(there) == len(set(there))
        left = {name for name in model if SCHEME.owns(name) and name not in desired.chains}
        if set(there) != set(bag):
            left.add("our-bag")
        assert plan.garbage == left
        if sweep:
            assert not left
        else:
            assert all(name in model for name in before)
            kept = [rule for rule in model["our-bag"] if rule in before.get("our-bag", [])]
            assert kept == before.get("our-bag", []), "nothing is taken away or moved"
        again = parse_save(_save(model), "filter", SCHEME)
        assert again.chains == plan.after.chains
        assert make_plan(again, wanted, backend, sweep=sweep).lines == ()


@given(
    st.sampled_from(["nft", "legacy"]),
    st.lists(st.tuples(BAG, st.booleans(), st.booleans()), min_size=1, max_size=6),
)
def test_the_last_rule_of_a_closed_chain_stays_last(
    backend: Backend, story: list[tuple[list[str], bool, bool]]
) -> None:
    """Rules come and go before it; what an older version left without it is written anew."""
    model: Model = {"FORWARD": []}
    renderer, end = Renderer(SCHEME), "--jump DROP"
    for bag, closed, sweep in story:
        rules = (*bag, end) if closed else tuple(bag)
        names = {"our-bag"} if closed else set()
        wanted = renderer.render(Desired({"our-bag": rules}, unordered={"our-bag"}, closed=names))
        actual = parse_save(_save(model), "filter", SCHEME)
        plan = make_plan(actual, wanted, backend, sweep=sweep)
        before = {text_of(rule) for rule in model.get("our-bag", [])}
        model = _restore(model, plan.lines)
        there = [*map(text_of, model["our-bag"])]
        assert set(rules) <= set(there) <= set(rules) | (set() if sweep else before)
        assert not closed or there[-1] == end
        again = parse_save(_save(model), "filter", SCHEME)
        assert again.chains == plan.after.chains
        assert make_plan(again, wanted, backend, sweep=sweep).lines == ()


def test_a_comment_stands_behind_what_must_hold() -> None:
    """So packets that a rule is not for do not pay for it; the hash is of the text as it came."""
    said = '-m comment --comment "why --jump not"'
    match, action = "! -p tcp -m mark --mark 0x1/0x1", '--jump LOG --log-prefix "a -j b"'
    rule = f"{said} {match} {action}"
    made = Renderer(SCHEME).render(Desired({"our-a": (rule, said, "")})).chains["our-a"]
    hashes = [SCHEME.comment(each) for each in SCHEME.hashes("our-a", (rule, said, ""))]
    assert made.rules == (f"{match} {hashes[0]} {said} {action}", f"{hashes[1]} {said}", hashes[2])


def test_a_strangers_rule_in_a_chain_of_ours_goes_at_once() -> None:
    renderer = Renderer(SCHEME)
    wanted = renderer.render(Desired({"our-bag": ("--jump A1",)}, unordered={"our-bag"}))
    model = _restore(
        {"FORWARD": []}, make_plan(parse_save("", "filter", SCHEME), wanted, "nft").lines
    )
    model["our-bag"].insert(0, "--jump ACCEPT")
    actual = parse_save(_save(model), "filter", SCHEME)
    model = _restore(model, make_plan(actual, wanted, "nft", sweep=False).lines)
    assert [*map(text_of, model["our-bag"])] == ["--jump A1"]


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("grow") as space, space.entered():
        yield space


def pod(table: Table, number: int) -> None:
    table.want(f"our-pod{number}", (f"-m mark --mark {number:#x}/0xff --jump ACCEPT",))


def dispatch(table: Table, *numbers: int) -> None:
    rules = [f"--in-interface pod{n} --goto our-pod{n}" for n in numbers]
    table.want("our-dispatch", rules, unordered=True)


def interfaces(space: Namespace, program: str) -> list[str]:
    listed = space.run(program, "-S", "our-dispatch").splitlines()
    return [line.split("-i ")[1].split(" ")[0] for line in listed if "-i " in line]


@BOTH
def test_one_comes_and_another_goes(space: Namespace, backend: Backend, family: Family) -> None:
    program = f"{'iptables' if family == 4 else 'ip6tables'}-{backend}"

    async def story() -> None:
        table = Table("filter", family, backend, SCHEME, warm=True)
        table.want_hooks({"FORWARD": ("--jump our-dispatch",)}, {})
        for number in (1, 2):
            pod(table, number)
        dispatch(table, 1, 2)
        await table.commit()
        assert not table.dirty

        table.unwant("our-pod1")
        pod(table, 3)
        dispatch(table, 2, 3)
        assert table.dirty
        report = await table.commit(sweep=False)
        assert (report.restores, report.saves) == (1, 0)
        assert report.garbage == {"our-pod1", "our-dispatch"}
        assert interfaces(space, program) == ["pod1", "pod2", "pod3"]
        assert not table.dirty

        # It comes back before the sweep: its rule is there, its chain is what is wanted now.
        table.want("our-pod1", ("--jump DROP",))
        dispatch(table, 2, 3, 1)
        assert table.differs("our-pod1")
        report = await table.commit(sweep=False)
        assert report.chains_written == ("our-pod1",)
        assert report.garbage == frozenset()
        assert not table.differs("our-pod1")

        table.unwant("our-pod1")
        dispatch(table, 2, 3)
        await table.commit(sweep=False)
        report = await table.commit(sweep=True)
        assert report.garbage == frozenset()
        assert interfaces(space, program) == ["pod2", "pod3"]
        assert "our-pod1" not in space.run(program, "-S")
        nothing = await table.commit(sweep=True)
        assert (nothing.restores, nothing.saves) == (0, 0)

        # Another order is the same to a process that starts anew.
        fresh = Table("filter", family, backend, SCHEME)
        fresh.want_hooks({"FORWARD": ("--jump our-dispatch",)}, {})
        pod(fresh, 2)
        pod(fresh, 3)
        dispatch(fresh, 3, 2)
        report = await fresh.commit()
        assert (report.saves, report.restores) == (1, 0)
        table.close()

    asyncio.run(story())


@BOTH
def test_a_read_back_finds_what_drifted_and_the_next_commit_repairs(
    space: Namespace, backend: Backend, family: Family
) -> None:
    program = f"{'iptables' if family == 4 else 'ip6tables'}-{backend}"

    async def story() -> None:
        table = Table("filter", family, backend, SCHEME, warm=True)
        table.want_hooks({"FORWARD": ("--jump our-dispatch",)}, {})
        pod(table, 1)
        dispatch(table, 1)
        await table.commit()
        assert await table.refresh() == ()
        assert not table.dirty
        space.run(program, "-F", "our-pod1")
        space.run(program, "-D", "our-dispatch", "1")
        space.run(program, "-N", "our-stranger")
        assert set(await table.refresh()) == {"our-pod1", "our-dispatch", "our-stranger"}
        assert table.dirty
        report = await table.commit(sweep=False)
        assert report.garbage == {"our-stranger"}
        assert interfaces(space, program) == ["pod1"]
        await table.commit()
        assert "our-stranger" not in space.run(program, "-S")
        assert await table.refresh() == ()
        table.close()

    asyncio.run(story())
