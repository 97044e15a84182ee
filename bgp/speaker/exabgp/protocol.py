"""ExaBGP's line protocol, both ways. Pure: bytes in, events out; routes in, lines out.

ExaBGP writes JSON lines, and plain `done` or `error` for each command; a command carries no
id, so the caller keeps exactly one in flight. Lines of ours are kept far below the pipe's
64 KiB: with one command in flight a write then never blocks.

A line that does not parse is an event of type `Unreadable`, never an exception: what a
hostile peer makes ExaBGP print must not stop the agent (tests/bgp/test_protocol.py fuzzes
it).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

import msgspec

from bgp.speaker.interface import (
    Announced,
    Attributes,
    EndOfRib,
    Event,
    Family,
    IPAddress,
    IPNetwork,
    Origin,
    PathsReceived,
    PeerOpen,
    PeerProgress,
    Route,
    Withdrawn,
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


Line = Event | State | Ack | Unreadable | None

_decoder = msgspec.json.Decoder()
_PEER = re.compile(rb'"peer"\s*:\s*"([0-9A-Fa-f.:]+)"')
_ORIGINS = {"igp": Origin.IGP, "egp": Origin.EGP, "incomplete": Origin.INCOMPLETE}
_FAMILIES = {family.value: family for family in Family}


def decode(line: bytes) -> Line:
    """What one line says; None for what does not concern us."""
    if not line.startswith(b"{"):
        word = line.strip()
        return Ack.DONE if word == b"done" else Ack.ERROR if word == b"error" else None
    try:
        message = _decoder.decode(line)
        kind = message.get("type")
        if kind == "update":
            return _update(message["neighbor"])
        if kind == "state":
            neighbor = message["neighbor"]
            peer = ip_address(neighbor["address"]["peer"])
            return State(peer, str(neighbor["state"]), str(neighbor.get("reason", "")))
        if kind == "open":
            return _open(message["neighbor"])
        if kind == "notification":
            return _notification(message.get("neighbor"))
        return None
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Unreadable(f"{type(error).__name__}: {error}", _named_peer(line))


def _named_peer(line: bytes) -> IPAddress | None:
    found = _PEER.search(line)
    try:
        return ip_address(found[1].decode()) if found else None
    except ValueError:
        return None


def _update(neighbor: dict[str, Any]) -> Line:
    if neighbor.get("direction", "receive") != "receive":
        return None
    peer = ip_address(neighbor["address"]["peer"])
    message = neighbor["message"]
    eor = message.get("eor")
    if eor is not None:
        family = _FAMILIES.get(f"{eor['afi']} {eor['safi']}")
        return EndOfRib(peer, family) if family else None
    update = message.get("update")
    if not update:
        return None
    raw = update.get("attribute") or {}
    found: dict[tuple[IPNetwork, int], Announced] = {}
    for name, hops in (update.get("announce") or {}).items():
        if name not in _FAMILIES:
            continue
        for hop, paths in hops.items():
            # IPv6 may carry a link-local next hop too (RFC 2545); ExaBGP then names every
            # prefix twice. Without an interface the link-local one is of no use.
            next_hop = ip_address(hop)
            for path in paths:
                each = Announced(_prefix(path), next_hop, _path_id(path))
                key = (each.prefix, each.path_id)
                if key not in found or found[key].next_hop.is_link_local:
                    found[key] = each
    announced = list(found.values())
    withdrawn = [
        Withdrawn(_prefix(path), _path_id(path))
        for name, paths in (update.get("withdraw") or {}).items()
        if name in _FAMILIES
        for path in paths
    ]
    origin = str(raw.get("origin", "igp")).lower()
    if "error" in raw or origin not in _ORIGINS:  # treat-as-withdraw (RFC 7606 3 and 7.1)
        withdrawn += [Withdrawn(path.prefix, path.path_id) for path in announced]
        announced = []
    if not announced and not withdrawn:
        return None
    return PathsReceived(peer, _attributes(raw), tuple(announced), tuple(withdrawn))


def _prefix(path: Any) -> IPNetwork:
    # The bits behind the length mean nothing (RFC 4271 4.3), and ExaBGP shows them as received.
    return ip_network(path["nlri"] if isinstance(path, dict) else path, strict=False)


def _path_id(path: Any) -> int:
    text = path.get("path-information") if isinstance(path, dict) else None
    return int(IPv4Address(text)) if text else 0


def _attributes(raw: dict[str, Any]) -> Attributes:
    path: list[int] = []
    length = 0
    for segment in (raw.get("as-path") or {}).values():
        element, numbers = str(segment["element"]), [int(number) for number in segment["value"]]
        path += numbers
        if "confed" not in element:
            length += 1 if element.endswith("set") else len(numbers)
    originator = raw.get("originator-id")
    return Attributes(
        origin=_ORIGINS.get(str(raw.get("origin", "igp")).lower(), Origin.INCOMPLETE),
        as_path=tuple(path),
        as_path_length=length,
        local_pref=_number(raw.get("local-preference")),
        med=_number(raw.get("med")),
        originator_id=IPv4Address(originator) if originator else None,
        cluster_list=tuple(str(cluster) for cluster in raw.get("cluster-list") or ()),
        communities=tuple(_community(value) for value in raw.get("community") or ()),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _community(value: Any) -> str:
    return ":".join(str(part) for part in value) if isinstance(value, list) else str(value)


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
    )


def _notification(neighbor: dict[str, Any] | None) -> Line:
    if neighbor is None:
        return None
    message = neighbor["notification"]
    verb = "received" if neighbor.get("direction") == "receive" else "sent"
    return PeerProgress(
        ip_address(neighbor["address"]["peer"]),
        "",
        f"notification {verb} ({message['code']},{message['subcode']})",
    )


def announce(routes: Iterable[Route], peers: Collection[IPAddress]) -> Iterator[str]:
    """Lines that offer `routes` to `peers`; routes with equal attributes share lines."""
    if not peers:
        return
    groups: dict[str, list[IPNetwork]] = {}
    for route in routes:
        groups.setdefault(_attribute_text(route), []).append(route.prefix)
    for attributes, prefixes in sorted(groups.items()):
        for chunk in _chunks(prefixes):
            for to in _to(peers):
                yield f"{to}announce attributes {attributes} nlri {chunk}"


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


def reset(peer: IPAddress) -> str:
    """The line that ends a session with CEASE, "administrative reset" (RFC 4486)."""
    return f"neighbor {peer} teardown 4"


def _to(peers: Collection[IPAddress]) -> Iterator[str]:
    ordered = sorted(peers, key=int)
    for start in range(0, len(ordered), PEERS_PER_LINE):
        some = ordered[start : start + PEERS_PER_LINE]
        yield " , ".join(f"neighbor {peer}" for peer in some) + " "


def _chunks(prefixes: list[IPNetwork]) -> Iterator[str]:
    ordered = sorted(prefixes, key=lambda net: (net.version, int(net.network_address)))
    for start in range(0, len(ordered), PREFIXES_PER_LINE):
        yield " ".join(str(prefix) for prefix in ordered[start : start + PREFIXES_PER_LINE])


def _attribute_text(route: Route) -> str:
    words = [f"next-hop {route.next_hop or 'self'}"]
    if route.local_pref is not None:
        words.append(f"local-preference {route.local_pref}")
    if route.med is not None:
        words.append(f"med {route.med}")
    if route.as_path:
        words.append(f"as-path [ {' '.join(str(number) for number in route.as_path)} ]")
    if route.communities:
        words.append(f"community [ {' '.join(route.communities)} ]")
    if route.large_communities:
        words.append(f"large-community [ {' '.join(route.large_communities)} ]")
    return " ".join(words)
