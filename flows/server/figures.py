"""Metrics of `calico-goldmane`, with Goldmane's names where it has them.

Packets by policy are counted for the hit that decided: the last enforced one whose action is the
flow's. Policies beyond `MOST` are counted together as "other", so that the page stays bounded.
Tested in tests/flows/test_client.py.
"""

from __future__ import annotations

from flows.aggregate.store import Outcome, Store
from flows.record import Action, Flow, deciding
from flows.written import ACTIONS, POLICY_KINDS
from libcalico.process.counters import Counter, Gauge, Registry

MOST = 5_000
OTHER = ("other", "", "", "")
NONE = ("none", "", "", "")
_POLICY = ("action", "reporter", "kind", "tier", "namespace", "policy")


class Figures:
    """The metrics of one server, on a page of its own."""

    def __init__(self) -> None:
        self.registry = page = Registry()
        self.received = Counter(
            "goldmane_aggr_received_flows", "Flows that nodes sent.", registry=page
        )
        self.dropped = Counter(
            "goldmane_aggr_dropped_flows",
            "Flows that no bucket took, by reason.",
            ("reason",),
            registry=page,
        )
        self.repeated = Counter(
            "muslin_goldmane_repeated_flows",
            "Flows that a node sent again after a new connection.",
            registry=page,
        )
        self.keys = Gauge("goldmane_aggr_num_unique_flows", "Different keys.", registry=page)
        self.rows = Gauge(
            "muslin_goldmane_rows", "Rows: keys in buckets of 15 s, of an hour.", registry=page
        )
        self.cut = Gauge(
            "muslin_goldmane_cut_rows",
            "Rows that went before their hour was over, for want of room.",
            registry=page,
        )
        self.clients = Gauge(
            "goldmane_collector_num_clients", "Nodes that deliver now.", registry=page
        )
        self.attending = Gauge(
            "muslin_goldmane_attending_nodes", "Nodes that can be asked now.", registry=page
        )
        self.streams = Gauge("goldmane_num_streams", "Streams of flows now.", registry=page)
        self.unexported = Counter(
            "muslin_goldmane_unexported_flows",
            "Flows that an export could not write.",
            ("export",),
            registry=page,
        )
        self.packets = Counter(
            "muslin_flow_packets",
            "Packets by the policy that decided, and by what it did.",
            _POLICY,
            registry=page,
        )
        self.connections = Counter(
            "muslin_flow_connections",
            "Connections by the policy that decided, and by what it did.",
            _POLICY,
            registry=page,
        )
        self._policies: set[tuple[str, str, str, str]] = set()

    def count(self, flow: Flow, outcome: Outcome) -> None:
        """Count a flow that came from a node."""
        self.received.inc()
        if outcome is Outcome.REPEATED:
            self.repeated.inc()
        if outcome is not Outcome.COUNTED or flow.key.action not in (Action.ALLOW, Action.DENY):
            return
        reporter = flow.key.reporter.name.lower()
        labels = (ACTIONS[flow.key.action].lower(), reporter, *self._policy(flow))
        self.packets.inc(*labels, by=flow.counts.packets_in + flow.counts.packets_out)
        self.connections.inc(*labels, by=flow.counts.started)

    def _policy(self, flow: Flow) -> tuple[str, str, str, str]:
        hit = deciding(flow)
        if hit is None:
            return NONE
        policy = hit.trigger or hit
        named = (POLICY_KINDS[policy.kind], policy.tier, policy.namespace, policy.name)
        if named not in self._policies:
            if len(self._policies) >= MOST:
                return OTHER
            self._policies.add(named)
        return named

    def state(self, store: Store) -> None:
        """Take over what the store holds."""
        self.rows.set(store.ring.rows)
        self.keys.set(store.ring.keys)
        self.cut.set(store.ring.cut)
        for reason, number in store.ring.left_out.items():
            self.dropped.inc(reason, by=number - (self.dropped.value(reason) or 0))
