"""The content of felix's status file, with the conditions of the whole agent.

Tested in tests/felix/kernel/test_forwarding.py, test_restart.py.
"""

from __future__ import annotations

from typing import Protocol

from felix.calc.graph import Calculator
from felix.config.effective import EffectiveConfig
from felix.dataplane.loop import Dataplane
from felix.flows.flow_logs import FlowLogs
from felix.reports.audit import Audit
from felix.reports.conditions import of_dataplane
from felix.reports.endpoint_status_timing import EndpointStatusTiming
from felix.reports.reporting import Reports
from felix.servers import Servers
from felix.store.service_reader import ServiceReader
from felix.store.stored_objects import StoredObjects
from libcalico.datastore.syncer import Syncer

CONDITIONS_SHOWN = 100


class Conditioned(Protocol):
    """A part that says what is wrong."""

    def conditions(self) -> list[tuple[str, str]]: ...


class SpeakerLink(Protocol):
    """The part of the node's socket that the status reads."""

    @property
    def speaker_connected(self) -> bool: ...

    @property
    def questions_afar(self) -> Conditioned: ...


class Parts(Protocol):
    """The parts of the agent that the status reads."""

    node: str
    networking: str
    calc: Calculator
    configuration: EffectiveConfig
    objects: StoredObjects
    dataplane: Dataplane
    audit: Audit
    servers: Servers
    endpoint_status: EndpointStatusTiming
    services: ServiceReader
    reports: Reports
    syncer: Syncer | None

    @property
    def flow_logs(self) -> FlowLogs: ...

    @property
    def server(self) -> SpeakerLink: ...


def describe(agent: Parts) -> dict[str, object]:
    """The content of the status file."""
    plane, state, syncer = agent.dataplane, agent.dataplane.state, agent.syncer
    connected = syncer is not None and syncer.connected
    return {
        "node": agent.node,
        "datastore_connected": connected,
        "datastore_error": "" if connected or syncer is None else syncer.error,
        "in_sync": agent.calc.in_sync,
        "ready": state.applied,
        "bgp_connected": agent.server.speaker_connected,
        "networking": agent.networking,
        "backend": plane.rules.backend_name,
        "endpoints": len(state.active),
        "endpoints_in_force": len(state.in_force),
        "routes": len(plane.routing.routes),
        "conditions": [
            {"object": name, "reason": reason}
            for name, reason in conditions(agent)[:CONDITIONS_SHOWN]
        ],
    }


def conditions(agent: Parts) -> list[tuple[str, str]]:
    """Every condition of this felix: (object, reason)."""
    return [
        # First: a list that is cut off must not hide them.
        *agent.objects.readable.conditions(),
        *of_dataplane(agent.dataplane),
        *agent.audit.conditions(),
        *agent.configuration.problems(),
        *[("configuration", text) for text in agent.servers.waiting()],
        *agent.endpoint_status.problems,
        *agent.objects.unconfirmed(),
        *agent.configuration.unreadable(),
        *agent.objects.lacking(),
        *agent.services.conditions(),
        *agent.flow_logs.conditions(),
        *agent.server.questions_afar.conditions(),
        *agent.reports.conditions(),
        *_detour(agent.syncer),
    ]


def _detour(syncer: Syncer | None) -> list[tuple[str, str]]:
    """Reads that do not go through the proxies that are named."""
    why = syncer.detour if syncer is not None else ""
    return [("ETCD_READ_ENDPOINTS", f"etcd itself is read: {why}")] if why else []
