"""What the agent says of itself in its status file (schema: `bgp.sessions.status`).

Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

from typing import Protocol

from bgp.agent.felix_reports import FelixReports
from bgp.agent.publish import Publisher
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.decide.routing import Routing
from bgp.peering.peering import Plan
from bgp.peering.planned import PlannedPeer
from bgp.sessions.graceful_restart import InitialConvergence
from bgp.sessions.metrics import Metrics
from bgp.sessions.probing import SessionProber
from bgp.sessions.sessions import Sessions
from bgp.sessions.status import PeerEntry, StatusDocument
from bgp.speaker.interface import IPAddress, Speaker

REFUSED_SHOWN = 20
CONDITIONS_SHOWN = 100


class Parts(Protocol):
    """The parts of the agent that the status describes."""

    plan: Plan
    routing: Routing
    sessions: Sessions
    handover: MakeBeforeBreak
    gate: InitialConvergence
    metrics: Metrics
    doctor: SessionProber
    speaker: Speaker
    publisher: Publisher
    felix: FelixReports

    @property
    def connected(self) -> bool: ...

    @property
    def published(self) -> int: ...

    def conditions(self) -> list[tuple[str, str]]: ...


def describe(agent: Parts) -> StatusDocument:
    """The content of the status file."""
    peers = [_peer(agent, planned) for planned in agent.plan.peers]
    rib, first = agent.routing.rib, agent.plan.peers[0].peer if agent.plan.peers else None
    agent.metrics.tell(peers, agent.published, rib.rejected)
    return {
        "router_id": str(first.router_id) if first else "",
        "local_as": agent.plan.local_as,
        "speaker": _speaker(agent),
        "start_complete": agent.gate.passed,
        "datastore": agent.connected,
        "felix": agent.publisher.connected,
        "draining": agent.routing.terms.draining,
        "peers": peers,
        "refused": [{"peer": each.source, "reason": each.reason} for each in agent.plan.refused],
        "felix_refused": agent.felix.refused,
        "conditions": [
            {"object": subject, "reason": reason}
            for subject, reason in agent.conditions()[:CONDITIONS_SHOWN]
        ],
    }


def _speaker(agent: Parts) -> str:
    sessions = agent.sessions
    if sessions.speaker_idle or not agent.plan.peers:
        return "stopped"
    return "running" if sessions.speaker_up else "restarting"


def sent(agent: Parts, address: IPAddress) -> int:
    """How many routes a peer is offered, as far as the speaker counts them."""
    count = getattr(agent.speaker, "sent", None)
    return count(address) if count else 0


def _peer(agent: Parts, planned: PlannedPeer) -> PeerEntry:
    address, rib = planned.peer.address, agent.routing.rib
    status, message = agent.sessions.status[address], agent.sessions.helper.peer_open(address)
    received, stale = rib.count(address)
    refused, _ = rib.refused(address)
    graceful = message is not None and message.restart_time is not None
    keeping = agent.sessions.helper.stale_until(address) is not None
    diagnosis = agent.doctor.diagnoses.get(address)
    shown = rib.faults(address, REFUSED_SHOWN)
    return {
        "address": str(address),
        "type": planned.kind,
        "node": planned.node,
        "state": "up" if status.up else "start",
        "since": status.since,
        "session": status.session,
        "info": status.text,
        "error": status.error,
        "cause": diagnosis.cause.value if diagnosis else "",
        "seen": diagnosis.seen if diagnosis else "",
        "fix": diagnosis.fix if diagnosis else "",
        "asn": planned.peer.remote_as,
        "received": received,
        "stale": stale,
        "refused": refused,
        "refused_paths": {str(prefix): shown[prefix] for prefix in sorted(shown, key=str)},
        "sent": sent(agent, address),
        "graceful_restart": "keeping routes" if keeping else "yes" if graceful else "no",
        "reflector_client": planned.client,
        "leaving": address in agent.handover.kept,
    }
