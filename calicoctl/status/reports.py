"""CalicoNodeStatus objects as sessions of nodes: the newest of each class counts. Pure.

Source: docs/reference/data-model.md#caliconodestatus. Tested in
`tests/calicoctl/test_status_judge.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bgp.peering.planned import GLOBAL, MESH, NODE
from calicoctl.status.values import DOWN, UNKNOWN, UP, Session
from libcalico.model.base.meta import seconds_at
from libcalico.model.resources.nodestatus import CalicoNodePeer, CalicoNodeStatus

KINDS = {"NodeMesh": MESH, "GlobalPeer": GLOBAL, "NodePeer": NODE}
SLACK = 60.0
"""Seconds by which a report may be late, beside three of its periods."""
FROZEN = 600.0
"""Seconds for which a report without a period counts as the present."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The reports of one node as one. `current`: the sessions are those of now."""

    seen: str
    current: bool
    sessions: tuple[Session, ...] = ()
    version: str = ""
    not_ready: bool = False

    def forgotten(self) -> Merged:
        """The same of a node that is known to be down: its sessions are not known any more."""
        unknown = tuple(replace(one, state=UNKNOWN, info="") for one in self.sessions)
        return replace(self, current=False, sessions=unknown)


def by_node(
    reports: Iterable[CalicoNodeStatus], now: float, named: Mapping[str, str]
) -> dict[str, Merged]:
    """The merged report of each node that has one. `named`: the node of each address."""
    listed = tuple(reports)
    sessions, agents = newest(listed, "BGP"), newest(listed, "Agent")
    return {
        name: _merged(sessions.get(name), agents.get(name), now, named)
        for name in {*sessions, *agents}
    }


def newest(reports: Iterable[CalicoNodeStatus], kind: str) -> dict[str, CalicoNodeStatus]:
    """The newest report of each node that has reported a class (`BGP`, `Agent`, `Routes`)."""
    found: dict[str, CalicoNodeStatus] = {}
    for report in reports:
        if kind not in report.spec.classes or not report.status.lastUpdated:
            continue
        known = found.get(report.spec.node)
        if known is None or _time(report) > _time(known):
            found[report.spec.node] = report
    return found


def _time(report: CalicoNodeStatus) -> float:
    return moment(report.status.lastUpdated)


def moment(text: str | None) -> float:
    """A time of a report as seconds since the epoch; 0 for none."""
    return seconds_at(text or "") or 0.0


def is_current(report: CalicoNodeStatus, now: float) -> bool:
    """Whether a report is of now: within three periods, or ten minutes for one without."""
    period = report.spec.updatePeriodSeconds or 0
    limit = 3 * period + SLACK if period > 0 else FROZEN
    return now - _time(report) <= limit


def _merged(
    bgp: CalicoNodeStatus | None,
    agent: CalicoNodeStatus | None,
    now: float,
    named: Mapping[str, str],
) -> Merged:
    latest = bgp or agent
    assert latest is not None
    daemons = [] if agent is None else [agent.status.agent.birdV4, agent.status.agent.birdV6]
    content = agent is not None and is_current(agent, now)
    merged = Merged(
        seen=latest.status.lastUpdated or "",
        current=bgp is not None and is_current(bgp, now),
        sessions=() if bgp is None else tuple(sessions_of(bgp, named)),
        version=next((one.version for one in daemons if one.version), ""),
        not_ready=content and any(one.state == "NotReady" for one in daemons),
    )
    return merged if merged.current else merged.forgotten()


def sessions_of(report: CalicoNodeStatus, named: Mapping[str, str]) -> list[Session]:
    """The sessions of a report, IPv4 first."""
    content = report.status.bgp
    return [_session(report.spec.node, one, named) for one in (*content.peersV4, *content.peersV6)]


def _session(node: str, peer: CalicoNodePeer, named: Mapping[str, str]) -> Session:
    return Session(
        node=node,
        address=peer.peerIP,
        state=UP if peer.state == "Established" else DOWN,
        kind=KINDS.get(peer.type, peer.type),
        peer=named.get(peer.peerIP, ""),
        info=peer.state,
        since=peer.since,
    )
