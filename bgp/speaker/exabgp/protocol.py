"""ExaBGP's line protocol, both ways. Pure: bytes in, events out; messages in, lines out.

ExaBGP writes JSON lines, UPDATEs as they came (`updates.raw_updates`), and plain `done` or
`error` for each command, in their order (`sending.py`). What is not answered yet is kept below
`IN_FLIGHT`, so that a write never blocks.

A line that does not parse is an event of type `Unreadable`, never an exception: what a
hostile peer makes ExaBGP print must not stop the agent (tests/bgp/test_protocol.py fuzzes
it).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import msgspec

from bgp.speaker.exabgp.notices import explained
from bgp.speaker.interface import (
    Event,
    Family,
    IPAddress,
    PeerOpen,
    PeerProgress,
)
from libcalico.errors import NO_DOCUMENT


class Ack(enum.Enum):
    """ExaBGP's answer to a command."""

    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class State:
    """A session changed: `state` is `connected` or `down`."""

    peer: IPAddress
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Up:
    """A session is Established: its number, what both sides carry, our next hops of it."""

    peer: IPAddress
    session: int
    families: frozenset[Family]
    four_octet_as: bool
    own4: IPv4Address | None
    own6: IPv6Address | None


@dataclass(frozen=True, slots=True)
class Refresh:
    """A peer asks for all routes once more (RFC 2918), `enhanced`: framed (RFC 7313)."""

    peer: IPAddress
    session: int
    family: Family | None
    enhanced: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is not what we expect; `peer` is the one that it names, as far as we can tell."""

    why: str
    peer: IPAddress | None = None


@dataclass(frozen=True, slots=True)
class RawUpdate:
    """An UPDATE's body; `flags` are those of `updates.raw_updates`."""

    peer: IPAddress
    flags: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Overflow:
    """UPDATEs of a peer were dropped: too many of its octets wait (`backlog`)."""

    peer: IPAddress


Line = Event | State | Up | Refresh | Ack | Unreadable | RawUpdate | Overflow | None

_decoder = msgspec.json.Decoder()
# Nothing that nests without end, and no number without one, may end the speaker's reader either.
_UNREADABLE = (*NO_DOCUMENT, ValueError, OverflowError)
_PEER = re.compile(rb'"peer"\s*:\s*"([0-9A-Fa-f.:]+)"')
_UPDATE = b"update "
OVERFLOW = b"overflow "
_FAMILIES = {family.value: family for family in Family}


def decode(line: bytes) -> Line:
    """The event of one line; None for a line that does not concern us."""
    if line.startswith(_UPDATE):
        return _update(line)
    if not line.startswith(b"{"):
        if line.startswith(OVERFLOW):
            return _overflow(line)
        word = line.strip()
        return Ack.DONE if word == b"done" else Ack.ERROR if word == b"error" else None
    try:
        message = _decoder.decode(line)
        kind = message.get("type")
        if kind == "state":
            neighbor = message["neighbor"]
            peer = ip_address(neighbor["address"]["peer"])
            reason = explained(str(neighbor.get("reason", "")))
            return State(peer, str(neighbor["state"]), reason)
        if kind == "up":
            return _up(message)
        if kind == "refresh":
            family = _FAMILIES.get(message["family"])
            peer = ip_address(message["peer"])
            return Refresh(peer, int(message["session"]), family, bool(message["enhanced"]))
        if kind == "open":
            return _open(message["neighbor"])
        if kind == "notification":
            return _notification(message.get("neighbor"))
        return None
    except (*_UNREADABLE, KeyError, TypeError, AttributeError) as error:
        return Unreadable(f"{type(error).__name__}: {error}", _named_peer(line))


def _overflow(line: bytes) -> Line:
    try:
        return Overflow(_address(line[len(OVERFLOW) :].decode("ascii")))
    except ValueError as error:
        return Unreadable(f"{type(error).__name__}: {error}", None)


def _update(line: bytes) -> Line:
    peer: IPAddress | None = None
    try:
        _, name, flags, *body = line.decode("ascii").split()
        peer = _address(name)
        return RawUpdate(peer, flags, bytes.fromhex("".join(body)))
    except ValueError as error:
        return Unreadable(f"{type(error).__name__}: {error}", peer)


@lru_cache(maxsize=4096)
def _address(text: str) -> IPAddress:
    return ip_address(text)


def _named_peer(line: bytes) -> IPAddress | None:
    match = _PEER.search(line)
    try:
        return ip_address(match[1].decode()) if match else None
    except ValueError:
        return None


def _up(message: dict[str, Any]) -> Line:
    own4, own6 = message["own"]
    return Up(
        ip_address(message["peer"]),
        int(message["session"]),
        _named(message["families"]),
        bool(message["asn4"]),
        IPv4Address(own4) if own4 else None,
        IPv6Address(own6) if own6 else None,
    )


def _open(neighbor: dict[str, Any]) -> Line:
    if neighbor.get("direction", "receive") != "receive":
        return None
    message = neighbor["open"]
    capabilities = message.get("capabilities") or {}
    graceful = capabilities.get("64")
    listed: dict[str, list[str]] = graceful.get("address-family-flags", {}) if graceful else {}
    families = {
        family: flags
        for name, flags in listed.items()
        if (family := _FAMILIES.get(name.replace("/", " "))) is not None
    }
    carried = _named((capabilities.get("1") or {}).get("families", ()))
    several = capabilities.get("69") or {}
    sends = {name for name, what in several.items() if "send" in str(what)}
    router_id = message.get("router_id")
    return PeerOpen(
        peer=ip_address(neighbor["address"]["peer"]),
        asn=int(message["asn"]),
        router_id=IPv4Address(router_id) if router_id else None,
        hold_time=int(message["hold_time"]),
        restart_time=int(graceful["time"]) if graceful else None,
        restart_families=frozenset(families),
        # ExaBGP 5.0 calls the forwarding bit of a family "restart"
        forwarding=frozenset(family for family, flags in families.items() if "restart" in flags),
        route_refresh="2" in capabilities,
        families=carried or frozenset({Family.IPV4}),  # RFC 4760 8: without it, IPv4 alone
        add_path=_named(sends),
        four_octet_as="65" in capabilities,
    )


def _named(names: Iterable[str]) -> frozenset[Family]:
    families = (_FAMILIES.get(str(name).replace("/", " ")) for name in names)
    return frozenset(family for family in families if family is not None)


def _notification(neighbor: dict[str, Any] | None) -> Line:
    if neighbor is None:
        return None
    message = neighbor["notification"]
    verb = "received" if neighbor.get("direction") == "receive" else "sent"
    return PeerProgress(
        ip_address(neighbor["address"]["peer"]),
        "",
        explained(f"notification {verb} ({message['code']},{message['subcode']})"),
    )
