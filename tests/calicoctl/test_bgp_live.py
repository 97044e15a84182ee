"""`bgp peers` and the states of `bgp topology`: a dead session looks dead in every form."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from bgp.cluster.view import ClusterView
from calicoctl.routing import drawing, peers, states
from calicoctl.routing.folding import folded
from calicoctl.routing.topology import Link, Topology, topology
from calicoctl.status.values import DOWN, UNKNOWN, UP, ClusterStatus, Grade, NodeState, Session
from tests.bgp.make import view_of
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.status_world import NOW
from tests.calicoctl.test_bgp_plan import document
from tests.calicoctl.test_bgp_plan import node as node_document


def session(node: int, peer: int, state: str, **more: Any) -> Session:
    return Session(f"n{node}", f"10.0.0.{peer}", state, peer=f"n{peer}", **more)


def both(one: int, other: int, state: str, back: str) -> list[Session]:
    return [session(one, other, state), session(other, one, back)]


def states_of(whole: Topology) -> dict[tuple[str, str], str]:
    return {(link.near, link.far): link.state for link in whole.links}


def mesh(count: int, *sessions: Session) -> Topology:
    return states.with_states(topology(view_of(count)), sessions)


def test_a_link_is_down_when_one_end_says_so_and_up_only_when_told() -> None:
    told = mesh(
        3,
        *both(1, 2, UP, DOWN),
        session(1, 3, UP),
        session(2, 3, UNKNOWN),
    )
    assert states_of(told) == {
        ("n1", "n2"): DOWN,
        ("n1", "n3"): UP,
        ("n2", "n3"): UNKNOWN,
    }
    assert set(states_of(mesh(3)).values()) == {UNKNOWN}


def test_the_far_end_alone_can_tell() -> None:
    down = session(2, 1, DOWN, cause="refused", seen="port 179 is shut", fix="start it")
    told = mesh(2, down, session(1, 2, UNKNOWN))
    (link,) = told.links
    assert (link.state, link.why) == (DOWN, "refused: port 179 is shut; start it")


@pytest.mark.parametrize("count", [3, 15])
@pytest.mark.parametrize("form", ["table", "dot", "mermaid", "svg", "json"])
def test_every_form_tells_the_dead_session_in_words(form: str, count: int) -> None:
    names = range(1, count + 1)
    alive = [session(one, other, UP) for one in names for other in names if one != other]
    dead = session(1, 2, DOWN, cause="refused", seen="s", fix="f")
    fine = drawing.FORMS[form](mesh(count, *alive))
    text = drawing.FORMS[form](mesh(count, *alive, dead))
    told = {"table": r"\| down ", "dot": 'label="down"', "mermaid": r"\|down\|",
            "svg": ">down</text>", "json": '"state": "down"'}[form]  # fmt: skip
    assert not re.search(told, fine)
    assert len(re.findall(told, text)) == 1
    if form in ("svg", "table", "json"):
        assert "refused: s; f" in text
    if form == "svg":
        ET.fromstring(text)
        assert f"Sessions: {count * (count - 1) // 2 - 1} up, 1 down" in text


def test_a_folded_mesh_counts_its_dead_sessions_at_each_spoke() -> None:
    alive = [session(one, other, UP) for one in range(1, 13) for other in range(1, 13)]
    dead = [session(1, other, DOWN) for other in range(2, 13)]
    drawn = folded(mesh(12, *alive, *dead))
    spokes = {link.near: link for link in drawn.links if "mesh of" in link.far}
    assert (spokes["n1"].state, spokes["n1"].why) == (DOWN, "11 of 11 sessions are down")
    assert (spokes["n2"].state, spokes["n2"].why) == (UP, "1 of 11 sessions are down")


def status_of(*nodes: NodeState) -> ClusterStatus:
    return ClusterStatus(nodes, ())


def told_by(name: str, *sessions: Session) -> NodeState:
    return NodeState(name, Grade.FINE, (), sessions=sessions, source="live")


def test_the_worst_peers_come_first_and_silent_nodes_show_what_they_should_hold() -> None:
    view: ClusterView = view_of(3)
    status = status_of(
        told_by("n1", session(1, 2, UP, received=4), session(1, 3, DOWN, info="Active")),
        told_by("n2", session(2, 1, UP)),
        told_by("n3"),
    )
    listed = peers.of_status(status, topology(view, only=["n3"]))
    assert [(one.node, one.peer, one.state) for one in listed] == [
        ("n1", "n3", DOWN), ("n3", "n1", UNKNOWN), ("n3", "n2", UNKNOWN),
        ("n1", "n2", UP), ("n2", "n1", UP),
    ]  # fmt: skip
    assert [one.node for one in peers.chosen(listed, ["n1"], True)] == ["n1"]
    text = peers.table(listed, {"n1": "live"}, wide=True)
    assert text.endswith("Sessions: 2 up, 1 down, 2 not known\n")
    assert "Active" in text
    tree = json.loads(json.dumps(peers.as_tree(listed, {"n1": "live"}, ["so"])))
    assert (tree["sessions"][0]["source"], tree["missing"]) == ("live", ["so"])


def report(name: str, node: str, *peers_: dict[str, str]) -> str:
    tree = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "CalicoNodeStatus",
        "metadata": {"name": name},
        "spec": {"node": node, "classes": ["BGP"], "updatePeriodSeconds": 0},
        "status": {"lastUpdated": "2027-01-15T08:00:00Z", "bgp": {"peersV4": list(peers_)}},
    }
    return "---\n" + json.dumps(tree) + "\n"


def test_the_commands(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    nodes = "".join(node_document(number) for number in (1, 2, 3))
    assert ctl("apply", "-f", "-", stdin=nodes + document("BGPConfiguration", "default")).code == 0
    dead = {"peerIP": "10.0.0.2", "type": "NodeMesh", "state": "Active", "since": "08:00:00"}
    good = {"peerIP": "10.0.0.3", "type": "NodeMesh", "state": "Established", "since": "08:00:00"}
    assert ctl("create", "-f", "-", stdin=report("r1", "n1", dead, good)).code == 0
    tree = json.loads(ctl("bgp", "topology", "-o", "json").out)
    assert {(one["node"], one["peer"]): one["state"] for one in tree["links"]} == {
        ("n1", "n2"): "down", ("n1", "n3"): "up", ("n2", "n3"): "unknown",
    }  # fmt: skip
    done = ctl("bgp", "peers", "--down", "-o", "json")
    told = [(one["node"], one["peer"], one["state"]) for one in json.loads(done.out)["sessions"]]
    assert told[0] == ("n1", "n2", "down")
    assert ("n2", "n3", "unknown") in told
    assert ("n1", "n3", "up") not in told
    assert "sessions of n2, n3 are not known" in ctl("bgp", "peers").err
    assert "down" in ctl("bgp", "peers", "--node", "n1", "-o", "yaml").out
    assert ctl("bgp", "peers", "--node", "nx").code == 1


def test_links_keep_what_is_not_told() -> None:
    whole = topology(view_of(2))
    assert isinstance(whole.links[0], Link)
    assert states.counted(whole.links) == "1 not known"
