"""Sets against the kernel: any history of changes ends with the members that were asked for."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from felix.calc.policy_model import SetChange, SetKind
from felix.dataplane.rules.ipsets import BUSY_FOR, Sets
from linux.ipset import IPSets
from tests.felix.dataplane.test_dataplane_parts import Clock
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG

BOTH = frozenset({4, 6})
NETS, PAIRS = SetKind.NETS, SetKind.ADDRESS_PORTS


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("sets") as space, space.entered():
        yield space


def run(sets: Sets) -> dict[str, str]:
    return asyncio.run(sets.commit())


def members(name: str) -> set[str]:
    with IPSets() as kernel:
        return kernel.members(name)


def change(set_id: str, add: str = "", remove: str = "", kind: SetKind = NETS) -> SetChange:
    return SetChange(set_id, kind, added=frozenset(add.split()), removed=frozenset(remove.split()))


def test_each_family_has_its_own_set_also_when_empty(space: Namespace) -> None:
    sets = Sets(BOTH, 1024)
    sets.change(SetChange("s:a", NETS, full=frozenset({"10.0.0.1", "10.1.0.0/16", "fd00::1"})))
    sets.change(SetChange("n:b", PAIRS, full=frozenset({"10.0.0.1,tcp:80"})))
    assert run(sets) == {}
    assert members("cali40s:a") == {"10.0.0.1", "10.1.0.0/16"}
    assert members("cali60s:a") == {"fd00::1"}
    assert members("cali40n:b") == {"10.0.0.1,tcp:80"}
    assert members("cali60n:b") == set()
    assert sets.writes == 4
    run(sets)
    assert sets.writes == 4
    sets.change(change("n:b", "fd00::2,udp:53", "10.0.0.1,tcp:80", PAIRS))
    run(sets)
    assert (members("cali40n:b"), members("cali60n:b")) == (set(), {"fd00::2,udp:53"})
    sets.close()


def test_everything_is_two_halves(space: Namespace) -> None:
    sets = Sets(BOTH, 1024)
    sets.change(SetChange("s:a", NETS, full=frozenset({"0.0.0.0/0", "128.0.0.0/1", "::/0"})))
    run(sets)
    assert members("cali40s:a") == {"0.0.0.0/1", "128.0.0.0/1"}
    assert members("cali60s:a") == {"::/1", "8000::/1"}
    sets.change(change("s:a", "10.0.0.1", "0.0.0.0/0 ::/0"))
    run(sets)
    assert members("cali40s:a") == {"128.0.0.0/1", "10.0.0.1"}
    assert members("cali60s:a") == set()
    sets.change(change("s:a", "0.0.0.0/0", "128.0.0.0/1"))
    run(sets)
    assert members("cali40s:a") == {"0.0.0.0/1", "128.0.0.0/1", "10.0.0.1"}
    sets.close()


def test_drift_is_repaired_and_foreign_sets_stay(space: Namespace) -> None:
    space.run("ipset", "create", "theirs", "hash:ip")
    sets = Sets(BOTH, 1024)
    sets.want("s:a", NETS, {"10.0.0.1", "10.0.0.2"})
    sets.want("s:b", NETS, {"10.0.0.3"})
    run(sets)
    space.run("ipset", "del", "cali40s:a", "10.0.0.1")
    space.run("ipset", "add", "cali40s:a", "10.9.0.0/16")
    space.run("ipset", "destroy", "cali40s:b")
    sets.forget()
    assert run(sets) == {}
    assert members("cali40s:a") == {"10.0.0.1", "10.0.0.2"}
    assert members("cali40s:b") == {"10.0.0.3"}
    assert sets.foreign == 1
    sets.unwant("s:b")
    run(sets)
    assert sets.sweep() == {}
    with IPSets() as kernel:
        assert sorted(kernel.names()) == ["cali40s:a", "cali60s:a", "theirs"]
    sets.close()


def test_sets_that_are_forgotten_during_a_commit_are_read_by_the_next(
    space: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets, add = Sets(BOTH, 1024), IPSets.add

    def forgetting(self: IPSets, name: str, members: set[str]) -> None:
        add(self, name, members)
        space.run("ipset", "del", name, "10.0.0.1")
        sets.forget()

    monkeypatch.setattr(IPSets, "add", forgetting)
    sets.want("s:a", NETS, {"10.0.0.1", "10.0.0.2"})
    sets.want("s:b", NETS, {"10.0.0.1"})
    assert run(sets) == {}
    monkeypatch.setattr(IPSets, "add", add)
    assert run(sets) == {}
    assert members("cali40s:a") == {"10.0.0.1", "10.0.0.2"}
    assert members("cali40s:b") == {"10.0.0.1"}
    sets.close()


def test_a_restart_writes_nothing(space: Namespace) -> None:
    for expected in (2, 0):
        sets = Sets(BOTH, 1024)
        sets.want("s:a", NETS, {"10.0.0.1", "fd00::/64"})
        run(sets)
        sets.sweep()
        assert sets.writes == expected
        sets.close()


def test_a_change_costs_what_changes(space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    add = IPSets.add

    def counted(self: IPSets, name: str, members: set[str]) -> None:
        sent.append(len(members))
        add(self, name, members)

    sets = Sets(BOTH, 1 << 20)
    many = {f"10.{a}.{b}.1" for a in range(40) for b in range(250)}
    sets.want("s:a", NETS, many)
    run(sets)
    monkeypatch.setattr(IPSets, "add", counted)
    calls, lines = sets.calls, sets.lines
    sets.change(change("s:a", "192.0.2.1 10.0.0.1", "10.1.1.1"))
    run(sets)
    assert sent == [1], "one is there already"
    assert sets.calls - calls == 2
    assert sets.lines - lines == 2, "one comes, one goes"
    assert len(members("cali40s:a")) == len(many)
    sets.close()


def test_a_set_that_is_full_is_named_and_harms_no_other(space: Namespace) -> None:
    sets = Sets(BOTH, 64)
    many = {f"10.0.{n // 250}.{n % 250}" for n in range(500)}
    sets.want("s:full", NETS, many)
    sets.want("s:good", NETS, {"10.0.0.1"})
    failures = run(sets)
    assert failures.keys() == {"cali40s:full"}
    assert "full" in failures["cali40s:full"]
    assert sets.failed == {"s:full"}
    assert members("cali40s:good") == {"10.0.0.1"}
    assert run(sets).keys() == {"cali40s:full"}, "it is tried again, and still named"
    sets.change(change("s:full", remove=" ".join(sorted(many)[10:])))
    assert run(sets) == {}
    assert sets.failed == frozenset()
    assert len(members("cali40s:full")) == 10
    sets.close()


@pytest.mark.parametrize("used", [False, True])
def test_a_set_of_another_type_is_replaced_as_soon_as_it_is_free(
    space: Namespace, *, used: bool
) -> None:
    """A network in a set of addresses would become each of its addresses, or be refused."""
    rule = "FORWARD -m set --match-set cali40s:a src -j ACCEPT"
    space.run("ipset", "create", "cali40s:a", "hash:ip")
    space.run("ipset", "add", "cali40s:a", "192.0.2.1")
    if used:
        space.run("iptables-nft", "-A", *rule.split())
    sets = Sets(frozenset({4}), 1024)
    sets.change(SetChange("s:a", NETS, full=frozenset({"10.0.0.0/28"})))
    failed = run(sets)
    if used:
        assert sets.failed == {"s:a"}
        assert list(failed) == ["cali40s:a"]
        space.run("iptables-nft", "-D", *rule.split())
        assert run(sets) == {}
    assert sets.failed == frozenset()
    assert members("cali40s:a") == {"10.0.0.0/28"}
    with IPSets() as kernel:
        found = kernel.info("cali40s:a")
    assert found is not None
    assert found.type == "hash:net"
    sets.close()


def test_a_set_in_use_is_a_failure_only_when_it_stays_so(space: Namespace) -> None:
    """nf_tables gives a set free a moment after the rule: that is no fault, another's rule is."""
    rule = "FORWARD -m set --match-set cali40s:a src -j ACCEPT"
    clock = Clock()
    sets = Sets(frozenset({4}), 1024, clock=clock)
    sets.change(SetChange("s:a", NETS, full=frozenset({"10.0.0.1"})))
    assert run(sets) == {}
    space.run("iptables-nft", "-A", *rule.split())
    sets.change(SetChange("s:a", NETS, removed_whole=True))
    assert run(sets) == {}
    for _ in range(100):
        assert sets.sweep() == {}, "a busy node looks often in a moment"
        assert sets.to_sweep
    clock.now += BUSY_FOR + 1
    assert list(sets.sweep()) == ["cali40s:a"]
    assert not sets.to_sweep, "the failure is tried again by its own delay"
    space.run("iptables-nft", "-D", *rule.split())
    wait = time.monotonic() + HANG
    while sets.sweep():
        assert time.monotonic() < wait
    sets.sweep()
    with IPSets() as kernel:
        assert "cali40s:a" not in kernel.names()
    assert not sets.to_sweep
    sets.close()


def test_a_very_large_set_holds_nobody_up(space: Namespace) -> None:
    """SETS-5: filled, read back, halved, rebuilt for another size, all in small steps.

    A step is held against the whole, both in time of this thread, so the machine's speed cancels
    out: it is some 2 % of it; to fill the set in one step would be a quarter.
    """
    longest, whole = holds(space)
    assert longest < whole / 8


def holds(space: Namespace) -> tuple[float, float]:
    """What a set of 100,000 members takes from the loop at once and in all, in seconds."""
    full = frozenset(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(100_000))
    half = frozenset(sorted(full)[::2])
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            worst, last = max(worst, now - last), now

    async def story() -> None:
        sets = Sets(BOTH, 1 << 18)
        watcher = asyncio.create_task(watch())
        sets.change(SetChange("s:a", NETS, full=full))
        assert await sets.commit() == {}
        sets.forget()
        await sets.commit()
        assert sets.writes == 2, "read back, nothing to write"
        sets.change(SetChange("s:a", NETS, full=half))
        await sets.commit()
        sets.resize(1 << 17)
        assert await sets.commit() == {}
        watcher.cancel()
        sets.close()
        assert await asyncio.to_thread(members_inside, space, "cali40s:a") == half

    # What the tests have loaded is no work of felix's collector, and stays set aside.
    gc.collect()
    gc.freeze()
    begun = time.thread_time()
    asyncio.run(story())
    whole = time.thread_time() - begun
    with IPSets() as kernel:
        assert sorted(kernel.names()) == ["cali40s:a", "cali60s:a"]
        found = kernel.info("cali40s:a")
    assert found is not None
    assert found.maxelem == 1 << 17
    return worst, whole


def members_inside(space: Namespace, name: str) -> set[str]:
    with space.entered():
        return members(name)


def test_a_set_that_cannot_be_written_costs_nothing_while_nobody_changes_it(
    space: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SETS-6."""
    sets = Sets(frozenset({4}), 4)
    sets.want("s:full", NETS, {f"10.0.0.{n}" for n in range(8)})
    for _ in range(6):
        assert run(sets).keys() == {"cali40s:full"}
    for method in ("info", "create", "members", "add", "delete", "destroy"):
        monkeypatch.setattr(IPSets, method, never)
    assert run(sets).keys() == {"cali40s:full"}
    monkeypatch.undo()
    sets.resize(8)
    assert run(sets) == {}
    assert len(members("cali40s:full")) == 8
    sets.close()


def never(*_: object) -> None:
    raise AssertionError("the kernel was asked")
