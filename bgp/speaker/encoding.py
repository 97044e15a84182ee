"""Routes -> UPDATEs as bytes (RFC 4271 section 4.3, RFC 4760), the other way than `wire.py`. Pure.

A session's `Terms` are all that two sessions can be told the same route differently for: peers of
equal terms share the bytes. Prefixes with equal attributes share a message, up to 4,096 octets
for every peer: also where more is agreed on (RFC 8654). One message holds one kind of thing,
MP_REACH_NLRI is the first attribute (RFC 7606 section 5.1).

Tests: tests/bgp/test_encoding.py reads it back, and holds it against ExaBGP's own encoder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from operator import attrgetter
from typing import Any

from bgp.speaker.interface import Family, IPAddress, IPNetwork, Route

MAX_MESSAGE = 4096
DEFAULT_LOCAL_PREF = 100
"""Of a route without one, towards internal peers, who need one (RFC 4271 5.1.5)."""

_MARKER = b"\xff" * 16
_HEADER = 19
_ROOM = MAX_MESSAGE - _HEADER - 4
_UPDATE, _ROUTE_REFRESH = 2, 5
_OPTIONAL, _TRANSITIVE, _EXTENDED = 0x80, 0x40, 0x10
_BOTH = _OPTIONAL | _TRANSITIVE
_AS_TRANS, _WIDEST_SHORT_AS = 23456, 65535
_REACH_OVERHEAD = 4 + 2 + 1 + 1 + 16 + 1
_AFI = {Family.IPV4: 1, Family.IPV6: 2}
_SEGMENT = 255

BEGIN_OF_REFRESH, END_OF_REFRESH = 1, 2


@dataclass(frozen=True, slots=True)
class Terms:
    """The parts of the two OPENs that the writing of UPDATEs depends on.

    `local_as` is 0 for an internal peer: it is in no path there. `own4` and `own6` are the next
    hops that stand for ourselves; None: there is none of that family.
    """

    internal: bool
    local_as: int
    four_octet_as: bool
    own4: IPv4Address | None
    own6: IPv6Address | None


class Unfit(ValueError):
    """A route that cannot be told on these terms."""


def announce(
    routes: Iterable[Route], terms: Terms, unfit: list[tuple[IPNetwork, str]]
) -> Iterator[bytes]:
    """Whole messages that offer `routes`.

    What cannot be told is withdrawn, should the peer have an earlier route for it, and put into
    `unfit` with the reason.
    """
    groups: dict[Any, list[IPNetwork]] = {}
    for route in routes:
        key = route.prefix.version, *_attributes(route)
        group = groups.get(key)
        if group is None:
            groups[key] = [route.prefix]
        else:
            group.append(route.prefix)
    for (version, *key), nets in groups.items():
        try:
            before, after = _around(version, tuple(key), terms)
        except (ValueError, struct.error) as error:
            unfit += [(net, str(error)) for net in nets]
            yield from withdraw(nets)
            continue
        if version == 4:
            for some in _packed(nets, _ROOM - len(after)):
                yield _message(_UPDATE, b"\0\0" + _counted(after) + some)
        else:
            for some in _packed(nets, _ROOM - len(after) - _REACH_OVERHEAD):
                reach = _wide_attribute(_OPTIONAL, 14, before + some)
                yield _message(_UPDATE, b"\0\0" + _counted(reach + after))


def withdraw(prefixes: Iterable[IPNetwork]) -> Iterator[bytes]:
    """Whole messages that take `prefixes` back."""
    nets = list(prefixes)
    for some in _packed([net for net in nets if net.version == 4], _ROOM):
        yield _message(_UPDATE, _counted(some) + b"\0\0")
    for some in _packed([net for net in nets if net.version == 6], _ROOM - 7):
        unreach = _wide_attribute(_OPTIONAL, 15, b"\0\2\1" + some)
        yield _message(_UPDATE, b"\0\0" + _counted(unreach))


def end_of_rib(family: Family) -> bytes:
    """The message that says that all was said (RFC 4724 section 2)."""
    if family is Family.IPV4:
        return _message(_UPDATE, b"\0\0\0\0")
    return _message(_UPDATE, b"\0\0" + _counted(_attribute(_OPTIONAL, 15, b"\0\2\1")))


def route_refresh(family: Family, subtype: int = 0) -> bytes:
    """The message that asks for all paths once more (RFC 2918), or stands around an answer
    (RFC 7313: `BEGIN_OF_REFRESH`, `END_OF_REFRESH`).
    """
    return _message(_ROUTE_REFRESH, struct.pack("!HBB", _AFI[family], subtype, 1))


_attributes = attrgetter(
    *("next_hop", "origin", "as_path", "local_pref", "med", "originator_id", "cluster_list"),
    *("communities", "large_communities", "extended_communities"),
)


@lru_cache(maxsize=4096)
def _around(version: int, key: tuple[Any, ...], terms: Terms) -> tuple[bytes, bytes]:
    """The bytes before the prefixes of MP_REACH_NLRI, and all other attributes."""
    hop, origin, as_path, local_pref, med, originator, clusters, *tags = key
    communities, large, extended = tags
    hop = _next_hop(version, hop, terms)
    path = as_path if terms.internal else (terms.local_as, *as_path)
    attributes = {1: _attribute(_TRANSITIVE, 1, bytes([origin])), **_as_paths(path, terms)}
    if version == 4:
        attributes[3] = _attribute(_TRANSITIVE, 3, hop.packed)
    if med is not None:
        attributes[4] = _attribute(_OPTIONAL, 4, struct.pack("!I", med))
    if communities:
        attributes[8] = _attribute(
            _BOTH, 8, b"".join(_numbers(each, "!HH") for each in communities)
        )
    if terms.internal:
        preference = DEFAULT_LOCAL_PREF if local_pref is None else local_pref
        attributes[5] = _attribute(_TRANSITIVE, 5, struct.pack("!I", preference))
        if originator is not None:
            attributes[9] = _attribute(_OPTIONAL, 9, originator.packed)
        if clusters:
            ids = b"".join(IPv4Address(each).packed for each in clusters)
            attributes[10] = _attribute(_OPTIONAL, 10, ids)
    if extended:
        attributes[16] = _attribute(_BOTH, 16, b"".join(_octets(each) for each in extended))
    if large:
        attributes[32] = _attribute(_BOTH, 32, b"".join(_numbers(each, "!III") for each in large))
    after = b"".join(each for _, each in sorted(attributes.items()))
    if len(after) + _REACH_OVERHEAD + 17 > _ROOM:
        raise Unfit(f"its attributes take {len(after)} octets, and a message {MAX_MESSAGE}")
    return b"\0\2\1\x10" + hop.packed + b"\0" if version == 6 else b"", after


def _next_hop(version: int, hop: IPAddress | None, terms: Terms) -> IPAddress:
    if hop is None:
        hop = terms.own4 if version == 4 else terms.own6
        if hop is None:
            raise Unfit(f"no IPv{version} address of ours is the session's")
    if hop.version != version:
        raise Unfit(f"next hop {hop} for an IPv{version} prefix")
    return hop


def _as_paths(path: tuple[int, ...], terms: Terms) -> dict[int, bytes]:
    """AS_PATH, and AS4_PATH where an old peer would not see a number (RFC 6793 4.2.2)."""
    if terms.four_octet_as:
        return {2: _attribute(_TRANSITIVE, 2, _segments(path, "I"))}
    short = tuple(number if number <= _WIDEST_SHORT_AS else _AS_TRANS for number in path)
    paths = {2: _attribute(_TRANSITIVE, 2, _segments(short, "H"))}
    if short != path:
        paths[17] = _attribute(_BOTH, 17, _segments(path, "I"))
    return paths


def _segments(path: tuple[int, ...], kind: str) -> bytes:
    """AS_SEQUENCEs of at most 255 numbers."""
    data = b""
    for start in range(0, len(path), _SEGMENT):
        some = path[start : start + _SEGMENT]
        data += struct.pack(f"!BB{len(some)}{kind}", 2, len(some), *some)
    return data


def _numbers(text: str, layout: str) -> bytes:
    try:
        return struct.pack(layout, *map(int, text.split(":")))
    except (ValueError, struct.error):
        raise Unfit(f"community {text} is not one of {len(layout) - 1} numbers") from None


def _octets(text: str) -> bytes:
    octets = bytes.fromhex(text.removeprefix("0x"))
    if len(octets) != 8:
        raise Unfit(f"extended community {text} is not 8 octets")
    return octets


def _packed(nets: list[IPNetwork], room: int) -> Iterator[bytes]:
    """The prefixes as they stand in a message, in pieces of at most `room` octets."""
    pieces: list[bytes] = []
    size = 0
    for net in nets:
        length = net.prefixlen
        one = bytes((length,)) + net.network_address.packed[: length + 7 >> 3]
        size += len(one)
        if size > room:
            yield b"".join(pieces)
            pieces, size = [], len(one)
        pieces.append(one)
    if pieces:
        yield b"".join(pieces)


def _counted(data: bytes) -> bytes:
    return struct.pack("!H", len(data)) + data


def _attribute(flags: int, code: int, value: bytes) -> bytes:
    if len(value) > 255:
        return _wide_attribute(flags, code, value)
    return bytes((flags, code, len(value))) + value


def _wide_attribute(flags: int, code: int, value: bytes) -> bytes:
    return struct.pack("!BBH", flags | _EXTENDED, code, len(value)) + value


def _message(kind: int, body: bytes) -> bytes:
    return _MARKER + struct.pack("!HB", _HEADER + len(body), kind) + body
