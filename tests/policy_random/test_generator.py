"""What the generator reaches, that its worlds are valid, and that they are reproducible."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import yaml

from libcalico.model import codec, defaults
from libcalico.model.validation import validate
from tests.policy_random import coverage, flows
from tests.policy_random.generator import imaginary_pods, make_world
from tests.policy_random.oracle import Oracle

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
WORLDS = 300 if FULL else 120
ENOUGH = 3
SEED = 4711


@pytest.mark.promise("M-116")
def test_every_field_operator_and_action_is_reached_and_its_loss_noticed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pods = imaginary_pods()
    seen: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for number in range(WORLDS):
        world = make_world(SEED, number, pods)
        seen += coverage.features(world)
        coverage.notice(changed, world, flows.sample(pods, 150, number), ENOUGH)
        if not FULL and coverage.expected() <= set(seen) and min(changed.values()) >= ENOUGH:
            break
    with capsys.disabled():
        print(f"\n{number + 1} worlds of seed {SEED}\n{coverage.table(seen, changed)}")
    assert not coverage.expected() - set(seen)
    assert not [name for name, count in changed.items() if count < ENOUGH]


def test_a_world_is_reproducible_and_survives_yaml() -> None:
    pods = imaginary_pods()
    world = make_world(SEED, 3, pods)
    assert make_world(SEED, 3, pods).yaml == world.yaml
    assert make_world(SEED, 4, pods).yaml != world.yaml
    tried = flows.sample(pods, 100, 3)
    again = Oracle.from_yaml(world.yaml)
    oracle = Oracle(world.documents)
    assert [oracle.allows(f) for f in tried] == [again.allows(f) for f in tried]
    assert list(yaml.safe_load_all(world.yaml)) == world.documents


def test_twelve_pods_in_three_namespaces_on_two_nodes() -> None:
    pods = imaginary_pods()
    assert len(pods) == 12
    assert len({(pod.namespace, pod.node) for pod in pods}) == 6
    world = make_world(SEED, 0, pods)
    assert len(world.of("NetworkPolicy", "GlobalNetworkPolicy")) == 20


def test_worlds_are_documents_that_calico_accepts() -> None:
    for number in range(WORLDS):
        for document in make_world(SEED, number, imaginary_pods()).documents:
            resource = defaults.apply_defaults(codec.resource_from_tree(document, strict=True))
            assert validate.problems(resource) == [], document


def test_verdicts_mix() -> None:
    pods = imaginary_pods()
    counts: Counter[str] = Counter()
    for number in range(40):
        oracle = Oracle(make_world(SEED, number, pods).documents)
        for flow in flows.sample(pods, 50, number):
            egress, ingress = oracle.egress(flow), oracle.ingress(flow)
            for name, yes in (("egress", egress.allowed), ("ingress", ingress.allowed)):
                counts[f"{name} {'allowed' if yes else 'denied'}"] += 1
            by = "profile" if "profile" in egress.by else "tier" if "tier" in egress.by else "rule"
            counts[by] += 1
    assert min(counts.values()) > 40 * 50 * 0.05, counts
