"""Metrics of this process, served on its health port under `/metrics`. Names: `calico_bgp_`.

What happens is only counted, and figures are made when a page is asked for: a node that starts
beside a hundred others tells its state many times before the first page.
Tested in tests/bgp/test_report.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from bgp.sessions.status import PeerEntry
from libcalico.process.counters import REGISTRY, Registry
from libcalico.process.prometheus_text import Figure, labelled

Field = Literal["received", "sent", "stale", "refused"]

_OF_A_PEER: tuple[tuple[str, str, Field], ...] = (
    ("calico_bgp_paths_received", "Paths by peer", "received"),
    ("calico_bgp_paths_sent", "Routes offered, by peer", "sent"),
    ("calico_bgp_paths_stale", "Paths kept by graceful restart", "stale"),
    ("calico_bgp_paths_refused", "Paths not taken, by peer", "refused"),
)


class Metrics:
    """What is counted since the start, and the state as it was told last.

    `refused`: peerings not held. `felix_refused`: paths that felix did not take. `downs` is by
    reason, `peer_ups` by peer.
    """

    name = "calico_bgp"

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self.ups = self.speaker_restarts = self.felix_refused = self.refused = 0
        self.downs: Counter[str] = Counter()
        self.peer_ups: Counter[str] = Counter()
        self._peers: Sequence[PeerEntry] = ()
        self._prefixes = self._rejected = 0
        registry.add(self)

    def forget(self, peer: str) -> None:
        """A peering is no more: its counter goes with it."""
        self.peer_ups.pop(peer, None)

    def tell(self, peers: Sequence[PeerEntry], prefixes: int, rejected: int) -> None:
        """The state now. `rejected`: paths refused so far because they are loops."""
        self._peers, self._prefixes, self._rejected = peers, prefixes, rejected

    def figures(self) -> Iterator[Figure]:
        """All metrics as of now (`counters.Source`)."""
        yield from self._of_peers()
        yield from self._of_the_node()

    def _of_peers(self) -> Iterator[Figure]:
        peers = self._peers
        for name, text, field in _OF_A_PEER:
            yield from labelled(
                name, text, (({"peer": one["address"]}, one[field]) for one in peers)
            )
        up = (
            ({"asn": f"{one['asn']}", "peer": one["address"], "type": one["type"]}, _is_up(one))
            for one in peers
        )
        yield from labelled("calico_bgp_peer_up", "Whether the session is Established", up)
        since = (
            ({"peer": one["address"]}, datetime.fromisoformat(one["since"]).timestamp())
            for one in peers
        )
        yield from labelled(
            "calico_bgp_peer_since_seconds",
            "When the session came up or went down, in seconds since the epoch",
            since,
        )
        yield from labelled(
            "calico_bgp_peer_cause",
            "Why a session does not come up: 1 for the cause that was found",
            (({"cause": p["cause"], "peer": p["address"]}, 1.0) for p in peers if p["cause"]),
        )

    def _of_the_node(self) -> Iterator[Figure]:
        states = Counter(one["state"] for one in self._peers)
        by_state = (({"state": state}, states[state]) for state in ("up", "start"))
        yield from labelled("calico_bgp_peers", "Peers by state", by_state)
        yield Figure("calico_bgp_prefixes", "Prefixes with a path", self._prefixes)
        yield Figure("calico_bgp_paths_rejected", "Paths refused so far (loops)", self._rejected)
        yield Figure("calico_bgp_peerings_refused", "Peerings not held", self.refused)
        yield Figure("calico_bgp_session_ups_total", "Sessions established", self.ups, "counter")
        yield Figure(
            "calico_bgp_speaker_restarts_total",
            "Ends of the speaker",
            self.speaker_restarts,
            "counter",
        )
        refused = self.felix_refused
        yield Figure(
            "calico_bgp_felix_refused_total", "Paths that felix did not take", refused, "counter"
        )
        downs = (({"reason": reason}, count) for reason, count in list(self.downs.items()))
        yield from labelled(
            "calico_bgp_session_downs_total", "Sessions lost, by reason", downs, "counter"
        )
        ups = (({"peer": peer}, count) for peer, count in list(self.peer_ups.items()))
        yield from labelled(
            "calico_bgp_peer_ups_total", "Sessions established, by peer", ups, "counter"
        )


def _is_up(peer: PeerEntry) -> float:
    return float(peer["state"] == "up")
