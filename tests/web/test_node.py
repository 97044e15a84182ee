"""What a click on a node shows."""

from __future__ import annotations

from tests.web import world
from web.facts.words import silent
from web.views.node import NO_ROUTES, NO_WORD, node_view


def test_causes_conditions_and_processes() -> None:
    shown = node_view(world.facts(), "n2")
    assert shown is not None
    assert shown.sessions[0].cause == "refused"
    assert shown.conditions == (("calico-felix", "NetworkPolicy(shop/old)", "no such field"),)
    assert [name for name, _ in shown.processes] == ["calico-felix", "calico-bgp", "calico-cni"]
    assert dict(shown.facts)["labels"] == "rack=a"
    assert NO_ROUTES in shown.missing


def test_routes_of_a_status_and_what_lacks() -> None:
    shown = node_view(world.facts(), "n1")
    assert shown is not None
    assert [(one.destination, one.source) for one in shown.routes] == [
        ("10.65.1.0/26", "BGPPeer 10.99.0.1")
    ]
    assert shown.missing == (NO_WORD,)


def test_a_node_that_did_not_answer_and_one_that_is_none() -> None:
    shown = node_view(world.facts(words={"n2": silent("n2", "timed out")}), "n2")
    assert shown is not None
    assert "timed out" in shown.missing
    assert node_view(world.facts(), "n9") is None
