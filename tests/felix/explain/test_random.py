"""EXP-1, EXP-2: explain's verdict, decider and rule are the oracle's, in random worlds."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from felix.explain import matching
from felix.explain.ends import find
from felix.explain.path import Questions
from felix.explain.places import place_of
from felix.explain.stations import Station
from felix.explain.walk import By
from felix.explain.written import written
from tests.policy_random import flows
from tests.policy_random.generator import World as Documents
from tests.policy_random.generator import imaginary_pods, make_world
from tests.policy_random.oracle import Decision, Flow, Oracle
from tests.support.explaining import explained, is_as_certain_as_it_should_be, kind_of, world_of

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEED = int(os.environ.get("MUSLIN_POLICY_SEED", "606"))
PODS = imaginary_pods()
WORLDS, ROW, FLOWS = (400, 40, 12) if FULL else (30, 10, 6)


def told(questions: Questions, station: Station) -> Decision:
    """A station's ruling in the oracle's words."""
    ruling = station.ruling
    key, number = ruling.policy, None
    if key is not None and ruling.rule is not None:
        stored = questions.world.objects.get(key)
        found = written(key, stored, ruling.rule, ingress=station.ingress)
        number = None if found is None else found[0]
    if ruling.by is By.TIER_END:
        by = f"end of tier {ruling.tier}"
    elif key is None:
        by = "end of profiles"
    elif key.kind == "Profile":
        missing = ruling.by is By.MISSING_PROFILE
        by = f"profile {key.name} is missing" if missing else f"profile {key.name}"
    else:
        by = f"{key.name}/{key.namespace}/{key.kind}"
    return Decision(bool(ruling.allowed), by, number)


def pods_only(documents: Documents) -> list[dict[str, Any]]:
    """The world with its host endpoints on other nodes: rules mean them, but they judge nothing."""
    return [
        {**d, "spec": {**d["spec"], "node": "elsewhere"}} if d["kind"] == "HostEndpoint" else d
        for d in documents.documents
    ]


def differences(documents: Documents, flow: Flow, seen: Counter[By]) -> list[str]:
    """What explain and the oracle disagree about."""
    oracle, world = Oracle(documents.documents), world_of(pods_only(documents))
    questions = Questions(world, find(world, flow.source), find(world, flow.destination))
    explanation = questions.ask(kind_of(flow), flow.version)
    truth = {False: oracle.egress(flow), True: oracle.ingress(flow)}
    wrong = []
    # The worlds have no services: a service without endpoints matches nothing, as explain takes it.
    certain = is_as_certain_as_it_should_be(explanation)
    if explanation.allowed is not oracle.allows(flow) or not certain:
        wrong.append(f"{flow}: explain says {explanation.allowed}, oracle {truth}")
    for station in explanation.stations:
        found = told(questions, station)
        seen[station.ruling.by] += 1
        if found != truth[station.ingress]:
            wrong.append(f"{flow}: {station.direction} {found}, oracle {truth[station.ingress]}")
        place = place_of(questions, station, flow.version)
        if place is None or not place.rule:
            wrong.append(f"{flow}: {station.direction}: no rule of the kernel carries {found}")
    return wrong


@pytest.mark.parametrize("first", range(0, WORLDS, ROW))
def test_explain_agrees_with_the_oracle(first: int) -> None:
    wrong, seen = [], Counter[By]()
    for number in range(first, first + ROW):
        documents = make_world(SEED, number, PODS)
        for flow in flows.sample(PODS, FLOWS, (SEED, number)):
            wrong += [f"world {number}: {w}" for w in differences(documents, flow, seen)]
    assert not wrong, "\n".join(wrong[:5])
    assert seen[By.RULE] > ROW
    assert seen[By.TIER_END] > 0


def test_a_planted_bug_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matcher that takes no notice of blocks."""
    monkeypatch.setattr(matching.Matcher, "_block", lambda *_: True)
    seen = Counter[By]()
    for number in range(60):
        documents = make_world(SEED, number, PODS)
        sampled = flows.sample(PODS, FLOWS, (SEED, number))
        if any(differences(documents, flow, seen) for flow in sampled):
            return
    raise AssertionError("nobody noticed")


def test_the_verdict_alone_is_what_the_lab_compares() -> None:
    documents = make_world(SEED, 0, PODS)
    oracle = Oracle(documents.documents)
    for flow in flows.sample(PODS, 10, SEED):
        assert explained(pods_only(documents), flow).allowed is oracle.allows(flow)
