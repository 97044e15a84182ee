"""From results to findings: each fault is named once, and nothing that a larger one explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from calicoctl.connectivity import matrix
from calicoctl.connectivity.judge import judged
from calicoctl.connectivity.model import (
    ALLOWED,
    DENIED,
    HOST,
    NODES,
    OPEN,
    OTHER_PORT,
    OUTSIDE,
    PODS,
    SERVICE,
    Place,
    Probe,
    Result,
    Target,
)

PORT = 8790
NAMES = ("n1", "n2", "n3", "n4")
SERVERS = [Place(name, f"s-{name}", "t", f"10.65.{number}.1") for number, name in enumerate(NAMES)]
CLIENTS = [Place(name, f"c-{name}", "t", f"10.65.{number}.2") for number, name in enumerate(NAMES)]
HOSTS = [Place(name, address=f"10.0.0.{number}") for number, name in enumerate(NAMES)]
OTHERS = [
    *matrix.node_targets({place.node: place.address for place in HOSTS}),
    Target(SERVICE, "probe", "10.96.0.9", PORT),
    Target(OUTSIDE, "far:443", "192.0.2.1", 443),
]

Fault = Callable[[Probe], str]
"""The outcome of a probe under a fault; empty: as it should be."""


def probes() -> list[Probe]:
    sources = [*CLIENTS, *HOSTS]
    pods = matrix.pod_targets(SERVERS, PORT)
    found = matrix.probes(OPEN, sources, [*pods, *OTHERS])
    return found + [
        one for phase in (DENIED, ALLOWED) for one in matrix.probes(phase, sources, pods)
    ]


def results(fault: Fault) -> list[Result]:
    found = []
    for one in probes():
        outcome = fault(one) or ("answer" if one.open else "silent")
        found.append(Result(one, outcome, "so" if outcome == "not run" else ""))
    return found


def pairs(one: Probe) -> set[str]:
    return {one.source.node, one.target.node}


def between(one: Probe, *nodes: str) -> bool:
    return pairs(one) == set(nodes) and one.target.kind in (PODS, OTHER_PORT)


FAULTS: dict[str, tuple[Fault, list[tuple[str, str]]]] = {
    "nothing": (lambda _: "", []),
    "a dead node whose pods can be entered": (
        lambda one: "silent" if "n3" in pairs(one) and len(pairs(one)) == 2 else "",
        [("dead node", "n3")],
    ),
    "a dead node on which nothing runs": (
        lambda one: "not run" if one.source.node == "n3" else
        "silent" if one.target.node == "n3" else "",
        [("dead node", "n3")],
    ),
    "a node whose pods cannot be entered, and which is reached": (
        lambda one: "not run" if one.source.node == "n3" else "",
        [("dead node", "n3")],
    ),
    "a missing route": (
        lambda one: "silent" if between(one, "n1", "n2") and one.source.kind != HOST else "",
        [("route", "n1 -> n2")],
    ),
    "pods of one node apart": (
        lambda one: "silent" if between(one, "n2") else "",
        [("same node", "n2")],
    ),
    "a denied port": (
        lambda one: "silent" if one.target.node == "n2" and one.target.port == PORT + 1 else "",
        [("port", f"n2:{PORT + 1}"), ("node to pod", "n1 -> n2"), ("node to pod", "n3 -> n2"),
         ("node to pod", "n4 -> n2")],
    ),
    "a closed port": (
        lambda one: "refused" if one.target.node == "n2" and one.target.port == PORT
        and one.source.kind != HOST and one.open else "",
        [("port", f"n2:{PORT}"), ("policy denies too much", "n2")],
    ),
    "a service of one node": (
        lambda one: "silent" if one.target.kind == SERVICE and one.source.node == "n2" else "",
        [("service", "probe")],
    ),
    "a service": (
        lambda one: "refused" if one.target.kind == SERVICE else "",
        [("service", "probe")],
    ),
    "large packets one way": (
        lambda one: "large-out" if between(one, "n1", "n4") and one.source.node == "n1" and one.open
        and one.source.kind != HOST and one.phase == OPEN else "",
        [("MTU", "n1 -> n4")],
    ),
    "outside": (
        lambda one: "silent" if one.target.kind == OUTSIDE and one.source.node == "n1" else "",
        [("outside", "far:443"), ("outside", "far:443")],
    ),
    "a node's own address": (
        lambda one: "silent" if one.target.kind == NODES and one.target.node == "n2"
        and one.source.node == "n1" and one.source.kind != HOST else "",
        [("node", "n2")],
    ),
    "a policy that is not enforced": (
        lambda one: "answer" if one.target.node == "n4" and not one.open else "",
        [("policy not enforced", "n4")],
    ),
    "an allow that is not in force": (
        lambda one: "silent" if one.target.node == "n4" and one.phase == ALLOWED else "",
        [("policy denies too much", "n4")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_fault_is_named_once(name: str) -> None:
    fault, wanted = FAULTS[name]
    found = judged(results(fault))
    assert [(one.what, one.where) for one in found] == wanted
    for one in found:
        assert one.where.partition(" ")[0].partition(":")[0] in one.sentence


def test_two_faults_are_two_findings() -> None:
    def both(one: Probe) -> str:
        return FAULTS["a missing route"][0](one) or FAULTS["a service of one node"][0](one)

    assert [one.what for one in judged(results(both))] == ["route", "service"]


def test_a_service_of_one_node_and_of_all_read_differently() -> None:
    one, every = (judged(results(FAULTS[name][0]))[0].sentence
                  for name in ("a service of one node", "a service"))  # fmt: skip
    assert one.endswith("from n2: kube-proxy there does not serve it")
    assert "from no node" in every


def test_what_has_no_result_is_not_right() -> None:
    (probe, *_) = probes()
    assert not Result(replace(probe, open=False), "not run").right
    assert Result(replace(probe, open=False), "silent").right


def test_places_ask_what_they_may() -> None:
    opened = matrix.probes(
        OPEN, [CLIENTS[0], HOSTS[0]], [*matrix.pod_targets(SERVERS, PORT), *OTHERS]
    )
    own = [one for one in opened if one.source == CLIENTS[0] and one.target.node == "n1"]
    assert {one.target.kind for one in own} == {PODS, OTHER_PORT}
    assert all(one.target.node != "n1" for one in opened if one.source == HOSTS[0])
    denied = matrix.probes(DENIED, [CLIENTS[0], HOSTS[0]], matrix.pod_targets(SERVERS, PORT))
    assert {one.source for one in denied} == {CLIENTS[0]}
    assert not any(one.open for one in denied)


def test_many_nodes_are_each_asked_by_some() -> None:
    many = [Place(f"m{number:04}", "p", "t", f"10.66.{number // 250}.{number % 250}")
            for number in range(300)]  # fmt: skip
    asked = matrix.probes(OPEN, many, matrix.pod_targets(many, PORT))
    # Its own pod is not asked by itself; both ports of all others.
    assert len(asked) == 300 * (matrix.PEERS - 1) * 2
    by_target = {one.target.node for one in asked}
    assert len(by_target) == 300
    assert sum(one.target.node == "m0000" for one in asked) == (matrix.PEERS - 1) * 2


def test_throughput_goes_round_the_nodes() -> None:
    rows = matrix.ring(CLIENTS, matrix.pod_targets(SERVERS, PORT))
    assert [(one.source.node, one.target.node) for one in rows] == [
        ("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n4", "n1"),
    ]  # fmt: skip
    assert matrix.ring(CLIENTS[:1], matrix.pod_targets(SERVERS[:1], PORT))


@pytest.mark.parametrize(("count", "wanted"), [
    (0, ["a", "b", "c", "d", "e"]), (2, ["a", "c"]), (9, ["a", "b", "c", "d", "e"]), (1, ["a"]),
])  # fmt: skip
def test_a_sample_is_spread(count: int, wanted: list[str]) -> None:
    assert matrix.sampled("edcba", count) == wanted


@pytest.mark.parametrize("text", ["x", "x:", ":1", "x:0", "x:65536", "x:y"])
def test_an_endpoint_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        matrix.endpoint(OUTSIDE, text)


def test_an_endpoint_of_six() -> None:
    found = matrix.endpoint(OUTSIDE, "[fd00::1]:443")
    assert (found.host, found.port) == ("fd00::1", 443)
