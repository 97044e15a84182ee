"""TCH-2 in the main loop, with a kernel: no word about everything is lost while a turn is made,
and who waits for rules alone hears of them first."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from felix.calc import node_grace
from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.config.parameters import Config
from felix.dataplane.devices.work import LinkWork
from felix.dataplane.loop import Dataplane
from felix.dataplane.rules.manager import READ_BACK
from felix.dataplane.turn import ahead
from felix.dataplane.turn.cooperative_steps import in_slices
from felix.reports.conditions import of_dataplane
from libcalico.model import (
    ClusterInformation,
    ClusterInformationSpec,
    Metadata,
    Node,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
)
from tests.felix.policy_objects import ME, Object, allow, pod, policy
from tests.support.netns import network_namespace
from tests.support.patience import patient, until

ALL, IPTABLES = "all", "iptables-nft-save"
OTHER = ResourceKey("Node", "other")


def other(address: str = "") -> Node:
    bgp = NodeBGPSpec(ipv4Address=address) if address else None
    return Node(metadata=Metadata(name="other"), spec=NodeSpec(bgp=bgp))


@asynccontextmanager
async def running(
    config: Config | None = None,
) -> AsyncIterator[tuple[Dataplane, list[object]]]:
    """A data plane that has written, and what each later turn's rules are about."""
    calc = Calculator(ME)
    calc.update(
        ResourceKey("ClusterInformation", "default"),
        ClusterInformation(
            metadata=Metadata(name="default"), spec=ClusterInformationSpec(datastoreReady=True)
        ),
    )
    calc.update(OTHER, other("10.99.0.9/24"))
    calc.in_sync = True
    plane = Dataplane(calc, PathTable(), config or Config(), lambda: None)
    task = asyncio.create_task(plane.run(lambda: None))
    try:
        await until(lambda: plane.state.applied or task.done())
        turns: list[object] = []
        assert plane.rules.desire is not None
        update = plane.rules.desire.update

        def spied(*given: object) -> object:
            turns.append(ALL if given[-1] is None else given[-1])
            return update(*given)  # type: ignore[arg-type]

        plane.rules.desire.update = spied  # type: ignore[assignment, method-assign]
        await at_rest(plane, turns)
        yield plane, turns
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def at_rest(plane: Dataplane, turns: list[object]) -> None:
    """Until all that was marked has been looked at: a turn about little ends, and no other waits.

    What the kernel told of our own writes is heard by then: it tells before it answers.
    """
    while True:
        turns.clear()
        applies = plane.state.applies
        plane.kick_some()
        await until(lambda: plane.state.applies > applies)  # noqa: B023
        await until(lambda: not plane.background.busy(READ_BACK))
        waits = plane.wake.is_set or plane.view.stale
        if turns and turns[-1] != ALL and not waits:
            turns.clear()
            return


def test_a_word_about_everything_while_rules_are_written_makes_a_turn_about_everything() -> None:
    async def story() -> None:
        async with running() as (plane, turns):
            assert plane.rules.tables is not None
            commit = plane.rules.tables.commit
            told: list[int] = []

            async def slow(**how: bool) -> dict[str, str]:
                failures = await commit(**how)
                if not told:
                    told.append(len(turns))
                    plane.kick()
                    plane.wake.heard.set()
                    await asyncio.sleep(0.1)
                return failures

            plane.rules.tables.commit_now = lambda **_: False  # type: ignore[method-assign]
            plane.rules.tables.commit = slow  # type: ignore[method-assign]
            key, value = pod("web", "10.65.0.7")
            plane.calc.update(key, value)
            plane.kick_some()
            await until(lambda: bool(told) and len(turns) > told[0])
            assert turns[told[0] - 1] != ALL, "the turn that was under way"
            assert turns[told[0]] == ALL

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())


def test_what_is_heard_while_rules_are_written_is_looked_at_and_nothing_beside() -> None:
    """But what failed is tried again, and a word about everything still counts (TCH-2)."""

    async def story() -> None:
        async with running() as (plane, _):
            assert plane.rules.tables is not None
            commit, links = plane.rules.tables.commit, plane.links.interfaces
            looked: list[set[str]] = []
            pods = [pod(f"web{number}", f"10.65.0.{number}") for number in range(1, 5)]
            one, two, three, four = (value.spec.interfaceName for _, value in pods)
            news: list[set[str]] = [set(), {one}, {one, two}]

            async def slow(**how: bool) -> dict[str, str]:
                failures = await commit(**how)
                await until(lambda: bool(looked))
                for names in news:
                    before = len(looked)
                    plane.touched.mark(names)
                    plane.wake.heard.set()
                    await until(lambda: len(looked) > before)  # noqa: B023
                news.clear()
                return failures

            def look(work: LinkWork) -> set[int]:
                looked.append({endpoint.interface for endpoint in work.endpoints})
                links.failures = {three: "refused"} if len(looked) < 3 else {}
                return set()

            plane.rules.tables.commit_now = lambda **_: False  # type: ignore[method-assign]
            plane.rules.tables.commit = slow  # type: ignore[method-assign]
            links.commit = look  # type: ignore[method-assign]
            for key, value in pods:
                plane.calc.update(key, value)
            plane.kick_some()
            await until(lambda: not news)
            assert looked[:4] == [{one, two, three, four}, {three}, {one, three}, {one, two}]

    with network_namespace("repeats") as space, space.entered():
        asyncio.run(story())


def test_turns_that_ask_for_turns_keep_no_other_task_from_running() -> None:
    async def story() -> None:
        async with running() as (plane, _):
            turns, others = 0, 0

            def asks() -> None:
                nonlocal turns
                turns += 1
                # It ends by itself: a loop that serves no other task fails and does not hang.
                if turns < 1000:
                    plane.kick_some()

            plane.calc.in_sync = False  # then no turn awaits anything
            plane._published = asks
            plane.kick_some()
            while turns < 1000:
                others += 1
                await asyncio.sleep(0)
            assert others > 900

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())


@pytest.mark.parametrize("mode", ["Disabled", "Enabled"])
def test_a_read_back_that_fails_is_said_and_tried_again_until_it_works(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process, thread or descriptor is left: the removed hook is back once there is one again,
    though nothing tells of it and the interval is a day."""
    day = 86400.0
    config = Config(
        nftables_mode=mode,
        iptables_backend="NFT",
        iptables_refresh_interval=day,
        nftables_refresh_interval=day,
    )
    listed = ["iptables-nft-save", "-t", "filter"]
    flushed, hook = ["iptables-nft", "-F", "FORWARD"], "-j cali-FORWARD"
    if mode == "Enabled":
        listed, flushed = ["nft", "list", "table", "ip", "calico"], []
        hook = "jump filter-cali-FORWARD"

    def flush() -> None:
        if flushed:
            subprocess.run(flushed, check=True)

    def stands() -> bool:
        return hook in subprocess.run(listed, check=True, capture_output=True, text=True).stdout

    async def story() -> None:
        async with running(config) as (plane, _):
            tables, desire = plane.rules.tables, plane.rules.desire
            assert tables is not None
            assert desire is not None
            assert stands()
            flush()
            tries = 0

            async def refused(*_: object, **__: object) -> object:
                nonlocal tries
                tries += 1
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "create_subprocess_exec", refused)
                patch.setattr(asyncio, "to_thread", refused)
                plane.rules.read_back_beside()
                await until(lambda: tries >= 2 and bool(of_dataplane(plane)))
                reasons = dict(of_dataplane(plane))
                assert "failed and is tried again" in reasons["read-back of the rules"]
                assert not flushed or not stands()
            await until(stands)
            await until(lambda: "read-back of the rules" not in dict(of_dataplane(plane)))

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())


@pytest.mark.parametrize("mode", ["Disabled", "Enabled"])
def test_a_pod_overtakes_a_policy_of_very_many_rules(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its preparation is held, so what comes meanwhile is in force before it, or waits for it."""
    listing = ["nft", "list", "table", "ip", "calico"] if mode == "Enabled" else [IPTABLES]
    ingress = [allow(protocol="TCP", destination={"ports": [number]}) for number in range(1, 3001)]

    async def story() -> None:
        held, goes_on = asyncio.Event(), asyncio.Event()

        async def gated(steps: Iterator[None], seconds: float) -> None:
            held.set()
            await goes_on.wait()
            await in_slices(steps, seconds)

        monkeypatch.setattr(ahead, "in_slices", gated)
        async with running(Config(nftables_mode=mode, iptables_backend="NFT")) as (plane, _):

            def put(*objects: Object) -> None:
                for key, value in objects:
                    plane.calc.update(key, value)
                plane.kick_some()

            old = pod("old", "10.65.0.7", {"app": "a"})
            put(old)
            await until(lambda: plane.rules_programmed(old[0]) is not None)
            large = policy("large", selector="app == 'a'", ingress=ingress, types=["Ingress"])
            put(large)
            await asyncio.wait_for(held.wait(), patient(60))
            free, selected = pod("free", "10.65.0.8"), pod("new", "10.65.0.9", {"app": "a"})
            put(free, selected)
            await until(lambda: plane.rules_programmed(free[0]) is not None)
            assert plane.rules_programmed(selected[0]) is None, "it waits for its policy"
            goes_on.set()
            await until(lambda: plane.rules_programmed(selected[0]) is not None)
            listed = await asyncio.to_thread(subprocess.run, listing, capture_output=True)
            text = listed.stdout.decode()
            assert re.search(r"dport\s(\{ )?3000\b", text) or "--dports 3000" in text

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())


def test_a_turn_without_threads_is_told_once_and_made_good(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of pids is reached: `can't start new thread`, turn after turn."""

    async def story() -> None:
        async with running() as (plane, _):
            tries = 0

            async def refused(*_: object, **__: object) -> object:
                nonlocal tries
                tries += 1
                raise RuntimeError("can't start new thread")

            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "to_thread", refused)
                plane.view.stale_all = True
                plane.kick()
                await until(lambda: tries >= 3)
                assert "new thread" in plane.state.failures["dataplane"]
            await until(lambda: not plane.state.failures)
            assert not plane.view.stale_all

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())
    told = [each for each in caplog.records if "turn of the main loop failed" in each.message]
    assert len(told) == 1


@pytest.mark.parametrize("mode", ["Disabled", "Enabled"])
def test_rules_that_stand_are_told_of_before_links_are_looked_at(mode: str) -> None:
    """NSV-3: at that moment the kernel has the rules and the sets."""
    listing = ["nft", "list", "table", "ip", "calico"] if mode == "Enabled" else [IPTABLES]
    events: list[tuple[str, str]] = []

    async def story() -> None:
        async with running(Config(nftables_mode=mode, iptables_backend="NFT")) as (plane, _):

            def told(keys: list[ResourceKey]) -> None:
                for key in keys:
                    endpoint = plane.calc.endpoints.get(key)
                    assert endpoint is not None
                    kernel = subprocess.run(listing, capture_output=True, check=True, text=True)
                    held = f"cali-fw-{endpoint.interface}" in kernel.stdout
                    events.append(("told" if held else "told too early", endpoint.interface))

            commit = plane.links.interfaces.commit

            def looked(work: LinkWork) -> set[int]:
                events.extend(("looked", endpoint.interface) for endpoint in work.endpoints)
                return commit(work)

            plane.on_ruled = told
            plane.links.interfaces.commit = looked  # type: ignore[method-assign]
            for number in range(6):
                key, value = pod(f"web{number}", f"10.65.0.{number + 7}")
                plane.calc.update(key, value)
                plane.kick_some()
                await until(lambda key=key: key in plane.state.ruled)  # type: ignore[misc]
                # The first ones of their kind are written by a program.
                last = value.spec.interfaceName
                about = [word for word, name in events if name == last]
            assert about[:2] == ["told", "looked"], events
            assert "told too early" not in {word for word, _ in events}

    with network_namespace("soon") as space, space.entered():
        asyncio.run(story())


def test_a_node_whose_time_ends_in_a_small_turn_makes_it_one_about_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with running() as (plane, turns):
            calc = plane.calc
            calc.update(OTHER, other())
            plane.kick()
            await until(lambda: plane._calc_wait is not None)
            await at_rest(plane, turns)
            version = calc.cluster_version
            # Its time is over, and nobody looks until an endpoint's word comes.
            until_when = calc._node_table._until
            until_when.update(dict.fromkeys(until_when, 0.0))
            plane.kick_some()
            await until(lambda: bool(turns))
            assert calc.cluster_version > version
            assert turns[0] == ALL

    monkeypatch.setattr(node_grace, "HOLD", 1000.0)
    with network_namespace("absent") as space, space.entered():
        asyncio.run(story())


@pytest.mark.asyncio
async def test_sets_are_read_again_when_somebody_changes_tables_after_they_were_committed() -> None:
    """The word comes when this turn's sets are done, and its rules are not read back yet."""
    with network_namespace("turn") as space, space.entered():
        async with running() as (plane, _):
            sets = plane.rules.sets
            assert sets is not None
            commit, names, told, read = sets.commit, sets._kernel.names, False, 0

            async def told_after() -> dict[str, str]:
                nonlocal told, read
                failures = await commit()
                if not told:
                    told, read = True, 0
                    plane.rules.drifted()
                return failures

            def counted() -> list[str]:
                nonlocal read
                read += 1
                return list(names())

            sets.commit, sets._kernel.names = told_after, counted  # type: ignore[method-assign]
            plane.kick()
            await until(lambda: told and read > 0)


@pytest.mark.asyncio
async def test_a_failure_that_may_be_for_want_of_sets_is_tried_at_once_only_the_first_time() -> (
    None
):
    with network_namespace("turn") as space, space.entered():
        async with running() as (plane, _):
            tables, kick, kicks = plane.rules.tables, plane.kick, list[int]()
            assert tables is not None

            async def refused(**_: bool) -> dict[str, str]:
                return {"calico": "refused"}

            def counted() -> None:
                kicks.append(plane.state.failed_applies)
                kick()

            tables.commit_now = lambda **_: False  # type: ignore[method-assign]
            tables.commit = refused  # type: ignore[method-assign]
            tables.take_lost = lambda: True  # type: ignore[method-assign]
            kick()
            plane.kick = counted  # type: ignore[method-assign]
            await until(lambda: plane.state.failed_applies >= 4)
            assert kicks == [0]


def test_parameters_that_change_within_a_turn_make_it_one_about_everything() -> None:
    async def story() -> None:
        async with running() as (plane, turns):
            settling, changed = plane.calc.settling, replace(plane.config, max_ipset_size=4096)

            def slow(now: float) -> Iterator[None]:
                plane.config = changed
                yield from settling(now)

            plane.calc.settling = slow  # type: ignore[method-assign]
            plane.kick_some()
            await until(lambda: bool(turns))
            assert turns[0] == ALL

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())
