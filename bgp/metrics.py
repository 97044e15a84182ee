"""Prometheus metrics of this process, served on its health port under `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge


class Metrics:
    """One set a registry; names begin with `calico_bgp_`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        where = _fresh(registry or REGISTRY)
        self._peers = Gauge("calico_bgp_peers", "Peers by state", ["state"], registry=where)
        self._received = Gauge(
            "calico_bgp_paths_received", "Paths by peer", ["peer"], registry=where
        )
        self._prefixes = Gauge("calico_bgp_prefixes", "Prefixes with a path", registry=where)
        self._rejected = Gauge(
            "calico_bgp_paths_rejected", "Paths refused so far (loops)", registry=where
        )
        self.refused = Gauge("calico_bgp_peerings_refused", "Peerings not held", registry=where)
        self.ups = Counter("calico_bgp_session_ups", "Sessions established", registry=where)
        self.downs = Counter(
            "calico_bgp_session_downs", "Sessions lost, by reason", ["reason"], registry=where
        )
        self.speaker_restarts = Counter(
            "calico_bgp_speaker_restarts", "Ends of the speaker", registry=where
        )
        self.felix_refused = Counter(
            "calico_bgp_felix_refused", "Paths that felix did not take", registry=where
        )

    def tell(self, peers: Iterable[dict[str, Any]], prefixes: int, rejected: int) -> None:
        """The gauges, from the status of the peers."""
        counts = {"up": 0, "start": 0}
        self._received.clear()
        for peer in peers:
            counts[peer["state"]] += 1
            self._received.labels(peer["address"]).set(peer["received"])
        for state, count in counts.items():
            self._peers.labels(state).set(count)
        self._prefixes.set(prefixes)
        self._rejected.set(rejected)


def _fresh(registry: CollectorRegistry) -> CollectorRegistry:
    """The registry without an earlier set of ours: one process has one agent."""
    for name, collector in list(registry._names_to_collectors.items()):
        if name.startswith("calico_bgp_"):
            try:
                registry.unregister(collector)
            except KeyError:
                pass  # gone with an earlier name
    return registry
