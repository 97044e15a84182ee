"""Chains back to policies and endpoints; names with digests; what nobody has."""

from __future__ import annotations

import pytest

from felix.explain.chain_meaning import STATIC, only
from felix.explain.reverse import meanings, split_number
from felix.explain.world import calculate
from felix.rules import names
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.static import tables
from libcalico.errors import InvalidValue, MuslinError
from tests.policy_random.generator import imaginary_pods, make_world
from tests.support.explain_world import ALLOW, DB, DENY, host, policy, shop
from tests.support.explaining import world_of


def test_every_chain_of_a_policy_leads_to_it() -> None:
    world = world_of(make_world(3, 1, imaginary_pods()).documents)
    engine = calculate(world, [key for key, _ in world.of("WorkloadEndpoint")]).engine
    for key in list(engine.policies)[:8]:
        for prefix in (names.POLICY_INGRESS, names.POLICY_EGRESS):
            (found,) = meanings(world, names.policy_chain(prefix, key), 4)
            assert found.policy == key
            assert found.rules[0].number == 1


def test_rules_that_were_written_are_shown_with_the_kernels() -> None:
    (found,) = meanings(shop(DB), "filter-cali-pi-np/shop/db", 6)
    assert [(r.number, r.field) for r in found.rules] == [
        (1, "ingress[0]"), (2, "ingress[2]"),
    ]  # fmt: skip
    assert '"selector":"role == \'web\'"' in found.rules[1].written
    assert found.rules[1].text.startswith("-p tcp -m set --match-set cali60s:")
    assert only(found, 2).rules == (found.rules[1],)
    with pytest.raises(MuslinError, match="has no rule 3: it has 2"):
        only(found, 3)


def test_chains_of_endpoints_and_of_the_host() -> None:
    role = {"role": "host"}
    deny = policy("deny", "role == 'host'", types=["Ingress"], ingress=[DENY], preDNAT=True,
                  applyOnForward=True)  # fmt: skip
    both = policy("both", "role == 'host'", types=["Ingress", "Egress"], ingress=[ALLOW],
                  egress=[ALLOW], applyOnForward=True)  # fmt: skip
    world = shop(deny, both, host("all", "node1", "*", labels=role), host("eth", "node2", "eth0"))
    (pod,) = meanings(world, "cali-fw-cali16", 4)
    assert (pod.title, pod.node, pod.direction) == ("pod shop/web-0", "node1", "egress")
    assert "Drop if no profiles matched" in pod.rules[-1].text
    every = meanings(world, "cali-fh-any-interface-at-all", 4)
    assert [(m.title, m.table) for m in every] == [
        ("host endpoint all, normal policy", "filter"),
        ("host endpoint all, preDNAT policy", "mangle"),
    ]
    assert [m.table for m in meanings(world, "mangle-cali-fh-any-interface-at-all", 4)] == [
        "mangle"
    ]
    (out,) = meanings(world, "cali-thfw-eth0", 4)
    assert out.title == "host endpoint eth, forward policy"


def test_a_groups_chain_leads_to_its_policies() -> None:
    more = policy("more", "role == 'web'", types=["Ingress"], ingress=[ALLOW], order=1)
    last = policy("last", "role == 'web'", types=["Ingress"], ingress=[DENY], order=2)
    world = shop(more, last)
    (pod,) = meanings(world, "cali-tw-cali16", 4)
    (name,) = {word for r in pod.rules for word in r.text.split() if word.startswith("cali-gi-")}
    (group,) = meanings(world, name, 4)
    assert group.title.endswith("GlobalNetworkPolicy more, GlobalNetworkPolicy last")
    assert (group.table, group.direction, group.tier) == ("filter", "ingress", "default")
    assert "cali-pi-gnp/last" in group.rules[1].text
    with pytest.raises(MuslinError, match="no chain"):
        meanings(world, f"{name[:-1]}!", 4)


def test_every_static_chain_has_a_meaning() -> None:
    for model in tables(4, RuleSettings(), Facts()).values():
        for chain in model.chains:
            assert chain.name in STATIC, chain.name
    (one,) = meanings(shop(), "cali-to-wl-dispatch-3", 4)
    assert "a bin of cali-to-wl-dispatch" in one.title


def test_what_nobody_has_is_said() -> None:
    for name in ("cali-pi-np/shop/none", "cali-tw-cali9", "KUBE-SERVICES", "cali-pri-_digest"):
        with pytest.raises(MuslinError, match="no policy, profile or endpoint"):
            meanings(shop(), name, 4)


def test_the_number_behind_the_chain() -> None:
    assert split_number("cali-pi-np/a/b:12") == ("cali-pi-np/a/b", 12)
    assert split_number("cali-pi-np/a/b") == ("cali-pi-np/a/b", None)
    for text in ("c:", "c:0", "c:x", "c:-1"):
        with pytest.raises(InvalidValue):
            split_number(text)
