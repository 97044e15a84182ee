"""Which of several etcd proxies a node reads through: pure, all but the drawing of lots.

Each node ranks the proxies by a hash of its name and the endpoint (rendezvous hashing), and uses
the first that is not away. So the nodes spread over all proxies; where one dies its nodes alone
move, and spread over the others. One that failed stays away for minutes, drawn by lot for each
node, and is then asked before it is used again: its nodes return one after the other. Where all
are away reads go to etcd itself.

Invariant ETCD-5: no failure of another proxy moves a node, and no return of one that it prefers
less.
Tested in tests/libcalico/test_etcd_proxies.py.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

AWAY = (60.0, 300.0)
"""Seconds, least and most, for which a proxy that failed is left alone."""
SPREAD = 2.0
"""Seconds at most until a node goes on with another proxy: not all of its nodes come at once."""


def ranked(node: str, endpoints: Sequence[str]) -> list[str]:
    """The endpoints in the order in which a node prefers them."""

    def weight(endpoint: str) -> bytes:
        return hashlib.sha256(f"{node}\0{endpoint}".encode()).digest()

    return sorted(dict.fromkeys(endpoints), key=weight)


class Route:
    """The way of one node's reads. Times are seconds of one clock; `draw` is `random.uniform`."""

    def __init__(
        self,
        node: str,
        endpoints: Sequence[str],
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._order = ranked(node, endpoints)
        self._draw = draw
        self._away: dict[str, float] = {}
        self._used: set[str] = set()

    @property
    def endpoint(self) -> str | None:
        """The proxy to use now, None for etcd itself."""
        return next((one for one in self._order if one not in self._away), None)

    def due(self, now: float) -> str | None:
        """A proxy that may be back and is preferred to the present way: ask it.

        Of several the one that has waited longest.
        """
        better = self._order
        if (present := self.endpoint) is not None:
            better = self._order[: self._order.index(present)]
        return min(
            (one for one in better if self._away[one] <= now),
            key=self._away.__getitem__,
            default=None,
        )

    def answered(self, endpoint: str) -> None:
        """Note that a proxy answers: it is away no more."""
        self._away.pop(endpoint, None)
        self._used.add(endpoint)

    def failed(self, endpoint: str, now: float) -> float:
        """Note that a proxy does not answer. Returns for how many seconds to wait.

        A proxy that never answered had no nodes, so there is no wait.
        """
        self._away[endpoint] = now + self._draw(*AWAY)
        if endpoint not in self._used:
            return 0.0
        self._used.discard(endpoint)
        return self._draw(0.0, SPREAD)

    def forgive(self) -> None:
        """Begin anew: etcd itself did not answer, so the proxies were not at fault."""
        self._away.clear()
