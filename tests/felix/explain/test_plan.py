"""PLN-1, POP-1: a plan names exactly the flows whose verdict would differ."""

from __future__ import annotations

import os
import time
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from felix.explain.plan_report import Comparison, as_tree, compare, plan
from felix.explain.populace import Class
from tests.policy_random import flows
from tests.policy_random.generator import imaginary_pods, make_world
from tests.policy_random.oracle import Flow, Oracle
from tests.support.explain_world import (
    ALLOW,
    DB,
    DENY,
    OPEN,
    SHOP,
    TIER,
    document,
    pod,
    policy,
    profile,
    shop,
)
from tests.support.explaining import alike, kind_of, world_of

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
PODS = imaginary_pods()
SEED = 77
Document = dict[str, Any]


def changed(documents: list[Document], other: list[Document], random: Random) -> list[Document]:
    """The documents with some taken from another world, some gone, some with other labels."""
    found = []
    theirs = {(d["kind"], d["metadata"]["name"]): d for d in other}
    for one in documents:
        if one["kind"] == "HostEndpoint":
            continue
        if one["kind"] in ("WorkloadEndpoint", "Tier"):
            found.append(one)
            continue
        lot = random.random()
        if lot < 0.04 and one["kind"].endswith("Policy"):
            continue
        twin = theirs.get((one["kind"], one["metadata"]["name"]))
        found.append(deepcopy(twin) if lot < 0.12 and twin is not None else one)
    for kind, chance in (("GlobalNetworkPolicy", 0.5), ("GlobalNetworkSet", 0.3)):
        if random.random() < chance:
            fresh = [deepcopy(d) for d in other if d["kind"] == kind][:1]
            for one in fresh:
                one["metadata"]["name"] += "-new"
                one["spec"]["tier"] = "default"
                if kind.endswith("Set"):
                    del one["spec"]["tier"]
            found += fresh
    return found


def class_of(found: Comparison, title: str) -> Class:
    (one,) = (c for c in found.population if any(m.title == title for m in c.members))
    return one


def planned(found: Comparison, flow: Flow) -> bool:
    """Whether a plan names a flow."""
    source, destination = class_of(found, flow.source), class_of(found, flow.destination)
    kinds = found.plan.kinds_of(source, destination, flow.version)
    (own,) = alike(kinds, kind_of(flow))
    return any(
        (c.source, c.destination, c.version, c.packets) == (source, destination, flow.version, own)
        for c in found.outcome.changes
    )


@pytest.mark.parametrize("number", range(60 if FULL else 8))
def test_a_plan_names_exactly_what_changes(number: int) -> None:
    random = Random(f"{SEED}/{number}")
    base = [d for d in make_world(SEED, number, PODS).documents if d["kind"] != "HostEndpoint"]
    other = make_world(SEED, number + 1000, PODS).documents
    then = changed(base, other, random)
    before, after = Oracle(base), Oracle(then)
    found = compare(world_of(base), world_of(then))
    assert not found.outcome.left
    for flow in flows.sample(PODS, 250, (SEED, number)):
        truth = before.allows(flow) is not after.allows(flow)
        assert planned(found, flow) is truth, f"{flow}: {before.allows(flow)}"
    for change in found.outcome.changes:
        if change.source.outside or change.destination.outside:
            continue
        flow = Flow(
            change.source.members[0].title,
            change.destination.members[-1].title,
            change.version,
            change.packets.example.protocol,
            change.packets.example.source_port,
            change.packets.example.destination_port,
            change.packets.example.icmp_type,
            change.packets.example.icmp_code,
        )
        if flow.source != flow.destination:
            assert before.allows(flow) is change.before.allowed
            assert after.allows(flow) is change.after.allowed


def told(before: Any, after: Any) -> list[tuple[str, str, str, bool]]:
    """(from, to, packets, becomes allowed) of each group."""
    return [
        (
            ", ".join(map(str, g.sources)),
            ", ".join(map(str, g.destinations)),
            g.packets,
            g.becomes_allowed,
        )
        for g in plan(before, after).groups
    ]


def test_flows_are_grouped_by_the_labels_that_selectors_speak_of() -> None:
    found = told(shop(), shop(DB))
    web = "namespace=shop role=web (2 pods, such as shop/web-0)"
    db = "namespace=shop role=db (shop/db-0)"
    assert ("namespace=lab (lab/guest)", db, "all packets", False) in found
    (own,) = [g for g in plan(shop(), shop(DB)).groups if str(g.sources[0]) == web]
    assert [str(d) for d in own.destinations] == [db]
    assert own.before.startswith("allowed: egress, Profile kns.shop, egress[0]; ingress")
    assert own.after == "denied: ingress, end of tier default: no policy of it allows the packet"
    assert told(shop(DB), shop(DB)) == []


def test_the_way_back_is_planned_too() -> None:
    assert all(allowed for _, _, _, allowed in told(shop(DB), shop()))


def test_what_the_other_end_denies_anyway_is_no_change() -> None:
    shut = policy("shut", "role == 'db'", types=["Ingress"], ingress=[DENY], order=1)
    assert told(shop(shut), shop(shut, DB)) == []


def test_a_member_of_a_set_is_enough() -> None:
    """Nothing but a network set differs."""
    from_set = policy("p", "role == 'db'", types=["Ingress"],
                      ingress=[{**ALLOW, "source": {"selector": "friend == 'yes'"}}])  # fmt: skip
    friends = document("GlobalNetworkSet", "friends", "", {"friend": "yes"}, nets=["192.0.2.0/24"])
    before, after = shop(from_set), shop(from_set, friends)
    ((source, destination, packets, allowed),) = told(before, after)
    assert (source, packets, allowed) == ("192.0.2.0/24, outside", "all packets", True)
    assert destination == "namespace=shop role=db (shop/db-0)"


def test_what_cannot_be_enforced_is_said() -> None:
    bad = policy("bad", "role == 'db'", types=["Ingress"], ingress=[{**ALLOW, "protocol": "x"}])
    report = plan(shop(), shop(bad))
    assert any("bad" in text and "closed" in text for text in report.conditions)
    tree = as_tree(report)
    assert tree["whole"] is True
    assert tree["changes"][0]["destinations"][0]["labels"]["role"] == "db"


def big(pods: int, apps: int) -> list[Document]:
    """A cluster of many endpoints in few classes."""
    spaces = [f"ns-{n}" for n in range(20)]
    found: list[Document] = [TIER, *(profile(space, **OPEN) for space in spaces)]
    for n in range(pods):
        one = pod(f"{spaces[n % 20]}/p-{n}", 1, "node1", app=f"app-{n % apps}", hash=f"h{n}")
        one["spec"]["ipNetworks"] = [f"10.{64 + n // 65536}.{n // 256 % 256}.{n % 256}/32"]
        one["spec"]["interfaceName"] = f"cali{n}"
        one["metadata"]["name"] = f"node1-k8s-p--{n}-eth0"
        found.append(one)
    for n in range(apps):
        rules = [{**ALLOW, "source": {"selector": f"app == 'app-{(n + 1) % apps}'"}}]
        found.append(policy(f"app-{n}", f"app == 'app-{n}'", types=["Ingress"], ingress=rules))
    return found


def test_thousands_of_endpoints_are_a_matter_of_classes() -> None:
    documents = big(3000, 30)
    tls = {**ALLOW, "protocol": "TCP", "destination": {"ports": [8443]}}
    more = policy("more", "app == 'app-3'", types=["Ingress"], order=1, ingress=[tls])
    before, after = world_of(documents), world_of([*documents, more])
    began = time.process_time()
    report = plan(before, after)
    seconds = time.process_time() - began
    assert report.endpoints == 3000
    assert report.classes < 100
    assert report.whole
    (group, *others) = report.groups
    assert not others or all(g.packets == group.packets for g in others)
    assert group.packets == "tcp 8443"
    assert sum(c.count for c in group.destinations) == 100
    # Of processor time, and generous. Pairs of endpoints would be nine million.
    assert seconds < 60


def test_a_plan_that_is_stopped_says_so() -> None:
    report = plan(shop(), shop(DB), late=lambda: True)
    assert (report.groups, report.pairs, report.whole) == ((), 0, False)
    assert report.left > 0


def test_objects_that_are_no_part_of_policy_do_not_matter() -> None:
    world = world_of([*SHOP, document("IPPool", "more", cidr="10.99.0.0/24", ipipMode="Never")])
    assert plan(shop(), world).groups == ()
