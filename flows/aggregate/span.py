"""Spans of time and pages of requests: what they mean, and which are refused.

Source: projectcalico/calico goldmane/proto/api.proto (fields `start_time_gte`, `start_time_lt`,
`page`, `page_size`, `aggregation_interval`).
"""

from __future__ import annotations

from flows.record import INTERVAL
from libcalico.errors import InvalidValue


def resolved(start: int, end: int, now: int, beginning: int) -> tuple[int, int]:
    """Start and end of a request in seconds since 1970: negative counts from `now`, 0 is the
    beginning of history and now. Raises InvalidValue with a start that is not before the end."""
    first = now + start if start < 0 else start or beginning
    last = now + end if end < 0 else end or now
    if first >= last:
        rule = f"start_time_gte must be before start_time_lt ({last})"
        raise InvalidValue("start_time_gte", first, rule)
    return first, last


def check_interval(interval: int) -> None:
    """Raises InvalidValue unless the interval of a list is 0 or a multiple of 15 s."""
    if interval < 0 or interval % INTERVAL:
        rule = f"a multiple of {INTERVAL} seconds, or 0"
        raise InvalidValue("aggregation_interval", interval, rule)


def check_page(page: int, size: int) -> None:
    """Raises InvalidValue with a page that is negative or has no size."""
    if size < 0:
        raise InvalidValue("page_size", size, "0 (everything) or more")
    if page < 0:
        raise InvalidValue("page", page, "pages count from 0")
    if page and not size:
        raise InvalidValue("page", page, "a page needs page_size")


def paged(total: int, page: int, size: int) -> tuple[slice, int]:
    """The items of a page, and how many pages there are."""
    if not size:
        return slice(None), 1 if total else 0
    return slice(page * size, (page + 1) * size), -(-total // size)
