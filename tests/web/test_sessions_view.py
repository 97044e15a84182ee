"""Sessions with their state: from a node's word, from a CalicoNodeStatus, from neither."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.support.explain_world import document
from tests.web import world
from web.facts.words import silent
from web.views.sessions import CAUSE_ON_NODE, NOT_ASKED, sessions
from web.views.state import State


def test_a_nodes_word_names_cause_and_remedy() -> None:
    held = sessions(world.facts())["n2"]
    assert [(one.peer, one.state) for one in held] == [
        ("10.99.0.254", State.DOWN),
        ("n1", State.UP),
    ]
    assert held[0].cause == "refused"
    assert held[0].why == (
        "refused: 10.99.0.254 port 179 refuses connections;"
        " start the router's BGP, or correct the address of BGPPeer(tor)"
    )
    assert held[1].why == ""


def test_a_status_tells_the_state_alone() -> None:
    (one,) = sessions(world.facts())["n1"]
    assert (one.peer, one.state) == ("n2", State.UP)
    assert one.source.startswith("CalicoNodeStatus status-n1")
    down = world.facts(world.status("n1", _10_99_0_2="Active"))
    (one,) = sessions(down)["n1"]
    assert (one.state, one.info, one.fix) == (State.DOWN, "Active", CAUSE_ON_NODE)


def test_a_status_that_is_too_old_tells_no_state() -> None:
    """`calicoctl status` takes none either: the node may be gone since."""
    facts = world.facts(world.status("n1", _10_99_0_2="Established"))
    (one,) = sessions(replace(facts, at=facts.at + timedelta(days=4)))["n1"]
    assert one.state is State.UNKNOWN
    assert "CalicoNodeStatus status-n1 is of " in one.fix


def test_one_that_a_single_end_holds_is_down() -> None:
    (one,) = sessions(world.facts())["n3"]
    assert (one.state, one.cause) == (State.DOWN, "one-sided")
    assert "n1 does not hold its end" in one.seen


def test_without_any_word_the_state_is_not_known_and_the_way_to_it_is_told() -> None:
    facts = world.facts(words={})
    found = {one.peer: one for one in sessions(facts)["n2"]}
    assert {one.state for one in found.values()} == {State.UNKNOWN}
    assert found["n1"].fix == NOT_ASKED


def test_a_node_of_a_large_mesh_has_sessions_that_are_not_known() -> None:
    mesh = document("BGPConfiguration", "default", nodeToNodeMeshEnabled=True)
    more = [world.node(f"n{number}", "b") for number in range(4, 30)]
    held = sessions(world.facts(mesh, *more, words={}))["n20"]
    assert [(one.peer, one.state) for one in held] == [("full mesh of 28 nodes", State.UNKNOWN)]


def test_a_speaker_that_is_gone_takes_its_sessions_along() -> None:
    word = world.word_of_n2()
    gone = replace(word, bgp=replace(word.bgp, running=False))
    held = sessions(world.facts(words={"n2": gone}))["n2"]
    assert {one.state for one in held} == {State.DOWN}
    assert {one.cause for one in held} == {"speaker gone"}


def test_a_node_that_did_not_answer_is_no_word() -> None:
    facts = world.facts(words={"n1": silent("n1", "timed out")})
    assert sessions(facts)["n1"][0].source.startswith("CalicoNodeStatus")
