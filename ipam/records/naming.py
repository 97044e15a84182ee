"""The texts that an allocation carries: attributes of a pod and Go's way to write a time.

Tested in tests/ipam/test_blocks.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def go_timestamp(nanoseconds: int) -> str:
    """Unix time in nanoseconds as Go's `time.Time.String()` writes it in UTC.

    Go drops trailing zeros of the fraction, and the fraction where it is zero.
    """
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    stem = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    digits = f".{fraction:09d}".rstrip("0").rstrip(".")
    return f"{stem}{digits} +0000 UTC"


def rfc3339(nanoseconds: int) -> str:
    """Unix time in nanoseconds as RFC 3339 in whole seconds, UTC."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_nano(nanoseconds: int) -> str:
    """Unix time in nanoseconds as Go writes a time into JSON (RFC 3339 with its fraction), UTC."""
    digits = f".{nanoseconds % 1_000_000_000:09d}".rstrip("0").rstrip(".")
    return f"{rfc3339(nanoseconds)[:-1]}{digits}Z"


def microseconds_since(stamp: str, now: int) -> int | None:
    """How long ago a stored time (RFC 3339) was, by `now` in Unix nanoseconds; None: unreadable.

    Whole microseconds on both sides, which is what a datetime holds: floating-point seconds of
    today are exact to a quarter of a microsecond only.
    """
    try:
        when = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return None
    since_epoch = (when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH
    return now // 1000 - since_epoch // timedelta(microseconds=1)


def pod_attributes(node: str, namespace: str, pod: str, nanoseconds: int) -> dict[str, str]:
    """The attributes of a pod's address, in the order in which Go writes them
    (docs/reference/data-model.md#attributes-and-handles).

    Without a pod (no Kubernetes names given) only the node and the time are written.
    """
    attributes = {"node": node, "timestamp": go_timestamp(nanoseconds)}
    if pod:
        attributes |= {"namespace": namespace, "pod": pod}
    return dict(sorted(attributes.items()))
