"""What an operator gets: documents, what they allow, what was left out and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from felix.explain.recommend.peers import Choices
from felix.explain.recommend.policies import CALICO, KUBERNETES, policy_name
from felix.explain.recommend.proposal import Proposal, Wanted, propose
from flows.record import PRIVATE, PUBLIC, Action, End, EndKind, Flow, Key, Reporter
from libcalico.errors import MuslinError
from libcalico.model import codec, defaults
from libcalico.model.validation.validate import problems
from tests.support.explain_world import Document, document, host, pod, shop

WEB, DB = (End(EndKind.WORKLOAD, name, "shop") for name in ("web-*", "db-*"))
GUEST = End(EndKind.WORKLOAD, "guest", "lab")
OUT, NEAR = End(EndKind.NETWORK, PUBLIC), End(EndKind.NETWORK, PRIVATE)
NODE = End(EndKind.HOST, "node1")
OFFICE, LAB = End(EndKind.NETWORK_SET, "office"), End(EndKind.NETWORK_SET, "racks", "lab")
SETS = [
    document("GlobalNetworkSet", "office", labels={"site": "office"}, nets=["203.0.113.0/24"]),
    document("NetworkSet", "racks", "lab", nets=["198.18.0.0/15"]),
]
IN, FROM = Reporter.DESTINATION, Reporter.SOURCE


def flow(
    source: End, destination: End, port: int = 5432, protocol: str = "tcp",
    reporter: Reporter = IN,
) -> Flow:  # fmt: skip
    return Flow(Key(source, destination, port, protocol, reporter, Action.ALLOW), 0, 15)


def proposal(*flows: Flow, more: Iterable[Document] = (), **wanted: Any) -> Proposal:
    found = propose(shop(*SETS, *more), flows, Wanted("shop", **wanted))
    for each in found.documents:
        if each["apiVersion"] == CALICO:
            resource = defaults.apply_defaults(codec.resource_from_tree(each, strict=True))
            assert not problems(resource)
    return found


def rules(found: Proposal, direction: str = "ingress", number: int = 0) -> list[Any]:
    rules: list[Any] = found.documents[number]["spec"].get(direction, [])
    return rules


def test_one_policy_a_group_that_closes_all_but_what_was_seen() -> None:
    found = proposal(flow(WEB, DB), flow(WEB, DB, reporter=FROM), flow(WEB, DB, 5433))
    db, web = found.documents
    assert db == {
        "apiVersion": CALICO,
        "kind": "NetworkPolicy",
        "metadata": {"name": "recommended-db", "namespace": "shop"},
        "spec": {
            "tier": "default",
            "order": 1000,
            "selector": 'role == "db"',
            "types": ["Ingress", "Egress"],
            "ingress": [
                {
                    "action": "Allow",
                    "protocol": "TCP",
                    "source": {"selector": 'role == "web"'},
                    "destination": {"ports": [5432, 5433]},
                }
            ],
        },
    }
    assert web["spec"]["selector"] == 'role == "web"'
    assert [r["destination"]["ports"] for r in web["spec"]["egress"]] == [[5432, 5433]]
    assert not found.left_out
    assert not found.proof.denied
    assert found.proof.asked > 0
    assert any(not group.becomes_allowed for group in found.plan.groups)
    assert found.names["recommended-web"] == ("shop/web-0", "shop/web-1")


def test_a_peer_of_another_namespace_is_named_with_it() -> None:
    (rule,) = rules(proposal(flow(GUEST, DB)))
    assert rule["source"]["namespaceSelector"] == 'projectcalico.org/name == "lab"'
    bare = [document("Profile", "kns.lab", egress=[{"action": "Allow"}])]
    world = shop(*bare, without=("kns.lab",))
    found = propose(world, [flow(GUEST, DB)], Wanted("shop"))
    (rule,) = rules(found)
    assert rule["source"]["namespaceSelector"] == "all()"
    assert 'projectcalico.org/namespace == "lab"' in rule["source"]["selector"]
    assert not found.proof.denied


@pytest.mark.parametrize(
    ("source", "side"),
    [
        (OFFICE, {"selector": 'site == "office"', "namespaceSelector": "global()"}),
        (LAB, {"nets": ["198.18.0.0/15"]}),
        (NODE, {"nets": ["10.99.0.1/32"]}),
    ],
)
def test_what_is_no_workload(source: End, side: dict[str, Any]) -> None:
    found = proposal(flow(source, DB))
    (rule,) = rules(found)
    assert rule["source"] == side
    assert not found.proof.denied
    assert found.proof.asked > 0
    repeated = [note for note in found.notes if "its networks are repeated" in note]
    assert bool(repeated) is (source is LAB)


def test_a_host_endpoint_counts_with_its_addresses() -> None:
    gate = host("gate", "node7", expectedIPs=["192.0.2.7"])
    (rule,) = rules(proposal(flow(End(EndKind.HOST, "node7"), DB), more=[gate]))
    assert rule["source"] == {"nets": ["192.0.2.7/32"]}


@pytest.mark.parametrize(
    ("end", "choices", "sides"),
    [
        (OUT, Choices(), []),
        (NEAR, Choices(), []),
        (OUT, Choices(private=True), []),
        (OUT, Choices(networks=("10.0.0.0/8",)), []),
        (OUT, Choices(networks=("198.51.100.0/24",)), [{"nets": ["198.51.100.0/24"]}]),
        (NEAR, Choices(networks=("10.20.0.0/16",)), [{"nets": ["10.20.0.0/16"]}]),
        (OUT, Choices(public=True), [
            {"nets": ["0.0.0.0/0"], "notNets": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]},
            {"nets": ["::/0"], "notNets": ["fc00::/7"]},
        ]),
        (NEAR, Choices(private=True), [
            {"nets": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
             "notNets": ["10.65.0.0/16"]},
            {"nets": ["fc00::/7"]},
        ]),
    ],
)  # fmt: skip
def test_what_nothing_names_is_the_operators_choice(
    end: End, choices: Choices, sides: list[dict[str, Any]]
) -> None:
    found = proposal(flow(DB, end, 443, reporter=FROM), choices=choices)
    told = [
        {k: sorted(v) for k, v in rule["destination"].items() if k != "ports"}
        for rule in rules(found, "egress")
    ]
    assert sorted(told, key=str) == sorted(sides, key=str)
    assert not found.proof.denied
    if sides:
        assert found.proof.asked > 0
        assert not found.left_out
    else:
        (left,) = found.left_out
        assert f"--allow-{'public' if end is OUT else 'private'}" in left.reason


def test_ends_that_are_not_stored_are_left_out_with_the_reason() -> None:
    gone = [End(EndKind.HOST, "node9"), End(EndKind.NETWORK_SET, "nothing")]
    found = proposal(*(flow(end, DB) for end in gone))
    assert len(found.left_out) == 2
    assert all("is stored" in one.reason for one in found.left_out)
    assert rules(found) == []


def test_a_pod_that_is_gone_is_known_by_the_labels_of_its_flows() -> None:
    old = End(EndKind.WORKLOAD, "batch", "lab")
    key = Key(old, DB, 5432, "tcp", IN, Action.ALLOW)
    found = proposal(Flow(key, 0, 15, source_labels=("app=batch", "pod-template-hash=1")))
    (rule,) = rules(found)
    assert rule["source"]["selector"] == 'app == "batch"'
    assert [talk.peer for talk in found.proof.unasked] == [old]


def test_pods_that_labels_cannot_tell_apart_are_told() -> None:
    found = proposal(flow(GUEST, DB))
    assert any("rules that mean it mean every pod of lab" in note for note in found.notes)
    twins = [pod(f"lab/{name}", number, app="x") for name, number in (("one", 12), ("two", 13))]
    found = proposal(flow(End(EndKind.WORKLOAD, "one", "lab"), DB), more=twins)
    assert any("no label tells lab/one from 1 other pod of lab" in note for note in found.notes)


def test_pods_without_flows_are_told_and_stay_as_they_are() -> None:
    found = proposal(flow(GUEST, DB))
    assert found.quiet == ("shop/web-0", "shop/web-1")


def test_staged_policies_are_proved_as_if_they_were_in_force() -> None:
    found = proposal(flow(WEB, DB), staged=True)
    assert {d["kind"] for d in found.documents} == {"StagedNetworkPolicy"}
    assert found.documents[0]["spec"]["stagedAction"] == "Set"
    assert any(not group.becomes_allowed for group in found.plan.groups)


def test_policies_of_kubernetes() -> None:
    names = {"pcns.kubernetes.io/metadata.name": "lab"}
    lab = document("Profile", "kns.lab", labelsToApply=names, egress=[{"action": "Allow"}])
    world = shop(*SETS, lab, without=("kns.lab",))
    flows = [
        flow(WEB, DB), flow(WEB, DB, 53, "udp"), flow(GUEST, DB), flow(OFFICE, DB),
        flow(WEB, DB, 0, "icmp"),
    ]  # fmt: skip
    found = propose(world, flows, Wanted("shop", kubernetes=True))
    policy = found.documents[0]
    assert policy["apiVersion"] == KUBERNETES
    assert policy["spec"]["podSelector"] == {"matchLabels": {"role": "db"}}
    assert policy["spec"]["ingress"] == [
        {
            "from": [{"podSelector": {"matchLabels": {"role": "web"}}}],
            "ports": [{"protocol": "TCP", "port": 5432}, {"protocol": "UDP", "port": 53}],
        },
        {
            "from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}],
            "ports": [{"protocol": "TCP", "port": 5432}],
        },
        {
            "from": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "lab"}}}
            ],
            "ports": [{"protocol": "TCP", "port": 5432}],
        },
    ]
    assert [(one.talk.ingress, one.reason) for one in found.left_out] == [
        (ingress, "policies of Kubernetes cannot say: protocol ICMP") for ingress in (False, True)
    ]
    assert not found.proof.denied
    staged = propose(world, flows, Wanted("shop", kubernetes=True, staged=True)).documents
    assert staged[0]["kind"] == "StagedKubernetesNetworkPolicy"


def test_nothing_seen_is_nothing_recommended() -> None:
    with pytest.raises(MuslinError, match="no allowed flow of workloads of namespace shop"):
        proposal(flow(GUEST, End(EndKind.WORKLOAD, "other", "lab")))


def test_names_of_policies() -> None:
    assert policy_name("web", []) == "recommended-web"
    assert policy_name("Web.1", ["recommended-web-1"]) == "recommended-web-1-2"
    assert policy_name("", []) == "recommended-pods"
    assert len(policy_name("x" * 300, [])) < 80
