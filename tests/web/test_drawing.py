"""Every view as markup: well formed, reachable by keyboard, explained by more than colour."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from flows.query import Listing, Seen
from flows.record import Action, Reporter
from tests.bgp.make import view_of
from tests.support.explain_world import DB, document, node, shop
from tests.web import world
from tests.web.test_flows_view import END, flow
from web.drawing import addresses, flows, health, network, policy, starts
from web.drawing import node as node_drawing
from web.drawing.markup import Html
from web.facts.facts import Facts
from web.facts.sessions import sessions_of
from web.pages.shown import VIEWS
from web.views.addresses import block_view, other_problems, pools
from web.views.flows import flow_view
from web.views.health import health as health_view
from web.views.matrix import Asked, matrix
from web.views.network import network as network_view
from web.views.node import node_view
from web.views.plan import plan_view
from web.views.starts import starts as start_view
from web.views.state import State


def parsed(made: Html) -> ET.Element:
    """The markup as a tree: it must be well formed."""
    return ET.fromstring(f"<x>{made}</x>")


def texts(made: Html) -> str:
    """All text of it."""
    return " ".join(parsed(made).itertext())


def test_the_map_has_a_link_for_each_node_and_says_its_state() -> None:
    made = network.network(network_view(world.facts()), "n2")
    labels = {one.get("aria-label") or "" for one in parsed(made).iter("a")}
    for name, state in (("n1", State.UP), ("n2", State.WARNING), ("n3", State.DOWN)):
        assert any(label.startswith(f"{name}: {state.word}") for label in labels)
        assert f"{state.sign}" in texts(made)
    assert 'href="/map?node=n2"' in made
    assert "port 179 refuses connections" in texts(made)
    assert "chosen" in made


def test_a_map_of_a_thousand_nodes_is_small_and_names_them_in_titles() -> None:
    view = view_of(0)
    many = [node(f"node{number}") for number in range(1, 251)]
    facts = world.facts(*many, words={})
    view = facts.view
    facts = replace(facts, topology=sessions_of(view))
    made = network.network(network_view(facts))
    assert len(list(parsed(made).iter("a"))) >= 250
    assert len(made) < 253 * 1200
    assert "node250: " in made
    assert network_view(facts).left_out == 0


def test_of_very_many_sessions_only_those_that_are_down_are_drawn() -> None:
    many = [
        document(
            "Node",
            f"m{number}",
            bgp={"ipv4Address": f"172.16.{number // 250}.{number % 250 + 1}/16"},
        )
        for number in range(450)
    ]
    mesh = document("BGPConfiguration", "default", nodeToNodeMeshEnabled=True)
    shown = network_view(world.facts(*many, mesh))
    assert {line.state for line in shown.lines} <= {State.DOWN, State.WARNING}
    assert shown.lines
    assert f"{shown.left_out} sessions are not drawn" in network.network(shown)


def test_a_node_with_everything() -> None:
    shown = node_view(world.facts(), "n2")
    assert shown is not None
    made = texts(node_drawing.node(shown))
    for words in ("refused", "start the router's BGP", "no such field", "calico-cni", "AS"):
        assert words in made


def test_health() -> None:
    made = texts(health.health(health_view(world.facts())))
    for words in ("✕ problem", "▲ warning", "What to do", "2 of 3 nodes"):
        assert words in made.replace("  ", " ")


def test_addresses_say_problems_in_words() -> None:
    facts = world.facts()
    grids = pools(facts)
    block = block_view(facts, grids, "10.65.0.1")
    made = addresses.addresses(grids, block, other_problems(facts))
    problem = next(one for one in parsed(made).iter("a") if "problem" in (one.get("class") or ""))
    assert "".join(problem.itertext()).startswith("!")
    assert "leaked" in (problem.get("aria-label") or "")
    assert "LEAKED" in texts(made)
    assert "no IP pool" in texts(addresses.addresses([], None, []))


def test_the_matrix_and_its_rule() -> None:
    asked = Asked(port=5432)
    made = policy.matrix(matrix(shop(DB), asked), asked, ("lab", "shop"))
    cell = next(one for one in parsed(made).iter("a") if "lab to shop" in (one.get("title") or ""))
    assert cell.text == "◐"
    assert cell.get("title") == "lab to shop: 2 of 3 pairs allowed"
    assert "end of tier default" in texts(made)
    assert "DENIED" in texts(made)
    assert "calicoctl explain flow lab/guest shop/db-0" in texts(made)
    parsed(policy.questions(asked, ["namespace", "role"]))


def test_a_plan() -> None:
    import yaml

    made = texts(policy.plan(plan_view(shop(), yaml.safe_dump(DB))))
    assert "DENIED" in made
    assert "end of tier default" in made
    assert "Paste" in texts(policy.plan(plan_view(shop(), "")))


def test_bars_have_names_and_numbers() -> None:
    made = starts.starts(start_view(world.facts()), "ADD", "")
    assert "240.0 ms" in texts(made)
    assert "store: 230.00 ms" in texts(made)
    assert "No node" in texts(starts.starts(start_view(world.facts(words={})), "ADD", ""))


def test_a_sankey_says_what_is_denied() -> None:
    denied = flow(action=Action.DENY, reporter=Reporter.DESTINATION, hit=END)
    made = flows.flows(flow_view(Listing((Seen(1, flow()), Seen(2, denied)), 2, 1)))
    assert "shop to data: 5 connections, 5 DENIED" in texts(made)
    assert "deny: end of tier default" in texts(made)
    assert "No flow fits" in texts(flows.flows(flow_view(Listing((), 0, 0))))
    assert 'name="source_namespace"' in flows.filters({})


@pytest.mark.parametrize("view", [one for one in VIEWS if one.show is not None])
def test_a_view_of_nothing_is_drawn_too(view: object) -> None:
    show = getattr(view, "show")  # noqa: B009
    assert len(parsed(show(Facts(), {})))


@pytest.mark.parametrize("view", [one for one in VIEWS if one.show is not None])
def test_names_of_others_cannot_leave_their_place(view: object) -> None:
    bad = document("Node", "n4", bgp={"ipv4Address": "10.99.0.4/24"})
    bad["metadata"]["labels"] = {"rack": "x"}
    facts = world.facts(bad)
    node_value = facts.view.nodes["n4"]
    facts.view.nodes["n4"] = replace(node_value, labels={"rack": '"><script>alert(1)</script>'})
    show = getattr(view, "show")  # noqa: B009
    made = show(facts, {"node": "n4", "by": "rack"})
    assert "<script" not in made
    parsed(made)


def test_no_colour_alone_explains_a_state() -> None:
    made = network.network(network_view(world.facts()))
    for found in re.finditer(r'class="(?:tile|session) state-[a-z]+', made):
        before = made[max(0, found.start() - 400) : found.end() + 200]
        assert "<title>" in before
