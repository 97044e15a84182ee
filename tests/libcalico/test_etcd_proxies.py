"""Which proxy a node reads through: ranks, failures and returns, without a clock."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.datastore.etcd.proxy.proxies import AWAY, SPREAD, Route, ranked
from tests.size import examples

PROXIES = [f"http://10.0.0.{number}:2379" for number in range(1, 6)]
NODES = [f"node{number}" for number in range(1000)]


def latest(least: float, most: float) -> float:
    return most


@pytest.mark.promise("PAIN-30")
def test_nodes_spread_over_the_proxies_and_over_the_rest_when_one_is_gone() -> None:
    first = Counter(ranked(node, PROXIES)[0] for node in NODES)
    assert set(first) == set(PROXIES)
    assert max(first.values()) < 2 * min(first.values())
    moved = [node for node in NODES if ranked(node, PROXIES)[0] == PROXIES[0]]
    assert set(Counter(ranked(node, PROXIES)[1] for node in moved)) == set(PROXIES[1:])


@given(st.permutations(PROXIES), st.sampled_from(NODES), st.sampled_from(PROXIES))
def test_a_rank_depends_on_no_other_proxy_nor_on_their_order(
    order: list[str], node: str, gone: str
) -> None:
    assert ranked(node, order) == ranked(node, PROXIES)
    rest = [one for one in PROXIES if one != gone]
    assert ranked(node, rest) == [one for one in ranked(node, PROXIES) if one != gone]


@pytest.mark.promise("PAIN-30")
def test_a_proxy_that_failed_is_asked_again_after_its_time_and_then_used() -> None:
    route = Route("node1", PROXIES, latest)
    best, second = ranked("node1", PROXIES)[:2]
    route.answered(best)
    assert route.failed(best, 10.0) == SPREAD
    assert route.endpoint == second
    assert route.due(10.0 + AWAY[1] - 1) is None
    assert route.due(10.0 + AWAY[1]) == best
    assert route.endpoint == second, "not before it has answered"
    assert route.failed(best, 400.0) == 0.0, "no node left it meanwhile"
    assert route.due(400.0) is None
    route.answered(best)
    assert route.endpoint == best


def test_without_any_proxy_etcd_itself_is_read_until_one_is_back() -> None:
    route = Route("node1", PROXIES[:2], latest)
    for endpoint in PROXIES[:2]:
        assert route.failed(endpoint, 0.0) == 0.0
    assert route.endpoint is None
    best, second = ranked("node1", PROXIES[:2])
    assert route.due(AWAY[1]) == best
    route.failed(best, AWAY[1])
    assert route.due(AWAY[1]) == second, "each has its turn"
    route.forgive()
    assert route.endpoint == best
    assert Route("node1", []).endpoint is None
    assert Route("node1", []).due(0.0) is None


moves = st.tuples(st.sampled_from(["failed", "answered", "ask"]), st.sampled_from(PROXIES))


@settings(max_examples=examples(300))
@given(st.sampled_from(NODES), st.lists(moves, max_size=30))
def test_nothing_that_happens_to_others_moves_a_node(
    node: str, happened: list[tuple[str, str]]
) -> None:
    """ETCD-5, and that what is away for good is never used."""
    route, now, away = Route(node, PROXIES), 0.0, set[str]()
    for what, endpoint in happened:
        before, now = route.endpoint, now + 50.0
        match what:
            case "failed":
                assert 0.0 <= route.failed(endpoint, now) <= SPREAD
                away.add(endpoint)
                assert route.endpoint == before or endpoint == before
            case "answered":
                route.answered(endpoint)
                away.discard(endpoint)
            case "ask":
                due = route.due(now)
                assert due is None or due in away
                assert route.endpoint == before
        assert route.endpoint not in away
        assert (route.endpoint is None) == (away == set(PROXIES))
        if what == "answered" and before is not None:
            order = ranked(node, PROXIES)
            assert order.index(str(route.endpoint)) <= order.index(before)
