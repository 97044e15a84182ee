"""`bgp topology`: the sessions of a cluster as a table and as drawings."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from bgp.cluster.nodes import DRAIN
from bgp.cluster.view import ClusterView
from calicoctl.routing import drawing
from calicoctl.routing.folding import folded
from calicoctl.routing.topology import topology
from tests.bgp.make import node, put, view_of
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_bgp_plan import document
from tests.calicoctl.test_bgp_plan import node as node_document


def racks() -> ClusterView:
    """n1 reflects for n2 and n3; n3 has a router of its own and drains."""
    view = view_of(2)
    node(view, 1, routeReflectorClusterID="224.0.0.1")
    node(view, 3, annotations={DRAIN: "true"}, labels={"rack": "b"})
    put(view, "BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    for name in ("n2", "n3"):
        put(view, "BGPPeer", f"rr-{name}", {"node": name, "peerIP": "10.0.0.1", "asNumber": 64512})
    tor = {"peerIP": "10.0.0.254", "asNumber": 64500, "nodeSelector": "rack == 'b'"}
    put(view, "BGPPeer", "tor", tor)
    put(view, "BGPPeer", "back", {"node": "n1", "peerIP": "10.0.0.2", "asNumber": 64512})
    return view


def test_one_link_a_session_and_one_sided_ones_are_marked() -> None:
    whole = topology(racks())
    links = {(link.near, link.far): link.note for link in whole.links}
    assert links == {
        ("n1", "n2"): "client",
        ("n3", "n1"): "n1 does not hold its end",
        ("n3", "10.0.0.254"): "",
    }
    text = drawing.table(whole)
    assert "| n3   | 10.0.0.254 | 10.0.0.254 | node specific |   64500 | not known |" in text
    assert text.endswith("Sessions: 3 not known\n")
    assert whole.places[0].reflector == "224.0.0.1"


def test_a_large_mesh_is_one_place() -> None:
    whole = topology(view_of(12))
    assert len(whole.links) == 66
    drawn = folded(whole)
    assert len(drawn.links) == 12
    assert drawn.places[-1].name == "full mesh of 12 nodes"
    assert folded(topology(view_of(5))).links == topology(view_of(5)).links


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg"])
def test_drawings_hold_every_place_and_link(form: str) -> None:
    whole = topology(racks())
    text = drawing.FORMS[form](whole)
    for place in whole.places:
        assert place.name in text
    assert "reflector 224.0.0.1" in text
    assert "draining" in text
    counts = {"dot": r" -- ", "mermaid": r" (---|-\.-)\|", "svg": r"<line "}
    assert len(re.findall(counts[form], text)) == len(whole.links)
    broken = {"dot": "style=dashed", "mermaid": " -.-|", "svg": "stroke-dasharray"}
    assert text.count(broken[form]) == 1


@pytest.mark.parametrize("name", ['a"];x', "a<b>&", "a\\", "--"])
def test_names_stay_in_their_place(name: str) -> None:
    whole = topology(racks())
    places = [replace(whole.places[0], name=name), *whole.places[1:]]
    links = [replace(link, far=name if link.far == "n1" else link.far) for link in whole.links]
    links = [replace(link, near=name if link.near == "n1" else link.near) for link in links]
    strange = replace(whole, places=places, links=links)
    drawn = ET.fromstring(drawing.FORMS["svg"](strange))
    texts = ["".join(each.itertext()) for each in drawn.iter()]
    assert name in texts
    for line in drawing.mermaid(strange).splitlines()[1:]:
        assert re.fullmatch(
            r'  p\d+(\[|\(\[|\{\{)"[^"]*"(\]|\]\)|\}\})|  p\d+ \S+\|not known\| p\d+'
            r'|  linkStyle \d+ stroke:#\w+', line,
        )  # fmt: skip
    unquoted = re.sub(r'"(\\.|[^"\\])*"', "", drawing.dot(strange))
    assert '"' not in unquoted


def test_the_command(ctl: Ctl) -> None:
    assert ctl("bgp", "topology").out == "No BGP sessions are configured.\n"
    nodes = "".join(node_document(number) for number in (1, 2))
    peer = document("BGPPeer", "tor", peerIP="10.0.0.254", asNumber=64500)
    assert ctl("apply", "-f", "-", stdin=nodes + peer).code == 0
    lines = ctl("bgp", "topology").out.splitlines()
    assert len(lines) == 4 + 3 + 1
    for form, start in (
        ("dot", "graph bgp"),
        ("mermaid", "graph LR"),
        ("svg", "<svg"),
        ("json", "{"),
    ):
        done = ctl("bgp", "topology", "-o", form)
        assert (done.code, done.out.startswith(start)) == (0, True)
