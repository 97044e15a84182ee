"""The import side of a session: loops, filters, and a peer that is about to go."""

from __future__ import annotations

from typing import Any

import pytest

from bgp.bestpath import Candidate, select
from bgp.filters import local_pref_of
from bgp.intake import GRACEFUL_SHUTDOWN, Intake
from tests.bgp.make import net, path, rules, source

PREFIX = net("10.200.0.0/24")


def judged(sent: Candidate, **filters: Any) -> Candidate | str:
    return Intake(filters=filters).judge(PREFIX, sent)


def test_without_filters_all_is_taken() -> None:
    sent = path(source(9, internal=False), as_path=(64500,))
    assert judged(sent) is sent
    assert "AS loop" in str(judged(path(as_path=(64512,))))


@pytest.mark.promise("F-39")
def test_reflection_loops() -> None:
    ours = source(own_cluster="1.0.0.1")
    assert "reflection loop" in str(judged(path(ours, cluster_list=("2.0.0.2", "1.0.0.1"))))
    assert isinstance(judged(path(ours, cluster_list=("2.0.0.2",))), Candidate)


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


def test_a_peer_that_is_about_to_go_is_the_last_choice() -> None:
    leaving = judged(path(source(2), communities=(GRACEFUL_SHUTDOWN,), local_pref=500))
    assert isinstance(leaving, Candidate)
    staying = path(source(3), local_pref=1)
    assert select([leaving, staying]) == [staying]
    assert select([leaving]) == [leaving]
