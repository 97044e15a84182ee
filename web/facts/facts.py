"""All that the page knows at one moment, as one value: every view is a function of it.

Tested in tests/web/test_reading.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bgp.cluster.view import ClusterView
from calicoctl.routing.topology import Topology
from felix.explain.world import World
from ipam.admin.findings import Report
from ipam.records.snapshot import Snapshot
from libcalico.model.resources.cluster import ClusterInformationSpec
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from web.facts.words import Word


@dataclass(frozen=True, slots=True)
class EventLine:
    """A Warning of Kubernetes about a node or pod, written by one of our processes."""

    when: str
    component: str
    subject: str
    reason: str
    message: str
    count: int = 1


@dataclass(frozen=True)
class Facts:
    """One reading. `seconds`: how long it took; `statuses` and `words` are by node.

    `aggregator`: what is to be said of the aggregator, empty where it answers; `events` is None
    where there is no Kubernetes API to ask.
    """

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0
    world: World = field(default_factory=lambda: World({}))
    view: ClusterView = field(default_factory=lambda: ClusterView(""))
    topology: Topology = field(default_factory=lambda: Topology((), ()))
    snapshot: Snapshot = field(default_factory=Snapshot)
    report: Report = field(default_factory=lambda: Report((), (), ()))
    statuses: Mapping[str, CalicoNodeStatus] = field(default_factory=dict)
    words: Mapping[str, Word] = field(default_factory=dict)
    cluster: ClusterInformationSpec = field(default_factory=ClusterInformationSpec)
    unreadable: tuple[str, ...] = ()
    aggregator: str = ""
    events: tuple[EventLine, ...] | None = None

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return sorted(key.name for key, _ in self.world.of("Node"))
