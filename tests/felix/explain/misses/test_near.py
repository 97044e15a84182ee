"""Planted mistakes: each is named by its clause, the label that lacks, and a hint."""

from __future__ import annotations

from typing import Any

import pytest

from felix.explain.flow import Kind
from felix.explain.misses.faults import NearMiss
from felix.explain.misses.labelled import Directory
from felix.explain.misses.near import MOST_MISSES
from felix.explain.misses.terms import lacking
from felix.explain.misses.tree import miss_tree
from felix.explain.report import answers
from felix.explain.world import World
from felix.explain.written import written
from libcalico.model import ResourceKey
from libcalico.selectors.selectors import parse
from tests.support.explain_world import (
    ALLOW,
    DB,
    DENY,
    Document,
    document,
    host,
    pod,
    policy,
    questions,
    shop,
)

SQL = Kind(6, 5432)
CLOSED = policy("closed", "role == 'db'", "shop", types=["Ingress"])
"""Closes the database; the mistake stands in another policy."""


def near(
    world: World, source: str = "shop/web-0", destination: str = "shop/db-0",
    kind: Kind | None = SQL,
) -> list[NearMiss]:  # fmt: skip
    """The near misses of an answer."""
    (answer, *_) = answers(questions(world, source, destination), 4, kind=kind)
    return list(answer.near.misses)


def to_db(source: Any = None, selector: str = "role == 'db'", **spec: Any) -> Document:
    """A policy of the shop that allows something into the database."""
    rule = {**ALLOW, "source": source} if source is not None else ALLOW
    return policy("try", selector, "shop", **{"types": ["Ingress"], "ingress": [rule], **spec})


def from_web(**rule: Any) -> Document:
    """The same with one rule of any clauses."""
    return to_db(ingress=[{**ALLOW, **rule}])


STAGING = document(
    "Profile", "kns.lab", labelsToApply={"pcns.projectcalico.org/name": "lab", "pcns.env": "test"},
    ingress=[ALLOW], egress=[ALLOW],
)  # fmt: skip
LONG = pod("shop/web-0", 6, "node1", role="web", tier="frontend")
MISTAKES: dict[str, tuple[list[Document], str, str, str, str]] = {
    # documents, source, field, label, words of the hint
    "a label lacks": (
        [to_db({"selector": "team == 'blue'"})], "shop/web-0", "source.selector", "team", "",
    ),
    "a value differs": (
        [to_db({"selector": "role == 'cache'"})], "shop/web-0", "source.selector", "role", "",
    ),
    "a value in other letters": (
        [to_db({"selector": "role == 'Web'"})], "shop/web-0", "source.selector", "role",
        "compared to the letter",
    ),
    "a value nearly spelled": (
        [LONG, to_db({"selector": "tier == 'frontent'"})], "shop/web-0", "source.selector", "tier",
        "spelled nearly like 'frontent'",
    ),
    "a label nearly spelled": (
        [LONG, to_db({"selector": "teir == 'frontend'"})], "shop/web-0", "source.selector", "teir",
        "the label is called tier",
    ),
    "no namespaceSelector": (
        [pod("lab/guest", 9, role="web"), to_db({"selector": "role == 'web'"})], "lab/guest",
        "source.namespaceSelector", "", "add namespaceSelector: projectcalico.org/name == 'lab'",
    ),
    "a namespace's label without pcns": (
        [STAGING, policy("try", "role == 'db'", types=["Ingress"],
                         ingress=[{**ALLOW, "source": {"selector": "env == 'test'"}}])],
        "lab/guest", "source.selector", "env", "write pcns.env",
    ),
    "a namespace's label in a policy of a namespace": (
        [STAGING, to_db({"selector": "env == 'test'"})], "lab/guest", "source.selector", "env",
        "write namespaceSelector: env == 'test'",
    ),
    "pcns in a namespaceSelector": (
        [STAGING, to_db({"namespaceSelector": "pcns.env == 'test'"})], "lab/guest",
        "source.namespaceSelector", "pcns.pcns.env", "write env, without pcns.",
    ),
    "a pod's label in a namespaceSelector": (
        [to_db({"namespaceSelector": "role == 'web'"})], "shop/web-0",
        "source.namespaceSelector", "pcns.role", "label of the pod",
    ),
    "a namespace by a wrong label": (
        [to_db({"namespaceSelector": "name == 'lab'"})], "lab/guest",
        "source.namespaceSelector", "pcns.name", "its label projectcalico.org/name",
    ),
    "a protocol of another kind, the port right": (
        [from_web(protocol="UDP", destination={"ports": [5432]})], "shop/web-0", "protocol", "",
        "add the same rule for TCP",
    ),
    "the port on the sender's side": (
        [from_web(protocol="TCP", source={"ports": [5432]})], "shop/web-0", "source.ports", "",
        "destination.ports",
    ),
    "another port": (
        [from_web(protocol="TCP", destination={"ports": [80]})], "shop/web-0",
        "destination.ports", "", "",
    ),
    "a port by a name that is not given": (
        [from_web(protocol="TCP", destination={"ports": ["mysql"]})], "shop/web-0",
        "destination.ports", "", "names of ports there: sql (tcp 5432)",
    ),
    "only the other direction in types": (
        [to_db({"selector": "role == 'web'"}, types=["Egress"])], "shop/web-0", "spec.types", "",
        "add Ingress to types",
    ),
    "a rule in the wrong direction": (
        [to_db(types=["Ingress", "Egress"], ingress=[],
               egress=[{**ALLOW, "source": {"selector": "role == 'web'"}}])],
        "shop/web-0", "spec.egress", "", "move it to ingress",
    ),
    "source and destination exchanged": (
        [from_web(source={"selector": "role == 'db'"}, destination={"selector": "role == 'web'"})],
        "shop/web-0", "destination", "", "source and destination are exchanged",
    ),
    "networks of a service": (
        [to_db({"nets": ["10.96.0.0/12"]})], "shop/web-0", "source.nets", "", "",
    ),
    "networks of one family": (
        [to_db({"notNets": ["fd00::/8"]})], "shop/web-0", "source.notNets", "", "name one of IPv4",
    ),
    "a selector for an address that nothing holds": (
        [to_db({"selector": "role == 'web'"})], "203.0.113.9", "source.selector", "",
        "name the network by nets",
    ),
    "a global network set": (
        [document("GlobalNetworkSet", "office", labels={"site": "office"},
                  nets=["203.0.113.0/24"]), to_db({"selector": "site == 'office'"})],
        "203.0.113.9", "source.namespaceSelector", "", "namespaceSelector: global()",
    ),
    "the policy selects another label": (
        [to_db({"selector": "role == 'web'"}, selector="app == 'db'")], "shop/web-0",
        "spec.selector", "app", "",
    ),
    "the policy lies in another namespace": (
        [policy("try", "role == 'db'", "lab", types=["Ingress"], ingress=[ALLOW])], "shop/web-0",
        "metadata.namespace", "", "selects in its own namespace alone",
    ),
    "the policy comes after one that denies": (
        [policy("first", "all()", "shop", order=1, types=["Ingress"], ingress=[DENY]),
         to_db({"selector": "role == 'web'"}, order=5)],
        "shop/web-0", "order", "", "give it a lower order than first",
    ),
    "a tier that ends before": (
        [document("Tier", "early", order=1),
         {**policy("early.none", "role == 'db'", types=["Ingress"]),
          "spec": {"tier": "early", "selector": "role == 'db'", "types": ["Ingress"]}},
         to_db({"selector": "role == 'web'"})],
        "shop/web-0", "tier", "", "pass the packet in tier early",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named(mistake: str) -> None:
    documents, source, field, label, hint = MISTAKES[mistake]
    names = {d["metadata"]["name"] for d in documents}
    world = shop(CLOSED, *documents, without=tuple(names))
    found = [f for miss in near(world, source) if miss.policy.name == "try" for f in miss.faults]
    assert [(f.field, f.label) for f in found] == [(field, label)], found
    assert hint in found[0].hint
    assert bool(found[0].hint) is bool(hint)
    assert found[0].clause
    assert found[0].actual


def test_a_named_port_of_another_protocol() -> None:
    world = shop(from_web(protocol="UDP", destination={"ports": ["sql"]}))
    (miss,) = near(world, kind=Kind(17, 5432))
    assert "sql is a port of tcp there; the rule means udp" in miss.faults[0].hint


def test_the_forgotten_egress_of_the_source() -> None:
    lock = policy("lock", "role == 'web'", "shop", types=["Egress"])
    misses = near(shop(DB, lock))
    assert misses[0].policy == ResourceKey("NetworkPolicy", "db", "shop")
    assert misses[0].rule == "ingress[2]"
    (fault,) = misses[0].faults
    assert fault.field == "egress of the source"
    assert "egress of a policy that selects shop/web-0" in fault.hint


def test_the_forgotten_ingress_of_the_destination() -> None:
    egress = [{**ALLOW, "destination": {"selector": "role == 'db'"}}]
    lock = policy("lock", "role == 'web'", "shop", types=["Egress"], egress=egress)
    (fault,) = near(shop(CLOSED, lock))[0].faults
    assert fault.field == "ingress of the destination"


def test_an_allowed_packet_has_the_denials_that_nearly_matched() -> None:
    deny = policy(
        "try", "role == 'db'", "shop", types=["Ingress"],
        ingress=[{**DENY, "source": {"selector": "role == 'wep'"}}, ALLOW,
                 {**DENY, "source": {"selector": "role == 'never asked'"}}],
    )  # fmt: skip
    misses = near(shop(deny))
    assert [(miss.rule, miss.action) for miss in misses] == [("ingress[0]", "Deny")]


def test_a_policy_of_hosts_that_says_nothing_of_what_passes_through() -> None:
    labels = {"role": "host"}
    every = host("all", "node2", "*", labels=labels, profiles=["projectcalico-default-allow"])
    first = policy("first", "role == 'host'", applyOnForward=True, types=["Ingress"],
                   ingress=[{**ALLOW, "protocol": "UDP"}])  # fmt: skip
    second = policy("try", "role == 'host'", types=["Ingress"], ingress=[ALLOW])
    misses = near(shop(every, first, second))
    fields = {miss.policy.name: miss.faults[0].field for miss in misses}
    assert fields == {"first": "protocol", "try": "spec.applyOnForward"}


def test_for_many_kinds_of_packets_ports_are_not_looked_at() -> None:
    world = shop(DB, pod("shop/web-0", 6, "node1", role="wep"), without=("node1-k8s-web--0-eth0",))
    (miss,) = near(world, kind=None)
    assert [fault.field for fault in miss.faults] == ["source.selector"]


def test_ports_without_a_protocol_close_the_policy_and_are_named() -> None:
    broken = from_web(destination={"ports": [5432]})
    (miss, *_) = near(shop(broken))
    assert (miss.policy.name, miss.rule) == ("try", "ingress[0]")
    (fault,) = miss.faults
    assert fault.field == "spec.ingress[0].destination.ports"
    assert "add protocol: TCP" in fault.hint


def test_two_faults_are_told_only_where_none_misses_by_one() -> None:
    both = from_web(protocol="UDP", source={"selector": "role == 'x'"})
    assert [len(miss.faults) for miss in near(shop(CLOSED, both))] == [2]
    other = {**from_web(source={"selector": "role == 'x'"})}
    other["metadata"] = {**other["metadata"], "name": "other"}
    assert [miss.policy.name for miss in near(shop(CLOSED, both, other))] == ["other"]


@pytest.mark.parametrize("length", [2, 30])
def test_the_rule_that_decided_is_looked_up_once_however_long_its_policy_is(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ResourceKey] = []

    def counted(key: ResourceKey, *rest: Any, **how: Any) -> Any:
        asked.append(key)
        return written(key, *rest, **how)

    monkeypatch.setattr("felix.explain.misses.asking.written", counted)
    web = {**ALLOW, "source": {"selector": "role == 'web'"}}
    (miss, *_) = near(shop(to_db(ingress=[DENY, *[web] * length])))
    assert [fault.field for fault in miss.faults] == ["order"]
    assert len(asked) == 1


def test_many_are_counted_and_not_told() -> None:
    many = [to_db({"selector": f"role == 'r{n}'"}) for n in range(MOST_MISSES + 3)]
    for number, each in enumerate(many):
        each["metadata"] = {**each["metadata"], "name": f"try-{number}"}
    (answer,) = answers(questions(shop(*many), "shop/web-0", "shop/db-0"), 4, kind=SQL)
    assert (len(answer.near.misses), answer.near.more) == (MOST_MISSES, 3)
    tree = miss_tree(answer.near.misses[0])
    assert tree["rule"] == "ingress[0]"


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ("a == '1' && b == '2'", ["b"]),
        ("(a == '0' && b == '2') || b == '3'", ["b"]),
        ("!(a == '1' && !has(b))", ["a"]),
        ("a == '1'", []),
        ("global() && a == '2'", ["a"]),
    ],
)
def test_of_alternatives_the_one_that_lacks_least(selector: str, terms: list[str]) -> None:
    assert [term.label for term in lacking(parse(selector).root, {"a": "1"})] == terms


def test_whose_labels_an_address_has() -> None:
    office = document("GlobalNetworkSet", "office", labels={"site": "x"}, nets=["10.65.0.0/16"])
    directory = Directory(shop(office))
    address = questions(shop(), "shop/web-0", "shop/db-0").source.addresses[0]
    assert [one.title for one in directory.behind(address)] == [
        "pod shop/web-0", "GlobalNetworkSet office",
    ]  # fmt: skip
    assert directory.behind(address)[0].labels["pcns.projectcalico.org/name"] == "shop"
