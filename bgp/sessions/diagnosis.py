"""Why a session does not come up, in one of few words, and what to do about it. Pure.

The evidence: the last NOTIFICATION (RFC 4271 4.5, RFC 4486), the peer's OPEN, what became of a
TCP connection that we tried (`bgp.sessions.probing`), and what the kernel counted of TCP-MD5.
TCP-MD5 (RFC 2385) drops a wrong password without a word, so silence has two readings; the counters,
or a host that answers on another port, tell them apart. Tested in tests/bgp/test_diagnosis.py, and
with real refusals in tests/bgp/test_probing.py.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bgp.peering.planned import MESH, PlannedPeer
from bgp.sessions.evidence import Evidence, Notification, Probe, Reached, notification
from bgp.speaker.interface import Family


class Cause(enum.Enum):
    """The word for it."""

    REFUSED = "refused"
    FILTERED = "filtered"
    NO_ROUTE = "no route"
    NO_ADDRESS = "no address"
    WRONG_AS = "wrong AS"
    WRONG_PASSWORD = "wrong password"
    HOLD_TIMER = "hold timer"
    CAPABILITY = "capability mismatch"
    NOT_DIALLED = "not dialled"
    UNKNOWN_HERE = "not configured there"
    ENDED = "ended by an operator"
    LIMIT = "prefix limit"
    SAME_ID = "router id"
    SILENT = "no OPEN"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause, what was seen, and what to do."""

    cause: Cause
    seen: str
    fix: str

    @property
    def text(self) -> str:
        """All in one line."""
        return f"{self.cause.value}: {self.seen}; {self.fix}"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    """The diagnosis of a session; None: it is up, or nothing is known yet.

    A probe is only made when the handshake has been silent for a while, so it is newer than any
    NOTIFICATION and comes first, unless it merely shows that TCP works.
    """
    if evidence.up:
        return _lacking_family(evidence)
    diagnosis = _of_probe(evidence) if evidence.probe is not None else None
    if diagnosis is None:
        ended = notification(evidence.error)
        diagnosis = _of_notification(ended, evidence) if ended is not None else None
    if diagnosis is None and evidence.waiting:
        return Diagnosis(
            Cause.SILENT,
            "the peer takes the connection and sends no OPEN",
            "see the log of the BGP speaker there; perhaps another service has the port",
        )
    return diagnosis or _not_dialled(evidence)


def _where(planned: PlannedPeer) -> str:
    if planned.kind == MESH:
        return f"spec.bgp.asNumber of node {planned.node}"
    return "spec.asNumber of the BGPPeer"


def _lacking_family(evidence: Evidence) -> Diagnosis | None:
    opened = evidence.opened
    if opened is None:
        return None
    lacking = [each for each in evidence.planned.peer.families if each not in opened.families]
    return _family(lacking, "the session is up, but") if lacking else None


def _family(lacking: list[Family], start: str) -> Diagnosis:
    names = ", ".join(each.value for each in lacking)
    return Diagnosis(
        Cause.CAPABILITY,
        f"{start} the peer does not carry {names}",
        "enable that address family for this neighbour there",
    )


# -- TCP


def _of_probe(evidence: Evidence) -> Diagnosis | None:
    probe, peer = evidence.probe, evidence.planned.peer
    assert probe is not None
    port, me = peer.port, peer.local_address
    if probe.reached is Reached.REFUSED:
        return Diagnosis(
            Cause.REFUSED,
            f"{peer.address} refuses connections to port {port}",
            "start the BGP speaker there, correct the port, or lift a firewall that rejects",
        )
    if probe.reached is Reached.NO_ROUTE:
        return Diagnosis(
            Cause.NO_ROUTE,
            f"{peer.address} cannot be reached: no route, or no answer from its network",
            "correct the address or this node's routes (spec.reachableBy names a gateway)",
        )
    if probe.reached is Reached.NO_ADDRESS:
        return Diagnosis(
            Cause.NO_ADDRESS,
            f"this node does not have the address {me} that it shall dial from",
            "correct spec.bgp of this Node, or set sourceAddress: None in the BGPPeer",
        )
    if probe.reached is Reached.SILENT:
        return _of_silence(evidence, probe)
    if peer.password:
        return Diagnosis(
            Cause.WRONG_PASSWORD,
            "the peer takes connections without a password, and ours has one",
            "give the session its password there, or take spec.password away here",
        )
    return None


def _of_silence(evidence: Evidence, probe: Probe) -> Diagnosis:
    peer = evidence.planned.peer
    if peer.password and evidence.drops.wrong:
        return Diagnosis(
            Cause.WRONG_PASSWORD,
            "connections come in with another password, or with none",
            "make the password the same on both sides",
        )
    if not peer.password and evidence.drops.unexpected:
        return Diagnosis(
            Cause.WRONG_PASSWORD,
            "connections come in with a password, and none is set here",
            "set spec.password of the BGPPeer, or nodeMeshPassword for the mesh (or take it away"
            " there); else a firewall drops this port alone",
        )
    if peer.password and probe.host_answers:
        return Diagnosis(
            Cause.WRONG_PASSWORD,
            f"{peer.address} answers, but its port {peer.port} is silent to our password",
            "make the password the same on both sides; else a firewall drops this port alone",
        )
    more = "; a different password looks the same" if peer.password else ""
    return Diagnosis(
        Cause.FILTERED,
        f"no answer from {peer.address} port {peer.port}{more}",
        f"let TCP port {peer.port} pass between {peer.local_address} and {peer.address}, both ways",
    )


def _not_dialled(evidence: Evidence) -> Diagnosis | None:
    peer, probe = evidence.planned.peer, evidence.probe
    if not peer.passive or probe is None or probe.reached is not Reached.CONNECTED:
        return None
    return Diagnosis(
        Cause.NOT_DIALLED,
        f"{peer.address} is expected to dial and has not, though it can be reached",
        f"make {peer.local_address} a neighbour there that it dials, and let its connections to"
        f" port {peer.listen_port} of this node pass",
    )


# -- NOTIFICATIONs


def _of_notification(received: Notification, evidence: Evidence) -> Diagnosis | None:
    who = "we ended it" if received.sent else "the peer ended it"
    number = f"NOTIFICATION {received.code}/{received.subcode}"
    if received.code == 2:
        return _of_open(received, evidence, f"{who}, {number}")
    if received.code == 4:
        heard = "nothing came from the peer" if received.sent else "the peer heard nothing from us"
        return Diagnosis(
            Cause.HOLD_TIMER,
            f"{heard} for the hold time ({number})",
            "look for loss or a lower MTU on the way, or a speaker that is too busy",
        )
    if received.code != 6:
        return None
    if received.subcode in (3, 5):
        fix = f"configure {evidence.planned.peer.local_address} as a neighbour there"
        return Diagnosis(Cause.UNKNOWN_HERE, f"{who}, {number}", fix)
    if received.subcode == 2:
        return Diagnosis(Cause.ENDED, f"{who}, {number}", "enable the session there")
    if received.subcode == 1:
        fix = "let the peer offer fewer prefixes, or raise CALICO_BGP_MAX_PREFIXES"
        return Diagnosis(Cause.LIMIT, f"{who}, {number}", fix)
    return None


def _of_open(received: Notification, evidence: Evidence, said: str) -> Diagnosis | None:
    planned, opened = evidence.planned, evidence.opened
    peer = planned.peer
    if received.subcode == 2 and received.sent:
        theirs = f"says that it is AS {opened.asn}" if opened else "is in another AS"
        return Diagnosis(
            Cause.WRONG_AS,
            f"the peer {theirs}, and AS {peer.remote_as} is configured here",
            f"correct {_where(planned)}, or the AS number there",
        )
    if received.subcode == 2:
        return Diagnosis(
            Cause.WRONG_AS,
            f"the peer does not expect AS {peer.local_as} from us",
            f"set AS {peer.local_as} for this neighbour there, or correct spec.bgp.asNumber of"
            " this Node",
        )
    if received.subcode == 3:
        fix = f"give each speaker its own router id (ours is {peer.router_id})"
        return Diagnosis(Cause.SAME_ID, said, fix)
    if received.subcode == 6:
        return Diagnosis(
            Cause.HOLD_TIMER,
            f"the hold time of {peer.hold_time} s is not accepted ({said})",
            "set another CALICO_BGP_HOLD_TIME here, or another hold time there",
        )
    if received.subcode in (4, 7):
        lacking = [each for each in peer.families if opened and each not in opened.families]
        if lacking:
            return _family(lacking, f"{said}:")
        return Diagnosis(
            Cause.CAPABILITY,
            said,
            "make the address families and options of this neighbour the same on both sides",
        )
    return None
