"""Make before break, in virtual time: from a mesh to reflectors, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.peering.planned import MESH, PlannedPeer
from bgp.speaker.interface import IPAddress
from tests.bgp.test_exabgp import a_peer
from tests.size import examples

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


def test_a_handover_that_is_over_says_nothing_of_the_next_one() -> None:
    """R took over from A long ago: it is no successor of B, and not complete on its behalf."""
    handover = MakeBeforeBreak(linger=10, limit=120)
    held = handover.plan(peers(A, B), peers(B, R), always, 0.0)
    for moment in (0, 10):
        gone = handover.release(moment, always, always)
    assert gone == {A: True}
    assert handover.successors == set()
    new = IPv4Address("10.0.0.8")
    handover.plan({each: held[each] for each in (B, R)}, peers(R, new), always, 1000.0)
    assert handover.successors == set()
    only_r = lambda each: each == R  # noqa: E731
    assert handover.release(1000, only_r, always) == {}
    assert handover.release(1010, only_r, always) == {}
    assert handover.release(1020, always, always) == {}
    assert handover.release(1030, always, always) == {B: True}


@dataclass
class Model:
    """What make before break promises, from the history of one handover at a time."""

    linger: float
    limit: float
    planned: frozenset[IPAddress] = frozenset()
    held: dict[IPAddress, float] = field(default_factory=dict)
    covered: dict[IPAddress, float] = field(default_factory=dict)
    came: set[IPAddress] = field(default_factory=set)
    """The sessions that came since this handover began."""
    complete: float | None = None
    settled: bool = False

    @property
    def taking_over(self) -> set[IPAddress]:
        return self.came or set(self.planned)

    def plan(self, new: frozenset[IPAddress], exists: frozenset[IPAddress], now: float) -> None:
        before = self.planned | self.held.keys()
        left = self.planned - new
        self.planned = new
        self.came = (self.came & new) | (new - before)
        self.held |= {each: now for each in left if each not in self.held}
        self.end([each for each in self.held if each in new or each not in exists or not new])

    def release(
        self, complete: frozenset[IPAddress], covered: frozenset[IPAddress], now: float
    ) -> dict[IPAddress, bool]:
        if not self.held or not complete & self.taking_over:
            self.complete, self.covered = None, {}
        elif self.complete is None:
            self.complete = now
        self.settled = self.complete is not None and now - self.complete >= self.linger / 2
        for each in self.held:
            if each not in covered or self.complete is None:
                self.covered.pop(each, None)
            else:
                self.covered.setdefault(each, now)
        gone = {
            each: each in self.covered
            for each, since in self.held.items()
            if now - self.covered.get(each, now) >= self.linger or now - since >= self.limit
        }
        self.end(gone)
        return gone

    def end(self, gone: Iterable[IPAddress]) -> None:
        for each in gone:
            del self.held[each]
            self.covered.pop(each, None)
        if not self.held:
            self.came, self.complete, self.settled, self.covered = set(), None, False, {}


ALL = [IPv4Address(f"10.0.0.{number}") for number in range(2, 6)]
some = st.frozensets(st.sampled_from(ALL))
most = st.just(frozenset(ALL)) | some
waits = st.sampled_from([0, 1, 5, 10, 50])
steps = st.tuples(st.just("plan"), some, most, waits) | st.tuples(
    st.just("release"), most, most, waits
)


def among(addresses: frozenset[IPAddress]) -> Callable[[PlannedPeer], bool]:
    return lambda planned: planned.peer.address in addresses


@given(st.lists(steps, max_size=20))
@settings(max_examples=examples(300))
def test_any_history_keeps_what_is_promised(
    history: list[tuple[str, frozenset[IPAddress], frozenset[IPAddress], int]],
) -> None:
    handover, model, now = MakeBeforeBreak(linger=10, limit=50), Model(10, 50), 0.0
    holds: Mapping[IPAddress, PlannedPeer] = {}
    for verb, one, two, wait in history:
        now += wait
        if verb == "plan":
            holds = handover.plan(holds, peers(*one), among(two), now)
            model.plan(one, two, now)
        else:
            gone = handover.release(now, one.__contains__, two.__contains__)
            assert gone == model.release(one, two, now)
            holds = {each: planned for each, planned in holds.items() if each not in gone}
        assert holds.keys() == model.planned | model.held.keys()
        assert handover.kept.keys() == model.held.keys()
        assert handover.successors == (model.taking_over if model.settled else set())
