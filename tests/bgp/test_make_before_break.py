"""Make before break, in virtual time: from a mesh to reflectors, and what ends it."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.peering.planned import MESH, PlannedPeer
from bgp.speaker.interface import IPAddress
from tests.bgp.test_exabgp import a_peer

A, B, R = (IPv4Address(f"10.0.0.{number}") for number in (2, 3, 9))


def peers(*addresses: IPAddress, in_cluster: bool = True) -> dict[IPAddress, PlannedPeer]:
    return {
        each: PlannedPeer(a_peer(str(each), "10.0.0.1"), MESH, in_cluster, node=str(each))
        for each in addresses
    }


def always(_: object) -> bool:
    return True


def never(_: object) -> bool:
    return False


@pytest.mark.promise("PAIN-15")
def test_the_mesh_stays_until_reflectors_carry_its_routes() -> None:
    handover = MakeBeforeBreak(linger=10, limit=120)
    held = handover.plan(peers(A, B), peers(R), always, 0.0)
    assert set(held) == {A, B, R}
    assert handover.next_check(5) == 5.5
    for moment in (1, 50):  # HND-1
        assert handover.release(moment, never, always) == {}
    assert handover.release(51, always, lambda each: each == A) == {}
    assert handover.release(60.5, always, lambda each: each == A) == {}
    assert handover.release(61, always, lambda each: each == A) == {A: True}
    assert set(handover.kept) == {B}
    assert handover.release(119.5, always, never) == {}
    assert handover.release(120, always, never) == {B: False}
    assert handover.next_check(5200) is None


def test_a_successor_that_never_comes_keeps_no_session_for_ever() -> None:
    """HND-3. The limit counts from when the session left the plan, not from another change."""
    handover = MakeBeforeBreak(linger=10, limit=120)
    held = handover.plan(peers(A, B), peers(B, R), always, 1000.0)
    handover.plan(held, peers(R), always, 1060.0)
    assert handover.release(1119.5, never, always) == {}
    assert handover.release(1120, never, always) == {A: False}
    assert handover.release(1179.5, never, always) == {}
    assert handover.release(1180, never, always) == {B: False}


def test_coverage_that_ends_starts_anew() -> None:
    handover = MakeBeforeBreak(linger=10, limit=120)
    handover.plan(peers(A), peers(R), always, 0.0)
    assert handover.release(0, always, always) == {}
    assert handover.release(8, always, never) == {}
    assert handover.release(11, always, always) == {}
    assert handover.release(21, always, always) == {A: True}


def test_successors_are_named_once_one_is_complete_for_a_while() -> None:
    handover = MakeBeforeBreak(linger=10, limit=120)
    handover.plan(peers(A), peers(R), always, 0.0)
    for moment, complete, named in ((1, always, set()), (5, always, set()), (6, always, {R}),
                                    (7, never, set()), (8, always, set())):  # fmt: skip
        handover.release(moment, complete, never)
        assert handover.successors == named
    handover.release(13, always, never)
    assert handover.successors == {R}
    handover.plan(peers(R), peers(R), never, 0.0)
    assert handover.successors == set()


def test_what_ends_at_once() -> None:
    """HND-2; and a peer that is no node is not held."""
    assert set(MakeBeforeBreak().plan(peers(A), {}, always, 0.0)) == set()
    assert set(MakeBeforeBreak().plan(peers(A), peers(R), never, 0.0)) == {R}
    assert set(MakeBeforeBreak().plan(peers(A, in_cluster=False), peers(R), always, 0.0)) == {R}


def test_sessions_that_stay_are_successors_where_none_is_new() -> None:
    """A node of the mesh that becomes a reflector keeps its session."""
    handover = MakeBeforeBreak(linger=10, limit=120)
    assert set(handover.plan(peers(A, R), peers(R), always, 0.0)) == {A, R}
    assert handover.release(0, always, never) == {}
    assert handover.release(120, always, never) == {A: False}


def test_a_change_of_mind() -> None:
    handover = MakeBeforeBreak()
    held = handover.plan(peers(A, B), peers(R), always, 0.0)
    again = handover.plan(held, peers(A, B), always, 0.0)
    assert set(again) == {A, B, R}  # the reflector's session has successors now
    assert set(handover.kept) == {R}
