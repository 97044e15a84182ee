"""In random worlds the aggregator lists what was sent, with the rule that decided.

1,000 worlds where this file is named, a few in the fast tier.
"""

from __future__ import annotations

from collections import Counter

import pytest

from felix.flows import hits
from tests.flows.worlds_oracle import Amount, Row, Truth
from tests.flows.worlds_played import Losses, Played, row_of
from tests.flows.worlds_sent import SentWorld, sent_world
from tests.size import FULL

SEED, ROWS = 1111, 8
WORLDS, LOSSY = (1000, 100) if FULL else (40, 16)
CONNECTIONS = 40


def listed(played: Played) -> dict[Row, Amount]:
    """The rows of a played world. Two pods of one name may have two traces with one decider."""
    rows: dict[Row, Amount] = {}
    for seen in played.listed():
        row, amount = row_of(seen)
        rows[row] = rows[row].plus(amount) if row in rows else amount
    return rows


def differences(truth: dict[Row, Amount], rows: dict[Row, Amount]) -> list[str]:
    """What is listed otherwise than it was sent."""
    wrong = [f"not listed: {row}" for row in truth.keys() - rows.keys()]
    wrong += [f"never sent: {row}" for row in rows.keys() - truth.keys()]
    wrong += [
        f"{row}: listed {rows[row]}, sent {truth[row]}"
        for row in truth.keys() & rows.keys()
        if truth[row] != rows[row]
    ]
    return wrong


def played(number: int, losses: Losses | None = None) -> tuple[SentWorld, Played]:
    world = sent_world(SEED, number, CONNECTIONS)
    return world, Played(world, number, losses)


@pytest.mark.parametrize("first", range(ROWS))
def test_what_is_listed_is_what_was_sent(first: int) -> None:
    wrong, kinds = [], Counter[str]()
    for number in range(first, WORLDS, ROWS):
        world, done = played(number)
        truth = Truth(world).rows()
        wrong += [f"world {number}: {one}" for one in differences(truth, listed(done))]
        for row in truth:
            kinds["allowed" if row.allowed else "denied"] += 1
            kinds["staged"] += (row.allowed, row.by, row.rule) != row.would_be
            kinds[row.source[0]] += 1
            kinds[row.destination[0]] += 1
    assert not wrong, "\n".join(wrong[:4])
    if FULL:  # a few worlds need not have all of it
        assert min(kinds[kind] for kind in ("allowed", "denied", "staged", "NETWORK")) > 0


@pytest.mark.parametrize("first", range(4))
def test_planted_losses_are_counted(first: int) -> None:
    seen = Counter[str]()
    for number in range(first, LOSSY, 4):
        losses = Losses(most=(6, 12, 30)[number % 3], late=0.1, twice=0.2)
        world, done = played(number, losses)
        truth = Truth(world).rows()
        rows = listed(done)
        lost = [node.lost for node in done.nodes.values()]
        planted = losses.planted["late"]
        assert sum(done.store.ring.left_out.values()) == planted
        missing = sum(each.packets for each in truth.values()) - sum(
            each.packets for each in rows.values()
        )
        counted = sum(one.connections + one.flows for one in lost) + planted
        assert missing >= 0
        assert not missing or counted, f"world {number}: {missing} packets lack, nothing says so"
        assert all(row in truth for row in rows), f"world {number}: listed what was never sent"
        seen["missing"] += bool(missing)
        seen["connections"] += sum(one.connections for one in lost)
        seen["flows"] += sum(one.flows for one in lost)
        seen["twice"] += losses.planted["twice"]
        seen["late"] += planted
    assert min(seen[kind] for kind in ("missing", "connections", "flows", "twice", "late")) > 0


def test_a_planted_bug_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are called by their numbers in the kernel, not by those of the operator."""
    monkeypatch.setattr(hits, "written", lambda *_, **__: None)
    for number in range(60):
        world, done = played(number)
        if differences(Truth(world).rows(), listed(done)):
            return
    raise AssertionError("nothing noticed it")
