"""The import side of a session: loops, filters, and a peer that is about to go."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from bgp.routes.bestpath import Candidate, select
from bgp.routes.filters import local_pref_of
from bgp.routes.import_policy import GRACEFUL_SHUTDOWN, ImportPolicy
from bgp.routes.validity import Facts
from tests.bgp.make import net, path, rules, source, view_of

PREFIX = net("10.200.0.0/24")


def judged(sent: Candidate, **filters: Any) -> Candidate | str:
    return ImportPolicy(filters=filters).judge(PREFIX, sent)


def test_without_filters_all_is_taken() -> None:
    sent = path(source(9, internal=False), as_path=(64500,))
    assert judged(sent) is sent
    assert "AS loop" in str(judged(path(as_path=(64512,))))


@pytest.mark.promise("F-39")
def test_reflection_loops() -> None:
    ours = source(own_cluster="1.0.0.1")
    assert "reflection loop" in str(judged(path(ours, cluster_list=("2.0.0.2", "1.0.0.1"))))
    assert isinstance(judged(path(ours, cluster_list=("2.0.0.2",))), Candidate)
    joined = source(own_cluster="1.0.0.1", joins=True)  # RFL-6
    assert isinstance(judged(path(joined, cluster_list=("1.0.0.1", "2.0.0.2"))), Candidate)
    assert "reflection loop" in str(judged(path(joined, cluster_list=("1.0.0.1",) * 2)))


@pytest.mark.promise("F-44")
def test_filters_reject_and_change() -> None:
    filtered = source(9, internal=False, filters=("f",))
    sent = path(filtered, as_path=(64500,))
    assert judged(sent) == "a BGPFilter of the peering is not known"  # IMP-1
    assert judged(sent, f=rules(importV4=[{"action": "Reject"}])) == (
        "a BGPFilter of the peering rejects it"
    )
    operations: list[dict[str, Any]] = [
        {"addCommunity": {"value": "7:8"}},
        {"prependASPath": {"prefix": [5, 6]}},
        {"setPriority": {"value": 9}},
    ]
    accept = rules(importV4=[{"action": "Accept", "operations": operations}])
    taken = judged(sent, f=accept)
    assert isinstance(taken, Candidate)
    assert taken.attributes.communities == ("7:8",)
    assert (taken.attributes.as_path, taken.attributes.as_path_length) == ((5, 6, 64500), 3)
    assert taken.preference == local_pref_of(9)
    assert select([path(local_pref=100), taken]) == [taken]
    assert judged(sent, f=rules(importV6=[{"action": "Reject"}])) is sent


@pytest.mark.parametrize(
    ("prefix", "word"),
    [
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/8", "reserved"),
        ("10.0.0.2/32", "the address of node n2"),
        ("10.0.0.250/32", "the address of the datastore"),
    ],
)
def test_a_filter_that_accepts_lets_in_what_is_doubted(prefix: str, word: str) -> None:
    """A rule that says Accept; not one that says nothing of the path."""
    near = {ip_address("10.0.0.2"): "node n2", ip_address("10.0.0.250"): "the datastore"}
    facts = Facts(view_of(), (), frozenset(), frozenset(), neighbours=near)
    filtered = source(9, internal=False, filters=("f",))
    plain, sent = path(source(9, internal=False)), path(filtered)

    def judge(one: Candidate, **found: Any) -> Candidate | str:
        return ImportPolicy(facts, found).judge(net(prefix), one)

    assert word in str(judge(plain))
    assert word in str(judge(sent, f=rules(importV4=[])))
    assert judge(sent, f=rules(importV4=[{"action": "Accept"}])) is sent
    exact = {"cidr": prefix, "matchOperator": "Equal", "action": "Accept"}
    assert judge(sent, f=rules(importV4=[exact])) is sent
    assert "rejects" in str(judge(sent, f=rules(importV4=[{"action": "Reject"}])))


@pytest.mark.parametrize("hop", ["127.0.0.1", "224.0.0.5", "255.255.255.255", "0.0.0.0"])
def test_a_next_hop_that_is_no_other_host(hop: str) -> None:
    """The kernel takes no such gateway: no filter makes it one."""
    sent = path(source(9, internal=False, filters=("f",)), hop)
    assert "no host address" in str(judged(sent, f=rules(importV4=[{"action": "Accept"}])))


def test_a_peer_that_is_about_to_go_is_the_last_choice() -> None:
    leaving = judged(path(source(2), communities=(GRACEFUL_SHUTDOWN,), local_pref=500))
    assert isinstance(leaving, Candidate)
    staying = path(source(3), local_pref=1)
    assert select([leaving, staying]) == [staying]
    assert select([leaving]) == [leaving]
