"""From decisions to rules of the kernel and back, and to the rules as they were written."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from felix.calc.policy.rules import resolve
from felix.calc.policy_model import ResolvedPolicy, Verb
from felix.explain.flow import Kind
from felix.explain.places import place_of, rule_at, rule_place, spans
from felix.explain.world import calculate
from felix.explain.written import origins, written
from felix.rules.endpoints import Verdicts
from felix.rules.inputs import RuleSettings
from felix.rules.model import Accept, Drop, SetMark
from felix.rules.nflog_prefix import Tell
from felix.rules.policy import policy_chains
from libcalico.model import ResourceKey
from tests.policy_random.generator import imaginary_pods, make_world
from tests.support.explain_world import ALLOW, DB, DENY, asked, host, policy, questions, shop
from tests.support.explaining import world_of

SETTINGS = RuleSettings()
TELLING = RuleSettings(verdicts=Verdicts(Accept(), Drop(), tell=Tell.DENIED))
DB_KEY = ResourceKey("NetworkPolicy", "db", "shop")


def test_the_rule_that_decides_is_found_in_its_chain() -> None:
    world = shop(DB)
    found = questions(world, "shop/web-0", "shop/db-0")
    allowed = found.ask(Kind(6, 5432), 4).stations[1]
    place = place_of(found, allowed, 4)
    # 1 log; 2 deny, 3 drop; 4 allow: the marks of two rules, and what follows each.
    assert str(place) == "filter cali-pi-np/shop/db rule 4"
    ended = found.ask(Kind(6, 1), 4).stations[1]
    assert str(place_of(found, ended, 4)) == "filter cali-tw-cali28 rule 7"
    profile = found.ask(Kind(6, 1), 4).stations[0]
    assert str(place_of(found, profile, 4)) == "filter cali-pro-kns.shop rule 1"


@pytest.mark.parametrize("stage", ["normal", "untracked", "preDNAT", "forward"])
def test_every_stage_of_a_host_has_its_table_and_chain(stage: str) -> None:
    gate = host("gate", "node2", "*", labels={"role": "host"}, expectedIPs=["10.99.0.2"])
    spec: dict[str, Any] = {
        "normal": {},
        "untracked": {"doNotTrack": True, "applyOnForward": True},
        "preDNAT": {"preDNAT": True, "applyOnForward": True},
        "forward": {"applyOnForward": True},
    }[stage]
    deny = policy("deny", "role == 'host'", types=["Ingress"], ingress=[DENY], **spec)
    world = shop(gate, deny)
    to = "shop/db-0" if stage == "forward" else "gate"
    found = questions(world, "shop/web-0", to)
    station = found.ask(Kind(6, 1), 4).stations[-1]
    assert (station.stage, station.ruling.allowed) == (stage, False)
    table = {"untracked": "raw", "preDNAT": "mangle"}.get(stage, "filter")
    assert str(place_of(found, station, 4)) == f"{table} cali-pi-gnp/deny rule 1"
    # The end of a tier stands in the host endpoint's own chain.
    some = policy("deny", "role == 'host'", types=["Ingress"],
                  ingress=[{**ALLOW, "protocol": "UDP"}], **spec)  # fmt: skip
    found = questions(shop(gate, some), "shop/web-0", to)
    station = found.ask(Kind(6, 1), 4).stations[-1]
    if stage in ("normal", "forward"):
        chain = "cali-fhfw-" if stage == "forward" else "cali-fh-any-interface-at-all"
        place = place_of(found, station, 4)
        assert place is not None
        assert place.chain.startswith(chain)
        assert place.rule > 0


@pytest.mark.parametrize("settings", [SETTINGS, TELLING], ids=["silent", "telling"])
def test_rules_of_a_chain_belong_to_one_resolved_rule_each(settings: RuleSettings) -> None:
    pods = imaginary_pods()
    decided = 0
    for number in range(5):
        world = world_of(make_world(5, number, pods).documents)
        engine = calculate(world, [key for key, _ in world.of("WorkloadEndpoint")]).engine
        for resolved in (*engine.policies.values(), *engine.profiles.values()):
            for version, ingress in product((4, 6), (True, False)):
                decided += deciding_rules(resolved, version, settings, ingress=ingress)
    assert decided > 150


def deciding_rules(
    resolved: ResolvedPolicy, version: int, settings: RuleSettings, *, ingress: bool
) -> int:
    """How many rules of a chain were found by their resolved rule, and led back to it."""
    both = policy_chains(resolved, version, settings.marks, settings.verdicts)
    chain = both[0 if ingress else 1]
    rules = resolved.ingress if ingress else resolved.egress
    lengths = spans(resolved, version, settings, ingress=ingress)
    assert len(lengths) == len(rules)
    # What is missing at the end are returns that nothing follows.
    assert 0 <= sum(lengths) - len(chain.rules) <= 2 or not any(lengths)
    decided = 0
    for index, length in enumerate(lengths):
        if not length:
            continue
        place = rule_place(resolved, index, version, settings, ingress=ingress)
        if not place.rule:
            assert (rules[index].verb, resolved.tier) == (Verb.PASS, "")
            continue
        assert rule_at(resolved, place.rule, version, settings, ingress=ingress) == index
        decided += isinstance(chain.rules[place.rule - 1].action, SetMark)
    assert rule_at(resolved, 999, version, settings, ingress=ingress) is None
    return decided


def test_numbers_are_those_that_the_operator_counts() -> None:
    """A written rule may have become two, or none."""
    two = {"action": "Allow", "notICMP": {"type": 8}}
    none = {"action": "Log", "http": {"methods": ["GET"]}}
    world = shop(policy("mixed", types=["Ingress"], ingress=[none, two, {"action": "Pass"}]))
    key = ResourceKey("GlobalNetworkPolicy", "mixed")
    stored = world.objects[key]
    assert len(resolve(stored.spec.ingress, "spec.ingress").rules) == 5
    assert origins(key, stored, ingress=True) == (1, 1, 1, 1, 2)
    assert origins(key, stored, ingress=False) == ()
    found = written(key, stored, 4, ingress=True)
    assert found is not None
    assert (found[0], found[1].action) == (2, "Pass")


@pytest.mark.parametrize("services", [False, True])
def test_a_rule_that_names_a_service_counts_where_services_are_known(services: bool) -> None:
    """Who does not know its endpoints makes no rule of it; the numbers behind it stay right."""
    web = {"action": "Allow", "source": {"services": {"name": "web", "namespace": "shop"}}}
    key = ResourceKey("GlobalNetworkPolicy", "mixed")
    world = shop(policy("mixed", types=["Ingress"], ingress=[web, {"action": "Pass"}]))
    stored = world.objects[key]
    rules = resolve(stored.spec.ingress, "spec.ingress", services=services).rules
    assert origins(key, stored, ingress=True, services=services) == (0, 1)[-len(rules) :]
    found = written(key, stored, len(rules) - 1, ingress=True, services=services)
    assert found is not None
    assert (found[0], found[1].action) == (1, "Pass")


def test_a_closed_policy_has_no_rule_that_anybody_wrote() -> None:
    closed = policy("bad", types=["Ingress"], ingress=[ALLOW, {"action": "Allow", "protocol": "x"}])
    world = shop(closed)
    key = ResourceKey("GlobalNetworkPolicy", "bad")
    assert written(key, world.objects[key], 0, ingress=True) is None
    assert written(key, None, 0, ingress=True) is None
    found = asked(world, "shop/web-0", "shop/db-0")
    assert not found.allowed
    assert any("closed" in note for note in found.notes)


def test_the_place_says_where_a_rule_ends() -> None:
    world = shop(DB)
    engine = calculate(world, [k for k, _ in world.of("WorkloadEndpoint")]).engine
    resolved = engine.policies[DB_KEY]
    denied = rule_place(resolved, 1, 4, SETTINGS, ingress=True)
    assert (denied.first, denied.rule, denied.last) == (2, 2, 3)
    told = rule_place(resolved, 1, 4, TELLING, ingress=True)
    assert (told.first, told.rule, told.last) == (2, 2, 4)
    missing = replace(resolved, missing=True)
    assert rule_place(missing, 0, 4, SETTINGS, ingress=True).rule == 1
