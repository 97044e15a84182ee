"""Runs probes at their places, and repeats what is not as it should be until a limit.

A place is entered by a command of the stage (`kubectl exec`, or what `--via` says). Tested in
`tests/calicoctl/test_connectivity_running.py` with processes of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

from calicoctl.connectivity.model import NODES, OUTSIDE, SPEED, Place, Probe, Result

PYTHON = ("python3", "-I", "-S", "-c")
PROBE_SECONDS = 3.0
AT_ONCE = 32
"""Places that are asked at once; inside each as many probes (`agent.AT_ONCE`)."""
START_SECONDS = 60.0
"""What entering a place may take, beside its probes."""
AGAIN = 1.0


class Stage(Protocol):
    """Where probes run."""

    def command(self, place: Place, words: Sequence[str]) -> list[str]:
        """The command that runs a program at a place."""


def program() -> str:
    """The text of the probe's program."""
    return resources.files("calicoctl.connectivity").joinpath("agent.py").read_text()


def seconds_of(probes: Sequence[Probe], each: float, speed: float) -> float:
    """How long one run of the program may take."""
    slow = sum(one.target.kind == SPEED for one in probes)
    rounds = -(-(len(probes) - slow) // AT_ONCE)
    # A probe has its time for connecting, and again for each answer that it waits for.
    return START_SECONDS + 4 * each * rounds + slow * (speed + 4 * each)


class Runner:
    """`each`: seconds of one probe; `speed`: of one measurement of throughput."""

    def __init__(self, stage: Stage, each: float = PROBE_SECONDS, speed: float = 1.0) -> None:
        self._stage, self._each, self._speed = stage, each, speed
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def ask(self, probes: Sequence[Probe]) -> list[Result]:
        """The results, in the order of the probes."""
        by_place: dict[Place, list[int]] = {}
        for number, one in enumerate(probes):
            by_place.setdefault(one.source, []).append(number)
        results: dict[int, Result] = {}

        async def of(place: Place, numbers: list[int]) -> None:
            async with self._gate:
                results.update(await self._at(place, {one: probes[one] for one in numbers}))

        async with asyncio.TaskGroup() as group:
            for place, numbers in by_place.items():
                group.create_task(of(place, numbers))
        return [results[number] for number in range(len(probes))]

    async def settled(self, probes: Sequence[Probe], limit: float) -> list[Result]:
        """The results once all are as they should be, or as they are after `limit` seconds."""
        until = time.monotonic() + limit
        results = await self.ask(probes)
        while True:
            wrong = [number for number, one in enumerate(results) if not one.right]
            if not wrong or time.monotonic() >= until:
                return results
            await asyncio.sleep(AGAIN)
            again = await self.ask([probes[number] for number in wrong])
            for number, one in zip(wrong, again, strict=True):
                results[number] = one

    async def _at(self, place: Place, probes: Mapping[int, Probe]) -> dict[int, Result]:
        asked = [
            {
                "id": number,
                "host": one.target.host,
                "port": one.target.port,
                "seconds": self._each,
                "for": self._speed,
                "kind": "speed"
                if one.target.kind == SPEED
                else "connect"
                if one.target.kind in (NODES, OUTSIDE)
                else "full",
            }
            for number, one in probes.items()
        ]
        words = self._stage.command(place, [*PYTHON, program(), "ask"])
        limit = seconds_of(list(probes.values()), self._each, self._speed)
        text, error = await run(words, json.dumps(asked).encode(), limit)
        answers: dict[int, dict[str, Any]] = {}
        if not error:
            try:
                answers = {int(one["id"]): one for one in json.loads(text)}
            except (ValueError, KeyError, TypeError):
                error = f"the probe's answer is not its own: {text[:200]!r}"
        return {
            number: _result(one, answers.get(number), error or "the probe gave no result")
            for number, one in probes.items()
        }


def _result(probe: Probe, answer: Mapping[str, Any] | None, error: str) -> Result:
    if answer is None:
        return Result(probe, "not run", error)
    return Result(
        probe,
        str(answer.get("outcome", "silent")),
        str(answer.get("error", "")),
        str(answer.get("name", "")),
        answer.get("latency_ms", answer.get("connect_ms")),
        answer.get("bits"),
    )


async def run(words: Sequence[str], stdin: bytes = b"", limit: float = 60.0) -> tuple[str, str]:
    """What a program said, and why it failed; empty where it did not. A failure raises nothing."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return "", f"{words[0]}: {error.strerror}"
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), limit)
    except BaseException as error:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            return "", f"{words[0]}: no end within {limit:g} s"
        raise
    text = out.decode(errors="replace")
    if process.returncode:
        said = err.decode(errors="replace").strip() or text.strip()
        return text, f"{words[0]}: status {process.returncode}: {said[-300:]}"
    return text, ""
