"""How old a resource is, in kubectl's words: `42s`, `5m12s`, `3h`, `2d4h`, `93d`, `2y17d`.

The two largest units, and one alone where the second no longer tells much. Pure.
Source: https://pkg.go.dev/k8s.io/apimachinery/pkg/util/duration, which kubectl uses.
Tested in `tests/calicoctl/test_get_options.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
UNKNOWN = "<unknown>"

_STEPS = (
    (2 * MINUTE, 1, "s", 0, ""),
    (10 * MINUTE, MINUTE, "m", 1, "s"),
    (3 * HOUR, MINUTE, "m", 0, ""),
    (8 * HOUR, HOUR, "h", MINUTE, "m"),
    (2 * DAY, HOUR, "h", 0, ""),
    (8 * DAY, DAY, "d", HOUR, "h"),
    (2 * YEAR, DAY, "d", 0, ""),
    (8 * YEAR, YEAR, "y", DAY, "d"),
)
"""Below so many seconds: the large unit, its letter, the small one, its letter (or none)."""


def ages(created: Iterable[str]) -> list[str]:
    """The ages of several resources, at one moment: now."""
    now = datetime.now(UTC)
    return [age_text(one, now) for one in created]


def age_text(created: str, now: datetime) -> str:
    """The time from `created` (RFC 3339, as in `metadata.creationTimestamp`) to `now`."""
    try:
        began = datetime.fromisoformat(created)
    except ValueError:
        return UNKNOWN
    if began.tzinfo is None:
        return UNKNOWN
    seconds = int((now - began).total_seconds())
    # A clock may be a second behind another; more than that is no age.
    return duration_text(max(seconds, 0)) if seconds >= -1 else "<invalid>"


def duration_text(seconds: int) -> str:
    """Whole seconds as kubectl writes them."""
    for below, large, letter, small, second in _STEPS:
        if seconds < below:
            count, rest = divmod(seconds, large)
            more = rest // small if small else 0
            return f"{count}{letter}" + (f"{more}{second}" if more else "")
    return f"{seconds // YEAR}y"
