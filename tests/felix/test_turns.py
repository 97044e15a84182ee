"""TCH-2 in the main loop, with a kernel: no word about everything is lost while a turn is made,
and who waits for rules alone hears of them first."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from felix.calc import absences
from felix.calc.graph import Calculator
from felix.calc.paths import PathTable
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from libcalico.model import (
    ClusterInformation,
    ClusterInformationSpec,
    Metadata,
    Node,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
)
from tests.felix.policy_objects import ME, pod
from tests.support.netns import network_namespace

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
        await asyncio.sleep(0.3)  # the tables are read back, and what was marked is looked at
        turns: list[object] = []
        assert plane._desire is not None
        update = plane._desire.update

        def spied(*given: object) -> object:
            turns.append(ALL if given[-1] is None else given[-1])
            return update(*given)  # type: ignore[arg-type]

        plane._desire.update = spied  # type: ignore[assignment, method-assign]
        yield plane, turns
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_a_word_about_everything_while_rules_are_written_makes_a_turn_about_everything() -> None:
    async def story() -> None:
        async with running() as (plane, turns):
            assert plane.tables is not None
            commit = plane.tables.commit
            told: list[int] = []

            async def slow(**how: bool) -> dict[str, str]:
                failures = await commit(**how)
                if not told:
                    told.append(len(turns))
                    plane.kick()
                    plane._heard.set()
                    await asyncio.sleep(0.1)
                return failures

            plane.tables.commit_now = lambda **_: False  # type: ignore[method-assign]
            plane.tables.commit = slow  # type: ignore[method-assign]
            key, value = pod("web", "10.65.0.7")
            plane.calc.update(key, value)
            plane.kick_some()
            await until(lambda: bool(told) and len(turns) > told[0])
            assert turns[told[0] - 1] != ALL, "the turn that was under way"
            assert turns[told[0]] == ALL

    with network_namespace("turns") as space, space.entered():
        asyncio.run(story())


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

            commit = plane.interfaces.commit

            def looked(*given: Any) -> set[int]:
                endpoints = list(given[2])
                events.extend(("looked", endpoint.interface) for endpoint in endpoints)
                return commit(given[0], given[1], endpoints, given[3])

            plane.on_ruled = told
            plane.interfaces.commit = looked  # type: ignore[assignment, method-assign]
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
            await until(lambda: plane._held is not None)
            await asyncio.sleep(0.3)
            turns.clear()
            version = calc.cluster_version
            time.sleep(1.2)  # noqa: ASYNC251 - nobody looks until an endpoint's word comes
            plane.kick_some()
            await until(lambda: bool(turns))
            assert calc.cluster_version > version
            assert turns[0] == ALL

    monkeypatch.setattr(absences, "HOLD", 1.0)
    with network_namespace("absent") as space, space.entered():
        asyncio.run(story())
