"""Summaries with quantiles of what was seen last, in bounded memory.

A value falls into a bucket, whose bounds grow by a constant factor: a quantile is right within 5 %
of itself (DDSketch: Masson, Rim and Lee, PVLDB 12, 2019). Buckets are counted in slices of two
minutes, and a quantile is of the last five of them, as in Prometheus's library for Go. A summary
has at most `LARGEST - SMALLEST + 2` buckets in a slice, as a rule some ten.
Tested in tests/libcalico/test_summaries.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from libcalico.process.prometheus_text import Figure

QUANTILES = (0.5, 0.9, 0.99)
SLICES, SLICE_SECONDS = 5, 120.0
_GROWTH = 1.1
_PER_FACTOR = 1 / math.log(_GROWTH)
_log, _ceil = math.log, math.ceil
_MIDDLE = 2 / (1 + _GROWTH)
SMALLEST, LARGEST = -240, 240
"""The outermost buckets, 1e-10 and 1e10: what is beyond counts there."""
_LEAST, _MOST = _GROWTH**SMALLEST, _GROWTH**LARGEST
_NOTHING = SMALLEST - 1
"""The bucket of 0 and of what is less."""


class Summary:
    """How many values there were, their sum, and the quantiles of the last ten minutes.

    `clock` gives seconds. One thread observes; a page may be made in any.
    """

    __slots__ = ("_clock", "_newest", "_slice", "_slices", "_until", "count", "total")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.count, self.total = 0, 0.0
        self._newest: dict[int, int] = {}
        self._slices = [self._newest]
        self._slice = int(clock() // SLICE_SECONDS)
        self._until = (self._slice + 1) * SLICE_SECONDS

    def observe(self, value: float) -> None:
        """Count one more value; less than 0 counts as 0 in the quantiles."""
        self.count += 1
        self.total += value
        if self._clock() >= self._until:
            self._turn()
        usual = _LEAST < value < _MOST
        bucket = _ceil(_log(value) * _PER_FACTOR) if usual else _outside(value)
        newest = self._newest
        newest[bucket] = newest.get(bucket, 0) + 1

    def quantiles(self) -> dict[float, float]:
        """The value of each of `QUANTILES`, NaN where nothing was seen lately."""
        self._turn()
        counts: dict[int, int] = {}
        for each in self._slices:
            for bucket, number in list(each.items()):
                counts[bucket] = counts.get(bucket, 0) + number
        ordered, seen = sorted(counts.items()), sum(counts.values())
        return {quantile: _at(ordered, math.ceil(quantile * seen)) for quantile in QUANTILES}

    def figure(self, name: str, meaning: str, labels: Mapping[str, str] | None = None) -> Figure:
        """For a page of metrics."""
        return Figure(
            name, meaning, self.total, "summary", self.count, labels, quantiles=self.quantiles()
        )

    def _turn(self) -> None:
        """Begin a slice where its time has come, and forget what is too old."""
        now = int(self._clock() // SLICE_SECONDS)
        passed = now - self._slice
        if passed > 0:
            fresh: list[dict[int, int]] = [{} for _ in range(min(passed, SLICES))]
            self._slices = [*self._slices, *fresh][-SLICES:]
            self._newest, self._slice = self._slices[-1], now
            self._until = (now + 1) * SLICE_SECONDS


def _outside(value: float) -> int:
    """The bucket of a value that is less or more than all others."""
    if value <= 0:
        return _NOTHING
    return SMALLEST if value < 1 else LARGEST


def _at(ordered: list[tuple[int, int]], rank: int) -> float:
    """The value that has this place among all; the first is 1."""
    for bucket, number in ordered:
        rank -= number
        if rank <= 0:
            return 0.0 if bucket == _NOTHING else _MIDDLE * _GROWTH**bucket
    return math.nan
