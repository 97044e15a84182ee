"""Probes are run at their places: answers, failures, and trying again what is not right."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from calicoctl.connectivity.model import OPEN, OUTSIDE, Place, Probe, Target
from calicoctl.connectivity.running import Runner, run, seconds_of
from tests.support.ports import free_ports


@dataclass
class Here:
    """Every place is this machine, but for those that fail."""

    failing: dict[str, list[str]] = field(default_factory=dict)

    def command(self, place: Place, words: Sequence[str]) -> list[str]:
        return self.failing.get(place.node) or [sys.executable, *words[1:]]


def probe(node: str, port: int, *, opened: bool = True) -> Probe:
    target = Target(OUTSIDE, "here", "127.0.0.1", port)
    return Probe(OPEN, Place(node), target, opened)


@pytest.mark.asyncio
async def test_each_probe_has_its_result_in_order() -> None:
    (port,) = free_ports(1)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    async with server:
        (closed,) = free_ports(1)
        stage = Here({"bad": ["false"], "gone": ["/no/such/program"], "odd": ["echo", "hello"]})
        probes = [probe("n1", port), probe("n1", closed), probe("bad", port), probe("gone", port),
                  probe("odd", port)]  # fmt: skip
        results = await Runner(stage, 60.0).ask(probes)
    assert [one.probe for one in results] == probes
    assert [one.outcome for one in results] == ["answer", "refused", *["not run"] * 3]
    assert "status 1" in results[2].error
    assert "No such file" in results[3].error
    assert "hello" in results[4].error


@pytest.mark.asyncio
async def test_what_is_not_right_is_asked_again_until_it_is() -> None:
    (port,) = free_ports(1)
    runner = Runner(Here(), 60.0)
    # Nothing listens: a port outside that refuses is reached, so an answer is wrong here.
    wrong = await runner.settled([probe("n1", port, opened=False)], 0.0)
    assert [one.right for one in wrong] == [False]

    asked = 0
    first = runner.ask

    async def counted(probes: Sequence[Probe]) -> list[object]:
        nonlocal asked
        asked += 1
        stage.failing = {} if asked > 1 else {"n1": ["false"]}
        return list(await first(probes))

    stage = Here({"n1": ["false"]})
    runner = Runner(stage, 60.0)
    first = runner.ask
    runner.ask = counted  # type: ignore[method-assign,assignment]
    results = await runner.settled([probe("n1", port)], 300.0)
    assert (asked, [one.right for one in results]) == (2, [True])


@pytest.mark.asyncio
async def test_a_program_that_does_not_end_is_ended() -> None:
    assert await run(["sleep", "600"], limit=0.1) == ("", "sleep: no end within 0.1 s")
    task = asyncio.create_task(run(["sleep", "600"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_more_probes_have_more_time() -> None:
    few, many = ([probe("n1", 1)] * count for count in (1, 100))
    assert seconds_of(many, 3.0, 1.0) > seconds_of(few, 3.0, 1.0)
