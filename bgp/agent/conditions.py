"""What an operator should know of now, of all parts of the agent.

Tested in tests/bgp/test_api_away.py and test_probing.py.
"""

from __future__ import annotations

from typing import Protocol

from bgp.agent.sources import Sources
from bgp.bird.birdctl import ControlServer
from bgp.cluster.resolving import unresolved
from bgp.cluster.view import ClusterView
from bgp.decide.decision_state import DecisionState
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.decide.routing import Routing
from bgp.sessions.probing import SessionProber
from bgp.speaker.interface import Speaker
from libcalico.model.enforcement.lacking import Lacking


class Parts(Protocol):
    """The parts of the agent that have conditions."""

    control: ControlServer | None
    doctor: SessionProber
    handover: MakeBeforeBreak
    lacking: Lacking
    decisions: DecisionState
    routing: Routing
    sources: Sources
    speaker: Speaker

    @property
    def view(self) -> ClusterView: ...


def conditions(agent: Parts) -> list[tuple[str, str]]:
    """Conditions for an operator: (object, reason)."""
    why = f"is kept until its successors carry its routes, {agent.handover.limit:g} s at most"
    kept = [(f"peer {address}", why) for address in sorted(agent.handover.kept, key=str)]
    unread = [("BGPConfiguration", problem) for problem in agent.decisions.tags.problems]
    unread += [(key, f"left out, not usable: {why}") for key, why in agent.view.broken.items()]
    unread += agent.sources.problems()
    control = agent.control.conditions() if agent.control is not None else []
    reports = [*agent.speaker.conditions(), *agent.doctor.conditions(), *kept, *unread]
    reports += agent.decisions.conditions()
    if agent.sources.resolver is not None:
        reports += unresolved(agent.sources.resolver.unresolved, agent.routing.rib.hops)
    return [*reports, *agent.routing.conditions(), *control, *agent.lacking.conditions()]
