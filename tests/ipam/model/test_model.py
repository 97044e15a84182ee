"""The production allocator and collector in a world where everything goes wrong.

    h0 ── daemon ──┐   a step: one store call is answered, lost, applied unheard, or hangs and
    h1 ── daemon ──┤   arrives late; or a daemon is killed before or after a call; a host is
    h2 ── daemon ──┼── store   cut off, reboots, goes blind; between the steps pods come, go and
    h3 ── daemon ──┤           vanish, collectors sweep, pools are disabled and remade, strict
    operators ─────┘           affinity changes, half claims of Calico lie about

After every commit the invariants of `tests.ipam.model.invariants` hold, and when everything
has come to rest nothing is left of anybody. Hypothesis writes the tapes and shrinks a bad one.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.ipam.model.explorer import Explorer

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
STEPS = 100_000 if FULL else 6_000
TAPE = 3_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.ipam_model
@pytest.mark.promise("F-28", "PAIN-1", "PAIN-2", "PAIN-3")
def test_no_step_gives_an_address_twice_or_loses_one(capsys: pytest.CaptureFixture[str]) -> None:
    did: Counter[str] = Counter()
    steps = 0
    number = 0

    def play(tape: bytes) -> None:
        nonlocal steps
        explorer = Explorer(tape)
        try:
            explorer.run()
        finally:
            steps += explorer.steps
            did.update(explorer.did)

    while steps < STEPS:
        number += 1
        tapes = st.binary(min_size=TAPE, max_size=TAPE)
        limits = settings(
            max_examples=10,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink] if FULL else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        seed(number)(limits(given(tape=tapes)(play)))()
    crashes = did["crash"] + did["crash before"] + did["crash after"]
    with capsys.disabled():
        print(
            f"\nIPAM model: {steps:,} steps with {did['granted']:,} addresses granted, "
            f"{did['borrowed']:,} of them borrowed, {did['collected']:,} dead pods collected, "
            f"{crashes:,} crashes, {did['arrives late']:,} late commits"
        )
    # A world in which nothing happens proves nothing.
    for happened in ("granted", "borrowed", "collected", "arrives late", "half claim", "reboot"):
        assert did[happened], happened


@pytest.mark.ipam_model
def test_the_same_tape_is_the_same_run() -> None:
    tape = bytes(range(7, 249)) * 8
    first, second = Explorer(tape), Explorer(tape)
    first.run()
    second.run()
    assert first.trace == second.trace
