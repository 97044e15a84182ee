"""How a cluster is judged: each fault is named, and nothing that is not known counts as fine."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from calicoctl.status.facts import Answer, Facts, Signs
from calicoctl.status.judge import judged
from calicoctl.status.values import DOWN, LIVE, NOTHING, REPORT, UNKNOWN, UP, Grade, NodeState
from libcalico.model.resources.status import FelixStatus, LifeSign
from tests.calicoctl.status_world import ago, alive, block, documents, facts, node, pool, report

UP_AND_DOWN = {"10.0.0.2": "Established", "10.0.0.3": "Active"}


def state_of(found: Facts, name: str = "n1") -> NodeState:
    return next(one for one in judged(found).nodes if one.name == name)


def test_a_fresh_report_tells_the_sessions() -> None:
    told = state_of(facts(reports=(report("n1", UP_AND_DOWN),)))
    assert (told.grade, told.source, told.version) == (Grade.WARNING, REPORT, "v3.32.1")
    assert [(one.peer, one.state) for one in told.sessions] == [("n2", UP), ("n3", DOWN)]
    assert told.why == ("session with n3 is down: Active",)


def test_no_session_at_all_is_bad() -> None:
    assert state_of(facts(reports=(report("n1", {"10.0.0.2": "Idle"}),))).grade is Grade.BAD


@pytest.mark.parametrize(("period", "age", "current"), [
    (30, 149, True), (30, 151, False), (0, 599, True), (0, 601, False),
])  # fmt: skip
def test_old_news_is_not_the_present(period: int, age: float, current: bool) -> None:
    one = report("n1", {"10.0.0.2": "Established"}, age=age, period=period)
    told = state_of(facts(reports=(one,)))
    assert told.source == (REPORT if current else NOTHING)
    assert [one.state for one in told.sessions] == [UP if current else UNKNOWN]
    assert told.grade is (Grade.FINE if current else Grade.UNKNOWN)


def test_the_newest_of_several_reports_counts() -> None:
    old = report("n1", {"10.0.0.2": "Idle"}, age=50)
    new = report("n1", {"10.0.0.2": "Established"}, age=5)
    for order in ((old, new), (new, old)):
        assert state_of(facts(reports=order)).sessions[0].state == UP


def test_sessions_of_a_dead_node_are_not_known() -> None:
    gone = Signs(last=FelixStatus(ago(900)))
    told = state_of(facts(signs={"n1": gone}, reports=(report("n1", {"10.0.0.2": "Established"}),)))
    assert told.grade is Grade.BAD
    assert told.sessions[0].state == UNKNOWN
    assert told.why[0] == f"it gives no sign of life; felix was last seen at {ago(900)}"


@pytest.mark.parametrize(("signs", "grade", "words"), [
    (Signs(), Grade.UNKNOWN, "no agent has given a sign"),
    (Signs(last=FelixStatus(ago(900))), Grade.BAD, "no sign of life"),
    (Signs(last=FelixStatus(ago(900)), machine=LifeSign(ago(5))), Grade.BAD, "calico-node lives"),
    (Signs(machine=LifeSign(ago(5))), Grade.UNKNOWN, "sessions are not known"),
    (Signs(ready=False, reason="Kubelet stopped"), Grade.BAD, "not ready: Kubelet stopped"),
    (Signs(ready=True, network=True, reason="BGP is down"), Grade.BAD, "network is not available"),
    (Signs(ready=True, network=False), Grade.UNKNOWN, "sessions are not known"),
])  # fmt: skip
def test_life_signs(signs: Signs, grade: Grade, words: str) -> None:
    told = state_of(facts(signs={"n1": signs}))
    assert told.grade is grade
    assert words in told.why[0]


def test_what_is_not_known_is_said_with_the_way_to_know_it() -> None:
    (sentence,) = judged(facts()).missing
    assert sentence.startswith("The sessions of n1, n2, n3 are not known: ask with --ask")
    reports = tuple(report(name, {"10.0.0.2": "Established"}) for name in ("n1", "n2", "n3"))
    (sentence,) = judged(facts(reports=reports)).missing
    assert "paths of 3 nodes are not known: only the nodes themselves tell them" in sentence


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("felix", {"datastore_connected": False, "datastore_error": "timeout"}, "timeout"),
    ("felix", {"ready": False}, "felix has not brought the kernel up to date since its start"),
    ("felix", {"bgp_connected": False}, "calico-bgp is not connected"),
    ("felix", {"endpoints_in_force": 1}, "1 of 2 endpoints are not in force"),
    ("felix", {"conditions": [{"object": "eth0", "reason": "is down"}]}, "eth0: is down"),
    ("bgp", {"refused": [{"peer": "BGPPeer(x)", "reason": "no secret"}]}, "BGPPeer(x) is not held"),
    ("bgp", {"peers": [{"address": "10.0.0.9", "state": "start", "cause": "refused",
                        "seen": "port 179 is shut", "fix": "start it"}]},
     "session with 10.0.0.9 is down: refused: port 179 is shut; start it"),
]  # fmt: skip


@pytest.mark.parametrize(("process", "change", "words"), FAULTS)
def test_an_answer_with_a_fault_names_it(process: str, change: dict[str, Any], words: str) -> None:
    good = documents()
    told = state_of(facts(answers={"n1": Answer(good)}))
    assert (told.grade, told.source, told.why) == (Grade.FINE, LIVE, ())
    bad = {**good, process: {**good[process], **change}}
    told = state_of(facts(answers={"n1": Answer(bad)}))
    assert told.grade > Grade.UNKNOWN
    assert words in "\n".join(told.why)


@pytest.mark.parametrize("process", ["felix", "bgp", "cni"])
def test_a_process_that_does_not_run_is_named(process: str) -> None:
    left = {name: one for name, one in documents().items() if name != process}
    told = state_of(facts(answers={"n1": Answer(left)}))
    assert told.grade is Grade.BAD
    assert f"calico-{process} does not run" in told.why


def test_a_file_that_a_dead_process_left_is_not_the_present() -> None:
    left = documents()
    left["bgp"]["time"] = ago(3600)
    told = state_of(facts(answers={"n1": Answer(left)}))
    assert told.why == (f"calico-bgp does not run: it was last seen at {ago(3600)}",)
    assert told.sessions == ()


def test_without_bgp_no_speaker_is_missed() -> None:
    plain = documents()
    plain["felix"]["networking"] = "vxlan"
    del plain["bgp"]
    assert state_of(facts(answers={"n1": Answer(plain)})).grade is Grade.FINE


def test_an_answer_of_strange_types_is_no_failure() -> None:
    strange: Any = {
        "felix": {"version": 7, "endpoints": "x"},
        "bgp": {"peers": [3, {"address": 4}]},
    }
    assert state_of(facts(answers={"n1": Answer(strange)})).version == ""


def test_a_node_that_does_not_answer_is_named() -> None:
    whole = judged(facts(answers={"n1": Answer(error="not attending"), "n2": Answer(documents())}))
    assert whole.unanswered == [("n1", "not attending")]
    assert whole.nodes[0].name == "n1"
    assert whole.nodes[0].grade is Grade.WARNING


def test_worst_first_and_drains() -> None:
    nodes = {"a": node("a", "10.0.0.1"), "b": node("b", "10.0.0.2", drains=True)}
    found = facts(nodes=nodes, signs={"a": alive(), "b": alive()}, answers={
        "a": Answer(documents()), "b": Answer(documents()),
    })  # fmt: skip
    whole = judged(found)
    assert [one.name for one in whole.nodes] == ["b", "a"]
    assert whole.nodes[0].why == ("it drains (calicoctl node bgp undrain ends that)",)


def test_pools_by_how_full_they_are() -> None:
    pools = (
        pool("empty", ip_network("10.1.0.0/24")),
        pool("full", ip_network("10.2.0.0/26")),
        pool("nearly", ip_network("10.3.0.0/26")),
        pool("off", ip_network("10.4.0.0/26"), disabled=True),
    )
    stored = (block("10.2.0.0/26", 64), block("10.3.0.0/26", 60), block("10.4.0.0/26", 64))
    whole = judged(facts(pools=pools, blocks=stored))
    assert [(one.name, one.grade) for one in whole.pools] == [
        ("full", Grade.BAD), ("nearly", Grade.WARNING), ("off", Grade.FINE), ("empty", Grade.FINE),
    ]  # fmt: skip
    assert whole.pools[0].why == "no address is free"
    assert whole.pools[1].why == "only 4 addresses are free"
    kept = judged(facts(pools=pools, blocks=stored, reserved=(ip_network("10.1.0.0/24"),)))
    assert kept.pools[0].free == 0
