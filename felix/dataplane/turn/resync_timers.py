"""When tables are read back though nothing was told: each kind by its own interval.

Pure but for the clock it is given. Tested in tests/felix/dataplane/test_dataplane_parts.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from felix.config.parameters import Config

JITTER = 0.1


class ResyncTimers:
    """Deadlines of `links`, `routes`, `ipsets` and `iptables`; an interval of 0 is never."""

    def __init__(
        self, clock: Callable[[], float], random_unit: Callable[[], float] = random.random
    ) -> None:
        self._clock, self._random = clock, random_unit
        start = clock()
        self._last = dict.fromkeys(("links", "routes", "ipsets", "iptables"), start)
        self._stretch = {name: 1 + JITTER * random_unit() for name in self._last}

    def due(self, config: Config) -> frozenset[str]:
        """What is to be read back now; their intervals begin anew."""
        now = self._clock()
        kinds = frozenset(
            name
            for name, interval in _intervals(config).items()
            if self._left(name, interval, now) <= 0
        )
        for name in kinds:
            self._last[name] = now
            self._stretch[name] = 1 + JITTER * self._random()
        return kinds

    def sleep(self, config: Config, most: float, retry: float | None) -> float:
        """Seconds until something is due, at most `most` and at most until the retry."""
        now = self._clock()
        left = [self._left(name, interval, now) for name, interval in _intervals(config).items()]
        return max(0.0, min([most, *left] + ([retry] if retry is not None else [])))

    def _left(self, name: str, interval: float, now: float) -> float:
        if interval <= 0:
            return float("inf")
        return self._last[name] + interval * self._stretch[name] - now


def _intervals(config: Config) -> dict[str, float]:
    return {
        "links": config.interface_refresh_interval,
        "routes": config.route_refresh_interval,
        "ipsets": config.ipsets_refresh_interval,
        "iptables": config.iptables_refresh_interval,
    }
