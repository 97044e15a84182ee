"""What a change does to sessions, before it is made."""

from __future__ import annotations

from typing import Any

from bgp.peering.compare import Fate, NodeChange, of_change
from bgp.peering.peering import Settings
from tests.bgp.make import node, put, resource, view_of

SECRET = {"secretKeyRef": {"name": "tor", "key": "key"}}


def change(*objects: Any, count: int = 3, before: tuple[Any, ...] = ()) -> dict[str, NodeChange]:
    view = view_of(count, me="")
    node(view, 3, labels={"rr": "yes"})
    for each in before:
        put(view, *each)
    found = of_change(view, [resource(*each) for each in objects], Settings())
    assert set(view.nodes) == {f"n{number}" for number in range(1, count + 1)}
    return {each.node: each for each in found}


def fates(found: NodeChange) -> list[tuple[str, Fate]]:
    return [(str(each.address), each.fate) for each in found.sessions]


def test_mesh_to_a_reflector() -> None:
    found = change(
        ("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False}),
        ("BGPPeer", "rr", {"peerSelector": "rr == 'yes'"}),
    )
    assert fates(found["n1"]) == [("10.0.0.2", Fate.REMOVED), ("10.0.0.3", Fate.ADJUSTED)]
    assert found["n1"].sessions[1].details == ("kind: node-to-node mesh -> global",)
    assert found["n3"].unchanged == 0


def test_what_resets_a_session_and_what_does_not() -> None:
    tor = {"peerIP": "10.0.0.254", "asNumber": 64500, "filters": ["f"]}
    base: tuple[Any, ...] = (("BGPFilter", "f", {}), ("BGPPeer", "tor", tor))
    found = change(("BGPPeer", "tor", {**tor, "ttlSecurity": 1}), before=base)["n1"]
    assert fates(found) == [("10.0.0.254", Fate.RESET)]
    assert found.sessions[0].details == ("ttl_security: 0 -> 1",)
    assert found.unchanged == 2
    found = change(("BGPPeer", "tor", {**tor, "filters": []}), before=base)["n1"]
    assert fates(found) == [("10.0.0.254", Fate.ADJUSTED)]
    assert found.sessions[0].details == ("filters: f -> none",)
    found = change(("BGPPeer", "tor", {**tor, "password": SECRET}), before=base)["n1"]
    assert fates(found) == [("10.0.0.254", Fate.RESET)]
    assert found.sessions[0].details == ("password: changes",)
    found = change(("BGPPeer", "tor", {**tor, "filters": ["gone"]}), before=base)["n1"]
    assert fates(found) == [("10.0.0.254", Fate.REMOVED)]
    assert "gone" in found.refused[0].reason
