"""Go's duration text (`1m30s`, `250ms`), as Calico's API spells times.

Tested in tests/libcalico/test_process.py.
"""

from __future__ import annotations

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
LONGEST = 9_223_372_036.0
"""Seconds: Go counts nanoseconds in 63 bits, which is 292 years."""
# Possessive: a long text of digits without a unit fails at once, not after a million tries.
_PART = re.compile(r"([0-9]++\.?[0-9]*+|\.[0-9]++)(ns|us|µs|μs|ms|s|m|h)")


def parse(text: str) -> float:
    """Seconds of a Go duration. Raises ValueError naming the rule."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, position = 0.0, 0
    while match := _PART.match(rest, position):
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not rest or position != len(rest):
        raise ValueError("a duration is written as in 90s, 1m30s or 250ms")
    if total > LONGEST:
        raise ValueError("a duration is at most 292 years")
    return sign * total


def text(seconds: float) -> str:
    """A duration as Go writes it: `1m30s`, `0s`, `250ms`."""
    nanoseconds = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 1_000_000_000:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if nanoseconds >= size:
                return f"{sign}{_decimal(nanoseconds, size)}{unit}"
    whole, fraction = divmod(nanoseconds, 1_000_000_000)
    hours, minutes = whole // 3600, whole % 3600 // 60
    last = _decimal(whole % 60 * 1_000_000_000 + fraction, 1_000_000_000) + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{last}"
    return f"{sign}{minutes}m{last}" if minutes else f"{sign}{last}"


def _decimal(value: int, size: int) -> str:
    digits = len(str(size)) - 1
    whole, fraction = divmod(value, size)
    tail = f"{fraction:0{digits}d}".rstrip("0") if digits else ""
    return f"{whole}.{tail}" if tail else str(whole)
