"""Whose paths outlive a session: tables of cases, and the start gate."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.decide.routing import Routing
from bgp.peering.planned import GLOBAL, PlannedPeer
from bgp.sessions.graceful_restart import (
    OWN_RESTART_TIME,
    SETTLE_TIME,
    Action,
    Helper,
    InitialConvergence,
    Verb,
)
from bgp.sessions.metrics import Metrics
from bgp.sessions.sessions import Sessions
from bgp.speaker.interface import (
    DownReason,
    Event,
    Family,
    IPAddress,
    PeerDown,
    PeerOpen,
    PeerUp,
    SpeakerDown,
)
from libcalico.process.counters import Registry
from tests.bgp.test_exabgp import a_peer

P, Q = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
V4, V6 = Family.IPV4, Family.IPV6
pytestmark = pytest.mark.promise("F-43")


def opened(time: int | None = 30, listed: str = "46", forwarding: str = "46") -> PeerOpen:
    def families(text: str) -> frozenset[Family]:
        return frozenset({"4": V4, "6": V6}[letter] for letter in text)

    return PeerOpen(
        P, 64512, None, 90, time, families(listed if time else ""), families(forwarding)
    )


def helper(message: PeerOpen | None = None) -> Helper:
    one = Helper()
    one.opened(message or opened())
    assert one.up(P, [V4, V6], 0) == []
    return one


def verbs(actions: list[Action]) -> list[tuple[Verb, Family]]:
    return [(action.verb, action.family) for action in actions]


KEEP = [(Verb.MARK, V4), (Verb.MARK, V6)]
DROP = [(Verb.DROP, V4), (Verb.DROP, V6)]


@pytest.mark.parametrize(
    ("message", "reason", "expected"),
    [
        (opened(), DownReason.CLOSED, KEEP),
        (opened(), DownReason.NOTIFICATION_RECEIVED, DROP),
        (opened(), DownReason.NOTIFICATION_SENT, DROP),
        (opened(), DownReason.REMOVED, DROP),
        (opened(None), DownReason.CLOSED, DROP),
        (opened(0), DownReason.CLOSED, DROP),
        (opened(30, "4"), DownReason.CLOSED, [(Verb.MARK, V4), (Verb.DROP, V6)]),
        (opened(30, "46", ""), DownReason.CLOSED, KEEP),
    ],
)
def test_down(message: PeerOpen, reason: DownReason, expected: list[tuple[Verb, Family]]) -> None:
    one = helper(message)
    assert verbs(one.down(P, reason, 10)) == expected
    assert one.down(P, reason, 11) == []


def test_comes_back_and_names_all() -> None:
    one = helper()
    one.down(P, DownReason.CLOSED, 10)
    assert one.next_deadline() == 40
    one.opened(opened())
    assert one.up(P, [V4, V6], 12) == []
    assert verbs(one.end_of_rib(P, V4)) == [(Verb.SWEEP, V4)]
    assert one.end_of_rib(P, V4) == []
    assert one.stale_until(P) == 42
    assert verbs(one.expired(42)) == [(Verb.SWEEP, V6)]
    assert one.next_deadline() is None


def test_lost_its_forwarding_state() -> None:
    """GR-2: F=0 or the capability gone: dropped when the session is up."""
    one = helper()
    one.down(P, DownReason.CLOSED, 10)
    one.opened(opened(30, "46", "6"))
    assert verbs(one.up(P, [V4, V6], 12)) == [(Verb.SWEEP, V4)]
    one = helper()
    one.down(P, DownReason.CLOSED, 10)
    one.opened(opened(None, "", ""))
    assert verbs(one.up(P, [V4, V6], 12)) == [(Verb.SWEEP, V4), (Verb.SWEEP, V6)]


def test_never_comes_back() -> None:
    one = helper()
    one.down(P, DownReason.CLOSED, 10)
    assert one.expired(39.9) == []
    assert verbs(one.expired(40)) == [(Verb.SWEEP, V4), (Verb.SWEEP, V6)]
    assert one.expired(100) == []


def test_dies_again_before_end_of_rib() -> None:
    """GR-3: what was stale already goes, what the short session named is stale now."""
    one = helper()
    one.down(P, DownReason.CLOSED, 10)
    one.opened(opened())
    one.up(P, [V4, V6], 12)
    one.end_of_rib(P, V6)
    assert verbs(one.down(P, DownReason.CLOSED, 13)) == [
        (Verb.SWEEP, V4),
        (Verb.MARK, V4),
        (Verb.MARK, V6),
    ]


def test_our_own_speaker_dies() -> None:
    """Nobody restarted: all is kept, whatever the peer announces, also twice in a row."""
    one = helper(opened(None))
    assert verbs(one.speaker_down(10)) == KEEP
    assert one.speaker_down(11) == []
    assert one.next_deadline() == 10 + OWN_RESTART_TIME
    one.opened(opened(None))
    assert one.up(P, [V4, V6], 12) == []
    assert verbs(one.end_of_rib(P, V4)) == [(Verb.SWEEP, V4)]


def test_forgotten() -> None:
    one = helper()
    assert {verb for verb, _ in verbs(one.forget(P))} == {Verb.DROP}
    assert one.forget(P) == []
    assert one.end_of_rib(P, V4) == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["up", "f0", "closed", "notified", "speaker", "eor"]), st.floats(0, 50)
    ),
    max_size=20,
)


@given(steps)
def test_nothing_is_kept_for_ever(story: list[tuple[str, float]]) -> None:
    """GR-1: whatever happens, stale paths have an end, and a down session keeps no others."""
    one, now, stale, has = Helper(), 0.0, False, False
    up = False
    for what, wait in story:
        now += wait
        actions = one.expired(now)
        if what in ("up", "f0") and not up:
            one.opened(opened(30, "4", "4" if what == "up" else ""))
            actions += one.up(P, [V4], now)
            up = True
        elif what in ("closed", "notified") and up:
            closed = what == "closed"
            reason = DownReason.CLOSED if closed else DownReason.NOTIFICATION_RECEIVED
            actions += one.down(P, reason, now)
            up = False
        elif what == "speaker":
            actions += one.speaker_down(now)
            up = False
        elif what == "eor" and up:
            actions += one.end_of_rib(P, V4)
        for action in actions:
            stale = action.verb is Verb.MARK
            has = has and action.verb is Verb.MARK
        has = has or up
        assert stale == (one.next_deadline() is not None)
        assert up or not has or stale
    assert one.expired(now + 1000) != [] or not stale
    assert one.next_deadline() is None


# -- the start gate


def test_no_peers_open_at_once() -> None:
    gate = InitialConvergence(0)
    assert not gate.check(100)  # the plan is not known: felix keeps what the kernel has
    gate.expect([])
    assert gate.check(0)


def test_waits_for_every_family_of_every_peer() -> None:
    gate = InitialConvergence(0, deadline=60)
    gate.expect([(P, V4), (P, V6), (Q, V4)])
    gate.up(P, True, 1)
    for peer, family in ((P, V4), (Q, V4)):
        gate.end_of_rib(peer, family)
        assert not gate.check(2)
    gate.expect([(P, V4), (P, V6)])
    assert not gate.check(2)
    gate.end_of_rib(P, V6)
    assert gate.check(2)
    gate.expect([(Q, V6)])
    assert gate.check(2)


def test_a_dead_peer_delays_only_so_long() -> None:
    gate = InitialConvergence(0, deadline=60)
    gate.expect([(P, V4)])
    assert gate.next_check() == 60
    assert not gate.check(59)
    assert gate.check(60)
    assert gate.next_check() is None


def test_a_peer_without_graceful_restart() -> None:
    gate = InitialConvergence(0)
    gate.expect([(P, V4)])
    gate.up(P, False, 2)
    assert gate.next_check() == 2 + SETTLE_TIME
    assert not gate.check(2)
    assert gate.check(2 + SETTLE_TIME)


def test_a_peer_without_graceful_restart_that_ends_at_once_is_not_done() -> None:
    """It has named nothing: felix would take away what it is about to name again."""
    gate = InitialConvergence(0)
    gate.expect([(P, V4), (Q, V4)])
    gate.end_of_rib(Q, V4)
    gate.up(P, False, 2)
    gate.down(P)
    assert not gate.check(2 + SETTLE_TIME)
    gate.up(P, False, 10)
    assert not gate.check(9 + SETTLE_TIME)
    assert gate.check(10 + SETTLE_TIME)


@pytest.mark.parametrize("plans", [[[]], [[(P, V4)], []], []], ids=["new", "returns", "first"])
def test_a_peer_that_is_up_when_it_is_planned_is_done_in_its_time(
    plans: list[list[tuple[IPAddress, Family]]],
) -> None:
    """Of one that is kept, or is a client by now, no session comes up anew."""
    gate = InitialConvergence(0, deadline=60)
    for plan in plans[:1]:
        gate.expect(plan)
    gate.up(P, False, 2)
    last: list[tuple[IPAddress, Family]] = [(P, V4)]
    for plan in [*plans[1:], last]:
        gate.expect(plan)
    assert not gate.check(1 + SETTLE_TIME)
    assert gate.next_check() == 2 + SETTLE_TIME
    assert gate.check(2 + SETTLE_TIME)
    again = InitialConvergence(0, deadline=60)
    again.up(P, False, 2)
    again.down(P)
    again.expect([(P, V4)])
    assert again.next_check() == 60


@pytest.mark.parametrize("end", [PeerDown(P, DownReason.CLOSED), SpeakerDown("")])
def test_the_end_of_a_session_reaches_the_gate(end: Event) -> None:
    gate = InitialConvergence(0)
    sessions = Sessions(Routing({}, lambda _: None), gate, Metrics(Registry()))
    planned = PlannedPeer(a_peer(str(P), "10.0.0.9"), GLOBAL, False)
    sessions.hold({P: planned})
    sessions.handle_event(opened(None), 1)
    sessions.handle_event(PeerUp(P, planned.peer), 1)
    sessions.handle_event(end, 2)
    assert not gate.check(1 + SETTLE_TIME)
    sessions.handle_event(PeerUp(P, planned.peer), 8)
    assert gate.check(8 + SETTLE_TIME)


def test_a_peer_that_cannot_be_configured_yet_delays_as_one_that_does_not_come_up() -> None:
    gate = InitialConvergence(0, deadline=60)
    gate.lacking = True
    gate.expect([])
    assert not gate.check(59)
    assert gate.next_check() == 60
    assert gate.check(60)


def test_a_settled_peer_asks_for_no_further_look() -> None:
    """Its moment has passed, and the gate waits for another: nobody shall look in a circle."""
    gate = InitialConvergence(0, deadline=60)
    gate.expect([(P, V4), (Q, V4)])
    gate.up(P, graceful=False, now=0)
    assert gate.next_check() == 5.0
    assert not gate.check(6)
    assert gate.next_check() == 60
    gate.expect([(P, V4), (Q, V4)])
    assert gate.next_check() == 60
    gate.end_of_rib(Q, V4)
    assert gate.check(7)
