"""Calculation and renderer against the oracle on many worlds, without packets: mismatch 0."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from felix.calc.policy_model import ResolvedPolicy
from felix.rules import policy as policy_renderer
from felix.rules.blocks import Block, block_rules
from felix.rules.model import Chain, Marks, Rule, clear_bits
from tests.policy_random import flows
from tests.policy_random.differential import Mismatch, Pair
from tests.policy_random.generator import imaginary_pods, make_world
from tests.policy_random.plants import PLANTS
from tests.policy_random.simulator import Render, render

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEED = int(os.environ.get("MUSLIN_POLICY_SEED", "20"))
WORLDS = 10_000 if FULL else 30
ROW = 10
FLOWS = 120
MOST_WORLDS = 80
POD_SETS = imaginary_pods()


def mismatches(
    seed: int, first: int, last: int, renderer: Render = render
) -> Iterator[list[Mismatch]]:
    """One pair of nodes lives through worlds `first` to `last`; of each what is wrong there."""
    random = Random(f"row/{seed}/{first}")
    # Every third row has no Kubernetes API that tells of services.
    pair = Pair(renderer, services=first // ROW % 3 > 0)
    for number in range(first, last):
        world = make_world(seed, number, POD_SETS)
        pair.become(world, random)
        yield pair.compare(world, flows.sample(POD_SETS, FLOWS, (seed, number)))
        assert not pair.host_lists(world), f"seed {seed} world {number}"


def caught(renderer: Render = render) -> bool:
    """Whether one of the first worlds betrays a bug; the worlds behind it are not asked."""
    rows = (mismatches(SEED, at, at + ROW, renderer) for at in range(0, MOST_WORLDS, ROW))
    return any(found for row in rows for found in row)


@pytest.mark.promise("M-116")
@pytest.mark.parametrize("first", range(0, WORLDS, max(ROW, WORLDS // 10)))
def test_the_product_agrees_with_the_oracle(first: int) -> None:
    last = first + max(ROW, WORLDS // 10)
    rows = (mismatches(SEED, at, at + ROW) for at in range(first, last, ROW))
    found = [mismatch for row in rows for world in row for mismatch in world]
    assert not found, f"{len(found)} mismatches\n" + "\n".join(str(m) for m in found[:5])


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: str) -> None:
    def planted(policy: ResolvedPolicy, version: int) -> tuple[Chain, Chain]:
        change = PLANTS[plant]
        return render(
            replace(
                policy,
                ingress=tuple(change(rule) for rule in policy.ingress),
                egress=tuple(change(rule) for rule in policy.egress),
            ),
            version,
        )

    assert caught(planted), f"nobody noticed: {plant}"


def test_a_bug_in_the_blocks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three choices in one rule the third is not enforced: the second scratch bit stays set."""
    whole = block_rules

    def broken(blocks: Sequence[Block], marks: Marks) -> list[Rule]:
        forgets = clear_bits(marks.scratch1)
        return [r for r in whole(blocks, marks) if r.match or r.action != forgets]

    monkeypatch.setattr(policy_renderer, "block_rules", broken)
    # What was made of equal rules before is without the bug.
    monkeypatch.setattr(policy_renderer, "_made", lambda *_: policy_renderer.Made())
    assert caught()


def test_what_is_told_does_not_depend_on_history() -> None:
    """The last world of a row, reached by differences, equals the same world from nothing."""
    last = make_world(SEED, 7, POD_SETS)
    lived, fresh = Pair(), Pair()
    for number in (3, 4, 5, 6, 7):
        lived.become(make_world(SEED, number, POD_SETS), Random(number))
    fresh.become(last, Random(0))
    for name, node in lived.nodes.items():
        other = fresh.nodes[name]
        for table in ("policies", "profiles", "endpoints"):
            assert getattr(node, table) == getattr(other, table)
        assert {k: v.members for k, v in node.sets.items()} == {
            k: v.members for k, v in other.sets.items()
        }
