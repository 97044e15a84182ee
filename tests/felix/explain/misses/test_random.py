"""MIS-1: a rule has no fault exactly if it matches, in random worlds."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

import pytest

from felix.explain.flow import Packet
from felix.explain.matching import Matcher
from felix.explain.misses.clauses import Clauses
from felix.explain.misses.labelled import Directory
from felix.explain.world import calculate
from felix.explain.written import origins
from tests.policy_random import flows
from tests.policy_random.generator import imaginary_pods, make_world
from tests.size import examples
from tests.support.explaining import kind_of, world_of

PODS = imaginary_pods()
SEED = 717
ADDRESSES = {pod.title: [ip_address(a) for a in pod.addresses] for pod in PODS}


def differences(number: int, seen: Counter[bool]) -> list[str]:
    """Rules of which the clauses and the kernel's conditions say different things."""
    world = world_of(make_world(SEED, number, PODS).documents)
    keys = [key for key, _ in world.of("WorkloadEndpoint")]
    engine = calculate(world, keys).engine
    matcher, clauses = Matcher(engine), Clauses(world, Directory(world))
    wrong = []
    for flow in flows.sample(PODS, 4, (SEED, number)):
        ends = [
            next(a for a in ADDRESSES[title] if a.version == flow.version)
            for title in (flow.source, flow.destination)
        ]
        packet = Packet(ends[0], ends[1], kind_of(flow))
        for key in engine.policies:
            for ingress in (True, False):
                stored = world.objects[key]
                came = origins(key, stored, ingress=ingress)
                rules = stored.spec.ingress if ingress else stored.spec.egress
                for n, rule in enumerate(rules):
                    if not came or rule.action == "Log":
                        continue
                    hit = any(
                        origin == n and matcher.matches(key, number, packet, ingress=ingress)
                        for number, origin in enumerate(came)
                    )
                    faults = clauses.faults(key, rule, packet)
                    seen[hit] += 1
                    if hit is bool(faults):
                        wrong.append(f"world {number}: {flow}: {key} {ingress} {n}: {hit} {faults}")
    return wrong


@pytest.mark.parametrize("first", range(0, 4))
def test_clauses_agree_with_the_rules_of_the_kernel(first: int) -> None:
    """MIS-1"""
    wrong, seen = [], Counter[bool]()
    for number in range(first, examples(120), 4):
        wrong += differences(number, seen)
    assert not wrong, "\n".join(wrong[:5])
    assert min(seen[True], seen[False]) > 50
