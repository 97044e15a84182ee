"""ExaBGP's line protocol, both ways. Pure: bytes in, events out; routes in, lines out.

ExaBGP writes JSON lines, UPDATEs as they came (`patches.raw_updates`), and plain `done` or
`error` for each command; a command carries no id, so the caller keeps exactly one in flight.
Lines of ours are kept far below the pipe's 64 KiB: with one command in flight a write then
never blocks.

A line that does not parse is an event of type `Unreadable`, never an exception: what a
hostile peer makes ExaBGP print must not stop the agent (tests/bgp/test_protocol.py fuzzes
it).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from operator import attrgetter
from typing import Any

import msgspec

from bgp.speaker.exabgp.notices import explained
from bgp.speaker.interface import (
    Event,
    Family,
    IPAddress,
    IPNetwork,
    Peer,
    PeerOpen,
    PeerProgress,
    Route,
)

PING = "version"
PREFIXES_PER_LINE = 400
PEERS_PER_LINE = 400


class Ack(enum.Enum):
    """ExaBGP's answer to a command."""

    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class State:
    """A session changed: `state` is `up`, `connected` or `down`."""

    peer: IPAddress
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is not what we expect; `peer` is whom it speaks of, as far as we can tell."""

    why: str
    peer: IPAddress | None = None


@dataclass(frozen=True, slots=True)
class RawUpdate:
    """An UPDATE's body; `flags` are those of `patches.raw_updates`."""

    peer: IPAddress
    flags: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Overflow:
    """UPDATEs of a peer were dropped: too many of its octets wait (`backlog`)."""

    peer: IPAddress


Line = Event | State | Ack | Unreadable | RawUpdate | Overflow | None

_decoder = msgspec.json.Decoder()
_PEER = re.compile(rb'"peer"\s*:\s*"([0-9A-Fa-f.:]+)"')
_UPDATE = b"update "
OVERFLOW = b"overflow "
_FAMILIES = {family.value: family for family in Family}


def decode(line: bytes) -> Line:
    """What one line says; None for what does not concern us."""
    if line.startswith(_UPDATE):
        return _update(line)
    if not line.startswith(b"{"):
        if line.startswith(OVERFLOW):
            return Overflow(ip_address(line[len(OVERFLOW) :].decode()))
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
        if kind == "open":
            return _open(message["neighbor"])
        if kind == "notification":
            return _notification(message.get("neighbor"))
        return None
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Unreadable(f"{type(error).__name__}: {error}", _named_peer(line))


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
    found = _PEER.search(line)
    try:
        return ip_address(found[1].decode()) if found else None
    except ValueError:
        return None


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
    found = (_FAMILIES.get(str(name).replace("/", " ")) for name in names)
    return frozenset(family for family in found if family is not None)


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


def announce(routes: Iterable[Route], peers: Collection[Peer]) -> Iterator[str]:
    """Lines that offer `routes` to `peers`; routes with equal attributes share lines."""
    groups: dict[Any, tuple[Route, list[IPNetwork]]] = {}
    for route in routes:
        groups.setdefault(_attributes(route), (route, []))[1].append(route.prefix)
    for alike, some in _by_path(peers):
        texts = [(attribute_text(route, alike), nets) for route, nets in groups.values()]
        for attributes, prefixes in sorted(texts, key=lambda text: text[0]):
            for chunk in _chunks(prefixes):
                for to in _to(some):
                    yield f"{to}announce attributes {attributes} nlri {chunk}"


_attributes = attrgetter(
    *("next_hop", "origin", "as_path", "local_pref", "med", "originator_id", "cluster_list"),
    *("communities", "large_communities", "extended_communities"),
)


def _by_path(peers: Collection[Peer]) -> Iterator[tuple[Peer, list[IPAddress]]]:
    """Peers to which a path is written the same way, with one that stands for them."""
    alike: dict[tuple[bool, int], list[Peer]] = {}
    for peer in peers:
        alike.setdefault((peer.internal, 0 if peer.internal else peer.local_as), []).append(peer)
    for _, group in sorted(alike.items()):
        yield group[0], [peer.address for peer in group]


def withdraw(prefixes: Iterable[IPNetwork], peers: Collection[IPAddress]) -> Iterator[str]:
    """Lines that take `prefixes` back from `peers`. One family per call."""
    if not peers:
        return
    for chunk in _chunks(list(prefixes)):
        for to in _to(peers):
            yield f"{to}withdraw attributes next-hop self nlri {chunk}"


def end_of_rib(peer: IPAddress, family: Family) -> str:
    """The line that sends End-of-RIB; an established session is needed."""
    return f"neighbor {peer} announce eor {family.value}"


def route_refresh(peer: IPAddress, family: Family) -> str:
    """The line that asks a peer for all its paths once more (RFC 2918)."""
    return f"neighbor {peer} announce route-refresh {family.value}"


def reset(peer: IPAddress, code: int = 6, subcode: int = 4) -> str:
    """The line that ends a session with a NOTIFICATION, by default CEASE, "administrative reset"
    (RFC 4486); see `patches.teardown_with_notice`.
    """
    return f"neighbor {peer} teardown {code * 1000 + subcode}"


def _to(peers: Collection[IPAddress]) -> Iterator[str]:
    ordered = sorted(peers, key=int)
    for start in range(0, len(ordered), PEERS_PER_LINE):
        some = ordered[start : start + PEERS_PER_LINE]
        yield " , ".join(f"neighbor {peer}" for peer in some) + " "


def _chunks(prefixes: list[IPNetwork]) -> Iterator[str]:
    ordered = sorted(prefixes, key=lambda net: (net.version, int(net.network_address)))
    for start in range(0, len(ordered), PREFIXES_PER_LINE):
        yield " ".join(str(prefix) for prefix in ordered[start : start + PREFIXES_PER_LINE])


def attribute_text(route: Route, peer: Peer) -> str:
    """The attributes of a route as they are written for a peer, in ExaBGP's words."""
    words = [f"next-hop {route.next_hop or 'self'}", f"origin {route.origin.name.lower()}"]
    path = [] if peer.internal or not route.as_path else [peer.local_as]
    path += route.as_path
    if path:
        words.append(f"as-path [ {' '.join(str(number) for number in path)} ]")
    if route.local_pref is not None and peer.internal:
        words.append(f"local-preference {route.local_pref}")
    if route.med is not None:
        words.append(f"med {route.med}")
    if route.communities:
        words.append(f"community [ {' '.join(route.communities)} ]")
    if route.large_communities:
        words.append(f"large-community [ {' '.join(route.large_communities)} ]")
    if route.extended_communities:
        words.append(f"extended-community [ {' '.join(route.extended_communities)} ]")
    if route.originator_id is not None:
        words.append(f"originator-id {route.originator_id}")
    if route.cluster_list:
        words.append(f"cluster-list [ {' '.join(route.cluster_list)} ]")
    return " ".join(words)
