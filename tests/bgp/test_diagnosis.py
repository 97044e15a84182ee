"""Causes from evidence: every NOTIFICATION and every outcome of a connection has its word."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.peering.planned import GLOBAL, MESH, PlannedPeer
from bgp.sessions.diagnosis import Cause, diagnose
from bgp.sessions.evidence import Evidence, KeyDrops, Notification, Probe, Reached, notification
from bgp.sessions.probing import KeyCounters
from bgp.speaker.interface import Family, Peer, PeerOpen

HIM = IPv4Address("10.0.0.2")


def planned(kind: str = GLOBAL, **more: Any) -> PlannedPeer:
    me = IPv4Address("10.0.0.1")
    peer = Peer(HIM, 64500, me, 64512, me, (Family.IPV4,), **more)
    return PlannedPeer(peer, kind, in_cluster=kind == MESH, node="n2" if kind == MESH else "")


def opened(**more: Any) -> PeerOpen:
    return PeerOpen(HIM, 64999, HIM, 90, None, **more)


def cause(evidence: Evidence) -> Cause | None:
    found = diagnose(evidence)
    return found.cause if found else None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("notification sent (2,2)", Cause.WRONG_AS),
        ("notification received (2,2)", Cause.WRONG_AS),
        ("notification received (2,3)", Cause.SAME_ID),
        ("notification sent (2,6)", Cause.HOLD_TIMER),
        ("notification received (2,6)", Cause.HOLD_TIMER),
        ("notification received (2,7)", Cause.CAPABILITY),
        ("notification sent (4,0)", Cause.HOLD_TIMER),
        ("notification received (4,0)", Cause.HOLD_TIMER),
        ("notification received (6,1)", Cause.LIMIT),
        ("notification received (6,2)", Cause.ENDED),
        ("notification received (6,5)", Cause.UNKNOWN_HERE),
        ("notification received (6,7)", None),
        ("closing connection", None),
    ],
)
def test_words(words: str, expected: Cause | None) -> None:
    assert cause(Evidence(planned(), error=words)) is expected


@pytest.mark.parametrize(
    ("probe", "more", "expected"),
    [
        (Probe(Reached.REFUSED), {}, Cause.REFUSED),
        (Probe(Reached.NO_ROUTE), {}, Cause.NO_ROUTE),
        (Probe(Reached.NO_ADDRESS), {}, Cause.NO_ADDRESS),
        (Probe(Reached.SILENT), {}, Cause.FILTERED),
        (Probe(Reached.SILENT), {"password": "a"}, Cause.FILTERED),
        (Probe(Reached.SILENT, host_answers=True), {"password": "a"}, Cause.WRONG_PASSWORD),
        (Probe(Reached.CONNECTED), {"password": "a"}, Cause.WRONG_PASSWORD),
        (Probe(Reached.CONNECTED), {}, None),
        (Probe(Reached.CONNECTED), {"passive": True}, Cause.NOT_DIALLED),
    ],
)
def test_connections(probe: Probe, more: dict[str, Any], expected: Cause | None) -> None:
    assert cause(Evidence(planned(**more), probe=probe)) is expected
    if probe.reached is not Reached.CONNECTED:
        older = Evidence(planned(**more), probe=probe, error="notification sent (2,2)")
        assert cause(older) is expected


def test_the_kernels_counters_tell_passwords_from_filters() -> None:
    silent = Probe(Reached.SILENT)
    wrong, stray = KeyDrops(wrong=True), KeyDrops(unexpected=True)
    with_one, without = planned(password="a"), planned()
    assert cause(Evidence(with_one, probe=silent, drops=wrong)) is Cause.WRONG_PASSWORD
    assert cause(Evidence(without, probe=silent, drops=stray)) is Cause.WRONG_PASSWORD
    assert cause(Evidence(without, probe=silent, drops=wrong)) is Cause.FILTERED
    assert cause(Evidence(with_one, probe=silent, drops=stray)) is Cause.FILTERED


def test_the_fix_names_the_field_and_both_numbers() -> None:
    error = "notification sent (2,2)"
    found = diagnose(Evidence(planned(), error=error, opened=opened()))
    assert found is not None
    assert found.text == (
        "wrong AS: the peer says that it is AS 64999, and AS 64500 is configured here; "
        "correct spec.asNumber of the BGPPeer, or the AS number there"
    )
    found = diagnose(Evidence(planned(MESH), error=error))
    assert found is not None
    assert "spec.bgp.asNumber of node n2" in found.fix


def test_a_session_that_is_up() -> None:
    assert cause(Evidence(planned(), up=True, opened=opened(families={Family.IPV4}))) is None
    lacking = Evidence(planned(), up=True, opened=opened(families=frozenset({Family.IPV6})))
    assert cause(lacking) is Cause.CAPABILITY
    assert cause(Evidence(planned(), waiting=True)) is Cause.SILENT
    assert cause(Evidence(planned())) is None


@given(st.booleans(), st.integers(0, 255), st.integers(0, 255), st.text(max_size=20))
def test_notifications_are_found_in_any_words(
    sent: bool, code: int, subcode: int, around: str
) -> None:
    words = f"peer reset, message [notification {'sent' if sent else 'received'} ({code},{subcode})"
    assert notification(f"{words}] error [{around}]") == Notification(sent, code, subcode)
    found = diagnose(Evidence(planned(), error=words))
    assert found is None or (found.seen and found.fix)


def test_counters_of_a_kernel_without_md5(tmp_path: Path) -> None:
    file = tmp_path / "netstat"
    file.write_text("TcpExt: SyncookiesSent TCPMD5NotFound TCPMD5Unexpected\nTcpExt: 0 4 7\n")
    counters = KeyCounters(file)
    assert counters.since_last() == KeyDrops()
    file.write_text("TcpExt: SyncookiesSent TCPMD5NotFound TCPMD5Unexpected\nTcpExt: 0 5 7\n")
    assert counters.since_last() == KeyDrops(wrong=True)
    assert counters.since_last() == KeyDrops()
    file.unlink()
    assert counters.since_last() == KeyDrops()
