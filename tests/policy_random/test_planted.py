"""A felix with a bug in its renderer, on a real node: the packets must betray it.

For each bug a world is chosen in which, by the oracle, it changes what a packet may do. The buggy
felix must then disagree with the world as written and agree with the world in which the documents
say what the bug makes of them: so the comparison sees this bug and nothing else.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.policy_random import coverage, flows
from tests.policy_random.generator import Pod, World, make_world
from tests.policy_random.oracle import Flow, Oracle
from tests.policy_random.packets import packet_lab

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEED = 9
PLANTED = Path(__file__).with_name("planted")
# The bug in the renderer, and what it makes of the documents.
BUGS = {
    "pass is allow": ("Pass is Allow",),
    "notNets ignored": ("source notNets ignored", "destination notNets ignored"),
    "ranges end one late": ("range ends one late",),
}


def bent(world: World, mutations: tuple[str, ...]) -> World:
    """The world as the bug reads it."""
    documents = copy.deepcopy(world.documents)
    for name in mutations:
        coverage.MUTATIONS[name](documents)
    return replace(world, documents=documents)


def telling(pods: list[Pod], tried: list[Flow], mutations: tuple[str, ...]) -> World:
    """The first world in which the bug changes verdicts."""
    for number in count():
        world = make_world(SEED, number, pods)
        right, wrong = Oracle(world.documents), Oracle(bent(world, mutations).documents)
        if any(right.allows(flow) != wrong.allows(flow) for flow in tried):
            return world
    raise AssertionError("unreachable")


@pytest.mark.parametrize("bug", list(BUGS) if FULL else list(BUGS)[:1])
def test_packets_betray_a_bug_of_the_renderer(bug: str) -> None:
    settings = {"PYTHONPATH": str(PLANTED), "MUSLIN_PLANTED": bug}
    with packet_lab(f"bug{os.getpid()}", nodes=1, environment=settings) as lab:
        tried = flows.every(lab.pods)
        world = telling(lab.pods, tried, BUGS[bug])
        lab.become(world)
        assert lab.differences(bent(world, BUGS[bug]), tried) == []
        assert lab.differences(world, tried, later=False), f"nobody noticed: {bug}"
