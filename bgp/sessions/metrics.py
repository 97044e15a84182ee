"""Prometheus metrics of this process, served on its health port under `/metrics`.

Tested in tests/bgp/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from bgp.sessions.status import PeerEntry
from libcalico.process.counters import REGISTRY, Counter, Gauge, Registry


class Metrics:
    """One set a registry; names begin with `calico_bgp_`."""

    def __init__(self, where: Registry = REGISTRY) -> None:
        self._peers = Gauge("calico_bgp_peers", "Peers by state", ["state"], registry=where)
        self._received = Gauge(
            "calico_bgp_paths_received", "Paths by peer", ["peer"], registry=where
        )
        of_peer = ["peer", "type", "asn"]
        self._up = Gauge(
            "calico_bgp_peer_up", "Whether the session is Established", of_peer, registry=where
        )
        self._since = Gauge(
            "calico_bgp_peer_since_seconds",
            "When the session came up or went down, in seconds since the epoch",
            ["peer"],
            registry=where,
        )
        self._cause = Gauge(
            "calico_bgp_peer_cause",
            "Why a session does not come up: 1 for the cause that was found",
            ["peer", "cause"],
            registry=where,
        )
        self._sent = Gauge(
            "calico_bgp_paths_sent", "Routes offered, by peer", ["peer"], registry=where
        )
        self._stale = Gauge(
            "calico_bgp_paths_stale", "Paths kept by graceful restart", ["peer"], registry=where
        )
        self._not_taken = Gauge(
            "calico_bgp_paths_refused", "Paths not taken, by peer", ["peer"], registry=where
        )
        self.peer_ups = Counter(
            "calico_bgp_peer_ups", "Sessions established, by peer", ["peer"], registry=where
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

    def forget(self, peer: str) -> None:
        """A peering is no more: its counters go with it."""
        self.peer_ups.remove(peer)

    def tell(self, peers: Iterable[PeerEntry], prefixes: int, rejected: int) -> None:
        """The gauges, from the status of the peers."""
        counts = {"up": 0, "start": 0}
        each_peer = (self._received, self._sent, self._stale, self._not_taken, self._since)
        for gauge in (*each_peer, self._up, self._cause):
            gauge.clear()
        for peer in peers:
            counts[peer["state"]] += 1
            name = peer["address"]
            self._received.set(peer["received"], name)
            self._sent.set(peer["sent"], name)
            self._stale.set(peer["stale"], name)
            self._not_taken.set(peer["refused"], name)
            self._since.set(datetime.fromisoformat(peer["since"]).timestamp(), name)
            self._up.set(peer["state"] == "up", name, peer["type"], str(peer["asn"]))
            if peer["cause"]:
                self._cause.set(1, name, peer["cause"])
        for state, count in counts.items():
            self._peers.set(count, state)
        self._prefixes.set(prefixes)
        self._rejected.set(rejected)
