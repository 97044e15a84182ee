"""Answers for all ports at once, as data, and what staged policies would change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.explain.classes import classes, merged
from felix.explain.flow import ICMP_OF, Kind
from felix.explain.report import Answer, answers, as_tree, decided_by
from felix.explain.world import World
from libcalico.model import ResourceKey
from tests.policy_random.generator import imaginary_pods, make_world
from tests.size import examples
from tests.support.explain_world import ALLOW, DB, DENY, asked, document, policy, questions, shop
from tests.support.explaining import alike, world_of


def table(world: World, source: str, destination: str, **only: Any) -> dict[str, bool]:
    """Packets and whether they pass."""
    found = answers(questions(world, source, destination), 4, **only)
    return {answer.packets: answer.explanation.allowed for answer in found}


def test_without_a_port_the_answer_is_told_for_all_of_them() -> None:
    world = shop(DB)
    assert table(world, "shop/web-0", "shop/db-0", protocol=6) == {
        "tcp 5432,8080-8090": True,
        "tcp 0-5431,5433-8079,8091-65535": False,
    }
    assert table(world, "shop/web-0", "shop/db-0") == {
        "tcp 5432,8080-8090": True,
        "tcp 0-5431,5433-8079,8091-65535; icmp; udp; other protocols": False,
    }
    assert table(world, "shop/web-0", "shop/web-1") == {"all packets": True}


def test_one_kind_has_one_answer() -> None:
    found = answers(questions(shop(DB), "shop/web-0", "shop/db-0"), 4, kind=Kind(6, 5432))
    (answer,) = found
    assert answer.packets == "tcp port 5432"
    ingress = answer.judgements[1]
    assert (ingress.field, ingress.number) == ("ingress[2]", 2)
    assert json.loads(ingress.rule)["destination"] == {"ports": [5432, "8080:8090"]}
    assert decided_by(ingress) == "tier default, NetworkPolicy shop/db, ingress[2]"
    assert decided_by(answer.judgements[0]) == "Profile kns.shop, egress[0]"


def test_named_ports_and_messages_are_told_apart() -> None:
    named = policy(
        "named", "role == 'db'", types=["Ingress"],
        ingress=[
            {**ALLOW, "protocol": "TCP", "destination": {"ports": ["sql"]}},
            {**ALLOW, "protocol": "ICMP", "icmp": {"type": 8, "code": 0}},
            {**DENY, "protocol": "ICMP", "icmp": {"type": 3}},
        ],
    )  # fmt: skip
    found = table(shop(named), "shop/web-0", "shop/db-0")
    assert found["tcp 5432"] is True
    assert found["icmp type 8 code 0"] is True
    assert found["icmp type 3"] is False
    assert len(found) == 4


def test_ranges_are_joined_where_they_touch() -> None:
    assert merged(["tcp 0-79", "tcp 80", "tcp 443", "udp 0-65535", "icmp"]) == (
        "tcp 0-80,443; udp; icmp"
    )


@settings(max_examples=examples(40), deadline=None)
@given(
    number=st.integers(0, 200),
    version=st.sampled_from([4, 6]),
    protocol=st.sampled_from([6, 17, 253, 132, 47, None]),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    message=st.tuples(st.integers(0, 20), st.integers(0, 4)),
)
def test_packets_of_one_class_fare_alike(
    number: int, version: int, protocol: int | None, ports: tuple[int, int],
    message: tuple[int, int],
) -> None:  # fmt: skip
    """CLS-1: any packet has the verdict of the class whose ranges it falls into."""
    pods = imaginary_pods()
    world = world_of(make_world(8, number % 12, pods).documents)
    source, destination = pods[number % 12].title, pods[(number * 7 + 1) % 12].title
    if source == destination:
        return
    found = questions(world, source, destination)
    engine = found.calculation("").engine
    rules = [
        rule
        for policy in (*engine.policies.values(), *engine.profiles.values())
        for rule in (*policy.ingress, *policy.egress)
    ]
    number = ICMP_OF[version] if protocol is None else protocol
    kind = Kind(number, *ports) if number in (6, 17, 132) else Kind(number, 0, 0)
    if protocol is None:
        kind = Kind(number, 0, 0, *message)
    made = classes(
        rules, version, protocol=number,
        destination=world.ports(found.destination.endpoint),
        source=world.ports(found.source.endpoint),
    )  # fmt: skip
    (own,) = alike(made, kind)
    assert found.ask(kind, version).allowed is found.ask(own.example, version).allowed


def test_staged_policies_change_nothing_and_are_told() -> None:
    """EXP-4"""
    staged = document(
        "StagedNetworkPolicy", "lock", "shop", tier="default", selector="role == 'db'",
        types=["Ingress"], ingress=[DENY], stagedAction="Set", order=1,
    )  # fmt: skip
    before, after = shop(DB), shop(DB, staged)
    plain = asked(before, "shop/web-0", "shop/db-0")
    assert asked(after, "shop/web-0", "shop/db-0") == plain
    (answer,) = answers(questions(after, "shop/web-0", "shop/db-0"), 4, kind=Kind(6, 5432))
    assert answer.explanation.allowed
    assert answer.would is not None
    assert not answer.would.allowed
    assert answer.would.decider is not None
    assert answer.would.decider.ruling.policy == ResourceKey("NetworkPolicy", "lock", "shop")
    assert told(answer, before)["would"]["stations"][1]["ruleNumber"] == 0


def told(answer: Answer, world: World) -> dict[str, Any]:
    tree: dict[str, Any] = as_tree(questions(world, "shop/web-0", "shop/db-0"), [answer])
    json.dumps(tree)
    only: dict[str, Any] = tree["answers"][0]
    return only


@pytest.mark.parametrize(("action", "told"), [("Delete", True), ("Ignore", False)])
def test_a_staged_deletion_takes_its_target_away(action: str, told: bool) -> None:
    staged = document(
        "StagedNetworkPolicy", "db", "shop", tier="default", stagedAction=action
    )  # fmt: skip
    found = answers(questions(shop(DB, staged), "lab/guest", "shop/db-0"), 4, kind=Kind(6, 5432))
    assert not found[0].explanation.allowed
    assert (found[0].would is not None) is told
    if found[0].would is not None:
        assert found[0].would.allowed


def test_a_staged_policy_that_would_decide_alike_is_not_told() -> None:
    staged = {**DB, "kind": "StagedNetworkPolicy", "spec": {**DB["spec"], "stagedAction": "Set"}}
    (answer,) = answers(
        questions(shop(DB, staged), "shop/web-0", "shop/db-0"), 4, kind=Kind(6, 5432)
    )
    assert answer.would is None
