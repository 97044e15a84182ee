"""Reflectors by hand and chosen automatically: sessions from every node's side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.view import AUTOMATIC_REFLECTORS, ClusterView
from bgp.peering import peering
from bgp.peering.peering import MESH, Settings
from bgp.peering.reflectors import Choice, automatic, cluster_ids, requested
from tests.bgp.make import node, put, view_of


def ask(view: ClusterView, text: str) -> None:
    put(view, "BGPConfiguration", "default", {}, annotations={AUTOMATIC_REFLECTORS: text})


def test_wishes() -> None:
    assert requested("") is requested("false") is None
    assert requested("true") == Choice(50, 3)
    assert requested("above=5 count=2") == Choice(5, 2)
    for wrong in ("yes", "above=0", "count=-1", "below=3"):
        with pytest.raises(ValueError, match=r"above=<nodes> count=<reflectors>"):
            requested(wrong)


@pytest.mark.promise("M-115")
def test_above_the_limit_the_mesh_becomes_reflectors() -> None:
    view = view_of(6)
    for number in range(1, 7):
        node(view, number, creationTimestamp=f"2026-01-{10 - number:02}T00:00:00Z")
    ask(view, "above=6 count=2")
    assert automatic(view) == ()
    ask(view, "above=5 count=2")
    assert cluster_ids(view) == {"n6": "10.0.0.6", "n5": "10.0.0.5"}
    sessions = {}
    for number in range(1, 7):
        view.me = f"n{number}"
        peers = peering.plan(view, Settings()).peers
        assert {each.kind for each in peers} == {MESH}
        sessions[view.me] = {each.node: each.client for each in peers}
    assert sessions["n1"] == {"n5": False, "n6": False}
    assert sessions["n6"] == dict.fromkeys(["n1", "n2", "n3", "n4", "n5"], True)
    node(view, 7, creationTimestamp="2026-02-01T00:00:00Z")  # RFL-3
    assert set(cluster_ids(view)) == {"n5", "n6"}
    node(view, 3, routeReflectorClusterID="1.0.0.1")  # RFL-4
    assert automatic(view) == ()
    assert cluster_ids(view) == {"n3": "1.0.0.1"}


def test_a_wrong_wish_is_named_and_the_mesh_stays() -> None:
    view = view_of(3)
    ask(view, "plenty")
    plan = peering.plan(view, Settings())
    assert len(plan.peers) == 2
    assert "muslin/automatic-reflectors" in plan.refused[0].reason


@given(st.sets(st.integers(1, 200), min_size=4, max_size=30), st.integers(1, 4))
def test_both_ends_agree(numbers: set[int], count: int) -> None:
    """A session is planned at both ends or at none, and the reflectors connect all nodes."""
    view = ClusterView("n1")
    for number in numbers:
        node(view, number)
    ask(view, f"above=3 count={count}")
    links = set()
    for number in numbers:
        view.me = f"n{number}"
        links |= {(view.me, each.node) for each in peering.plan(view, Settings()).peers}
    assert {(other, one) for one, other in links} == links
    chosen = set(cluster_ids(view))
    assert len(chosen) == min(count, len(numbers))
    for one in {f"n{number}" for number in numbers}:
        assert {other for me, other in links if me == one} >= chosen - {one}
