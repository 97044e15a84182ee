"""The types of parameters: how a text (environment, file) or a stored value becomes one.

Calico's spellings: a duration is seconds in the environment and in the file, and a Go
duration (`1m30s`, `100ms`) in a FelixConfiguration. Every parser raises `ValueError` with a
sentence that says what is allowed.
Tested in tests/felix/config/test_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from libcalico import goregex

Parser = Callable[[object], object]
_TRUE, _FALSE = ("true", "yes", "on", "1", "y", "t"), ("false", "no", "off", "0", "n", "f")
_GO_DURATION = re.compile(r"(\d++(?:\.\d++)?)(h|ms|m|s|us|µs|ns)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def boolean(value: object) -> bool:
    """`true`, `false` and their usual spellings."""
    text = str(value).lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("must be true or false")


def integer(low: int, high: int) -> Callable[[object], int]:
    """A whole number from `low` to `high`, decimal or with 0x."""

    def parse(value: object) -> int:
        try:
            number = int(str(value), 0)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def duration(value: object) -> float:
    """Seconds: a number, or a Go duration."""
    text = str(value).strip()
    try:
        seconds = float(text)
    except ValueError:
        parts = _GO_DURATION.findall(text)
        if not parts or "".join(a + b for a, b in parts) != text:
            raise ValueError("must be seconds, or a duration such as 90s or 1m30s") from None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 <= seconds < 1e9:
        raise ValueError("must not be negative")
    return seconds


def at_least(least: float) -> Callable[[object], float]:
    """A duration that must not be shorter than some seconds."""

    def parse(value: object) -> float:
        seconds = duration(value)
        if seconds < least:
            raise ValueError(f"must be {least:g} seconds or more")
        return seconds

    return parse


def timeouts(value: object) -> tuple[tuple[str, float], ...]:
    """`Name=90s,Name=2m`, or the list of names and timeouts of a FelixConfiguration."""
    if isinstance(value, (list, tuple)):
        pairs = [(str(one.get("name", "")), str(one.get("timeout", ""))) for one in value]
    else:
        parts = [part.strip() for part in str(value).split(",") if part.strip()]
        pairs = [(name, limit) for name, _, limit in (part.partition("=") for part in parts)]
    if not all(name and limit for name, limit in pairs):
        raise ValueError("must be a comma list such as CalculationGraph=90s")
    return tuple((name.strip(), duration(limit)) for name, limit in pairs)


def features(value: object) -> tuple[tuple[str, bool], ...]:
    """`Feature=true,Other=false`; a feature without a value is as if it were not named."""
    result: dict[str, bool] = {}
    for part in str(value).split(","):
        name, equals, word = (piece.strip() for piece in part.partition("="))
        if word.lower() not in ("", "true", "false") or bool(name) is not bool(equals):
            raise ValueError("must be a comma list such as ChecksumOffloadBroken=true")
        result.pop(name, None)
        if word:
            result[name] = word.lower() == "true"
    return tuple(result.items())


def choice(*allowed: str) -> Callable[[object], str]:
    """One of these words, in any case; the value is the word as spelled here."""
    by_lower = {word.lower(): word for word in allowed}

    def parse(value: object) -> str:
        try:
            return by_lower[str(value).lower()]
        except KeyError:
            raise ValueError(f"must be one of {', '.join(allowed)}") from None

    return parse


def text(value: object) -> str:
    """Any text."""
    return str(value)


def pattern(value: object) -> str:
    """A regular expression that Go takes, too."""
    wrong = goregex.problem(str(value))
    if wrong:
        raise ValueError(f"must be a regular expression: {wrong}")
    return str(value)


_REGION = re.compile(r"[a-z0-9][a-z0-9-]*")


def region(value: object) -> str:
    """A region's name as keys of the datastore hold it, or empty."""
    if str(value) and not _REGION.fullmatch(str(value)):
        raise ValueError("must be lower-case letters, digits and hyphens")
    return str(value)


_PREFIX = re.compile(r"[a-zA-Z0-9_.-]{1,14}")


def prefixes(value: object) -> tuple[str, ...]:
    """A comma list of interface name prefixes."""
    names = tuple(part.strip() for part in str(value).split(",") if part.strip())
    if not names or not all(_PREFIX.fullmatch(part) for part in names):
        raise ValueError("must be a comma list of interface name prefixes of 1 to 14 characters")
    return names


def port_range(value: object) -> tuple[int, int] | None:
    """`low:high`, one port, or empty."""
    first, _, last = str(value).partition(":")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        low, high = 0, 0
    if not 0 < low <= high < 65536:
        raise ValueError("must be a port or a range low:high within 1 to 65535")
    return low, high


def mark_mask(value: object) -> int:
    """A 32-bit mask with room for felix's marks."""
    mask = integer(1, 0xFFFFFFFF)(value)
    if mask.bit_count() < 5:
        raise ValueError("must have at least 5 bits set")
    return mask


def address(value: object) -> str:
    """An IP address, or empty."""
    from ipaddress import ip_address

    return str(ip_address(str(value))) if str(value) else ""


def networks4(value: Any) -> tuple[str, ...]:
    """IPv4 networks and addresses, a list or with commas between; host bits are ignored."""
    from ipaddress import IPv4Network

    parts = value.split(",") if isinstance(value, str) else value
    texts = [str(part).strip() for part in parts]
    try:
        return tuple(sorted({str(IPv4Network(text, strict=False)) for text in texts if text}))
    except ValueError:
        raise ValueError("must be IPv4 addresses and networks, with commas between") from None


_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
_RATE = re.compile(r"([1-9][0-9]{0,3})/(second|minute|hour|day)")
Failsafe = tuple[int, int, str]
"""Protocol number, port, and the network of the peers (empty: any)."""


def failsafes(value: Any) -> tuple[Failsafe, ...]:
    """`tcp:22,udp:10.0.0.0/8:68`, or the same as objects with protocol, port and net."""
    if isinstance(value, str):
        return tuple(_failsafe(*_split_failsafe(part)) for part in value.split(",") if part.strip())
    return tuple(
        _failsafe(*(_member(entry, name) for name in ("protocol", "net", "port")))
        for entry in value or ()
    )


def _member(entry: object, name: str) -> object:
    member = entry.get(name) if isinstance(entry, dict) else getattr(entry, name, None)
    return member if member is not None else ""


def _split_failsafe(text: str) -> tuple[str, str, str]:
    protocol, _, rest = text.strip().partition(":")
    net, _, port = rest.rpartition(":")
    return (protocol, net, port) if port else ("tcp", "", protocol)


def _failsafe(protocol: object, net: object, port: object) -> Failsafe:
    from ipaddress import ip_network

    try:
        number = int(str(port))
        network = str(ip_network(str(net).strip("[]"), strict=False)) if net else ""
        if 0 <= number <= 65535:
            return _PROTOCOLS[str(protocol).lower() or "tcp"], number, network
    except (KeyError, ValueError):
        pass
    raise ValueError("must be entries protocol:port or protocol:net:port of tcp, udp or sctp")


def rate(value: object) -> tuple[int, str]:
    """A number of packets each second, minute, hour or day."""
    match = _RATE.fullmatch(str(value))
    if match is None:
        raise ValueError("must be 1 to 9999 and a unit, such as 10/second, minute, hour or day")
    return int(match.group(1)), match.group(2)
