"""Path attributes of an UPDATE: bytes -> values, and what a wrong one costs (RFC 7606). Pure.

The table `_RULES` is the whole of it: for each attribute its flags, a parser that raises
`ValueError`, and whether a wrong one withdraws the prefixes or is left out. Sections of RFC
7606 stand beside the rows. An attribute we do not know is left out (so a reflected path does
not carry it on); an unknown *well-known* one ends the session (RFC 4271 6.3).
Tested in tests/bgp/test_wire.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

from bgp.speaker.interface import Attributes, Origin

_OPTIONAL, _TRANSITIVE, _EXTENDED = 0x80, 0x40, 0x10
_WELL_KNOWN, _NON_TRANSITIVE, _BOTH = _TRANSITIVE, _OPTIONAL, _OPTIONAL | _TRANSITIVE
_REACH, _UNREACH, _AS4_PATH = 14, 15, 17
_SET, _SEQUENCE = 1, 2


class Reset(Exception):
    """The session must end with this NOTIFICATION code and subcode."""

    def __init__(self, code: int, subcode: int, why: str) -> None:
        super().__init__(f"{why} ({code},{subcode})")
        self.code, self.subcode = code, subcode


@dataclass(frozen=True, slots=True)
class Session:
    """What the two OPENs agreed on, as far as UPDATEs read differently for it."""

    internal: bool
    four_octet_as: bool = True
    add_path4: bool = False
    add_path6: bool = False
    has_ipv6: bool = False


@dataclass(slots=True)
class Verdict:
    """All attributes of a message.

    `withdraw`: treat-as-withdraw. `cut`: the last attribute runs over the end of the field.
    `reach` and `unreach` are the values of the multiprotocol attributes (RFC 4760).
    """

    attributes: Attributes = field(default_factory=Attributes)
    next_hop: IPv4Address | None = None
    reach: bytes = b""
    unreach: bytes = b""
    withdraw: bool = False
    cut: bool = False
    faults: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def missing(self, *, mp: bool) -> str:
        """Which mandatory attribute is not there, in words (RFC 7606 section 3 d)."""
        needed = {1: "ORIGIN", 2: "AS_PATH"} if mp else {1: "ORIGIN", 2: "AS_PATH", 3: "NEXT_HOP"}
        lacking = [name for code, name in needed.items() if code not in self.seen]
        return f"no {', '.join(lacking)}" if lacking else ""


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    flags: int
    parse: Callable[[bytes, Session], Any]
    field: str = ""
    discard: bool = False
    internal_only: bool = False


def parse(raw: bytes, session: Session) -> Verdict:
    """Read the attribute field. Raises `Reset`."""
    verdict = Verdict()
    values: dict[str, Any] = {}
    for flags, code, value in _fields(raw, verdict):
        rule = _rule_to_apply(flags, code, verdict.seen)
        if rule is None:
            continue
        verdict.seen.add(code)
        if code == _REACH:
            verdict.reach = value or b"\0"
        elif code == _UNREACH:
            verdict.unreach = value or b"\0"
        if rule.internal_only and not session.internal:
            verdict.seen.discard(code)
            continue  # sections 7.5, 7.9, 7.10: no business of an external peer
        try:
            if flags & _BOTH != rule.flags:
                raise ValueError(f"flags {flags:#04x}")
            values[rule.field or rule.name] = rule.parse(value, session)
        except ValueError as error:
            verdict.faults.append(f"{rule.name}: {error}")
            verdict.withdraw |= not rule.discard
    if verdict.cut:  # section 4
        verdict.withdraw = True
        verdict.faults.append("an attribute runs over the end")
    verdict.next_hop = values.get("NEXT_HOP")
    verdict.attributes = _attributes(values, session)
    return verdict


def _fields(raw: bytes, verdict: Verdict) -> Iterator[tuple[int, int, bytes]]:
    """Flags, code and value of each attribute; the verdict hears of one that is cut off."""
    position, end = 0, len(raw)
    while position < end:
        flags = raw[position]
        header = 4 if flags & _EXTENDED else 3
        if position + header > end:
            verdict.cut = True
            return
        code = raw[position + 1]
        length = int.from_bytes(raw[position + 2 : position + header], "big")
        value = raw[position + header : position + header + length]
        position += header + length
        if position > end:
            verdict.cut = True
            return
        yield flags, code, value


def _rule_to_apply(flags: int, code: int, seen: Set[int]) -> _Rule | None:
    """The rule of an attribute; None: it is left out. Raises `Reset`."""
    rule = _RULES.get(code)
    if rule is None:
        if not flags & _OPTIONAL:
            raise Reset(3, 2, f"unknown well-known attribute {code}")
        return None
    if code in seen:
        if code in (_REACH, _UNREACH):
            raise Reset(3, 1, f"{rule.name} twice")
        return None  # section 3 g: the first one counts
    return rule


def _attributes(values: Mapping[str, Any], session: Session) -> Attributes:
    """What was read, by the field or the name of its rule, as the attributes of a route."""
    segments = values.get("AS_PATH", [])
    path4 = values.get("AS4_PATH", [])
    if path4 and not session.four_octet_as:
        segments = _merge(segments, path4)
    flat = tuple([number for _, numbers in segments for number in numbers])
    length = sum(1 if kind == _SET else len(numbers) for kind, numbers in segments)
    known = {name: values[name] for name in _FIELDS & values.keys()}
    return replace(Attributes(as_path=flat, as_path_length=length), **known)


def _merge(
    short: list[tuple[int, list[int]]], wide: list[tuple[int, list[int]]]
) -> list[tuple[int, list[int]]]:
    """AS_PATH with the numbers that AS4_PATH knows better (RFC 6793 section 4.2.3)."""

    def size(path: Iterable[tuple[int, list[int]]]) -> int:
        return sum(1 if kind == _SET else len(numbers) for kind, numbers in path)

    lead = size(short) - size(wide)
    if lead < 0:
        return short
    kept: list[tuple[int, list[int]]] = []
    for kind, numbers in short:
        if lead <= 0:
            break
        taken = numbers if kind == _SET else numbers[:lead]
        kept.append((kind, taken))
        lead -= 1 if kind == _SET else len(taken)
    return kept + wide


def _origin(value: bytes, _: Session) -> Origin:
    if len(value) != 1:
        raise ValueError(f"{len(value)} octets")
    return Origin(value[0])


def _path(value: bytes, width: int) -> list[tuple[int, list[int]]]:
    segments = []
    position = 0
    while position < len(value):
        if position + 2 > len(value):
            raise ValueError("a segment runs over the end")
        kind, count = value[position], value[position + 1]
        stop = position + 2 + count * width
        if kind not in (_SET, _SEQUENCE):
            raise ValueError(f"segment type {kind}")  # RFC 5065 5.3: no confederation here
        if not count or stop > len(value):
            raise ValueError(f"a segment of {count} numbers")
        numbers = [
            int.from_bytes(value[at : at + width], "big") for at in range(position + 2, stop, width)
        ]
        if 0 in numbers:
            raise ValueError("AS 0")  # RFC 7607
        segments.append((kind, numbers))
        position = stop
    return segments


def _as_path(value: bytes, session: Session) -> list[tuple[int, list[int]]]:
    return _path(value, 4 if session.four_octet_as else 2)


def _as4_path(value: bytes, _: Session) -> list[tuple[int, list[int]]]:
    return _path(value, 4)


def _next_hop(value: bytes, _: Session) -> IPv4Address:
    address = _address(value, _)
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        raise ValueError(str(address))  # RFC 4271 6.3: not a host's address
    return address


def _address(value: bytes, _: Session) -> IPv4Address:
    if len(value) != 4:
        raise ValueError(f"{len(value)} octets")
    return IPv4Address(value)


def _number(value: bytes, _: Session) -> int:
    if len(value) != 4:
        raise ValueError(f"{len(value)} octets")
    return int.from_bytes(value, "big")


def _pieces(value: bytes, size: int) -> list[bytes]:
    if not value or len(value) % size:
        raise ValueError(f"{len(value)} octets")
    return [value[at : at + size] for at in range(0, len(value), size)]


def _communities(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple(
        [
            f"{int.from_bytes(each[:2], 'big')}:{int.from_bytes(each[2:], 'big')}"
            for each in _pieces(value, 4)
        ]
    )


def _large(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple(
        [
            ":".join(str(int.from_bytes(each[at : at + 4], "big")) for at in (0, 4, 8))
            for each in _pieces(value, 12)
        ]
    )


def _extended(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple(["0x" + each.hex() for each in _pieces(value, 8)])


def _clusters(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple([str(IPv4Address(each)) for each in _pieces(value, 4)])


def _any(value: bytes, _: Session) -> bytes:
    return value


def _sized(*sizes: int) -> Callable[[bytes, Session], bytes]:
    def check(value: bytes, _: Session) -> bytes:
        if len(value) not in sizes:
            raise ValueError(f"{len(value)} octets")
        return value

    return check


def _aggregator(value: bytes, session: Session) -> bytes:
    return _sized(8 if session.four_octet_as else 6)(value, session)


_RULES = {
    1: _Rule("ORIGIN", _WELL_KNOWN, _origin, "origin"),  # 7.1
    2: _Rule("AS_PATH", _WELL_KNOWN, _as_path),  # 7.2
    3: _Rule("NEXT_HOP", _WELL_KNOWN, _next_hop),  # 7.3
    4: _Rule("MULTI_EXIT_DISC", _NON_TRANSITIVE, _number, "med"),  # 7.4
    5: _Rule("LOCAL_PREF", _WELL_KNOWN, _number, "local_pref", internal_only=True),  # 7.5
    6: _Rule("ATOMIC_AGGREGATE", _WELL_KNOWN, _sized(0), discard=True),  # 7.6
    7: _Rule("AGGREGATOR", _BOTH, _aggregator, discard=True),  # 7.7
    8: _Rule("COMMUNITIES", _BOTH, _communities, "communities"),  # 7.8
    9: _Rule("ORIGINATOR_ID", _NON_TRANSITIVE, _address, "originator_id", internal_only=True),
    10: _Rule("CLUSTER_LIST", _NON_TRANSITIVE, _clusters, "cluster_list", internal_only=True),
    14: _Rule("MP_REACH_NLRI", _NON_TRANSITIVE, _any),  # 7.11
    15: _Rule("MP_UNREACH_NLRI", _NON_TRANSITIVE, _any),  # 7.12
    16: _Rule("EXTENDED_COMMUNITIES", _BOTH, _extended, "extended_communities"),  # 7.14
    17: _Rule("AS4_PATH", _BOTH, _as4_path, discard=True),  # RFC 6793 section 6
    18: _Rule("AS4_AGGREGATOR", _BOTH, _sized(8), discard=True),  # RFC 6793 section 6
    25: _Rule("IPV6_EXTENDED_COMMUNITIES", _BOTH, lambda v, _: _pieces(v, 20)),  # 7.15
    32: _Rule("LARGE_COMMUNITIES", _BOTH, _large, "large_communities"),  # RFC 8092 section 6
}

_FIELDS = frozenset(rule.field for rule in _RULES.values() if rule.field)
