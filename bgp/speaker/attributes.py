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

from bgp.speaker import attribute_values as read
from bgp.speaker.attribute_values import AS_SET, Session
from bgp.speaker.interface import Attributes

_OPTIONAL, _TRANSITIVE, _EXTENDED = 0x80, 0x40, 0x10
_WELL_KNOWN, _NON_TRANSITIVE, _BOTH = _TRANSITIVE, _OPTIONAL, _OPTIONAL | _TRANSITIVE
_REACH, _UNREACH, _AS4_PATH = 14, 15, 17


class Reset(Exception):
    """The session must end with this NOTIFICATION code and subcode."""

    def __init__(self, code: int, subcode: int, why: str) -> None:
        super().__init__(f"{why} ({code},{subcode})")
        self.code, self.subcode = code, subcode


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
    """The attributes of a route, from values by the field or the name of their rule."""
    segments = values.get("AS_PATH", [])
    path4 = values.get("AS4_PATH", [])
    if path4 and not session.four_octet_as:
        segments = _merge(segments, path4)
    flat = tuple([number for _, numbers in segments for number in numbers])
    length = sum(1 if kind == AS_SET else len(numbers) for kind, numbers in segments)
    known = {name: values[name] for name in _FIELDS & values.keys()}
    return replace(Attributes(as_path=flat, as_path_length=length), **known)


def _merge(
    short: list[tuple[int, list[int]]], wide: list[tuple[int, list[int]]]
) -> list[tuple[int, list[int]]]:
    """AS_PATH with the numbers that AS4_PATH knows better (RFC 6793 section 4.2.3)."""

    def size(path: Iterable[tuple[int, list[int]]]) -> int:
        return sum(1 if kind == AS_SET else len(numbers) for kind, numbers in path)

    lead = size(short) - size(wide)
    if lead < 0:
        return short
    kept: list[tuple[int, list[int]]] = []
    for kind, numbers in short:
        if lead <= 0:
            break
        taken = numbers if kind == AS_SET else numbers[:lead]
        kept.append((kind, taken))
        lead -= 1 if kind == AS_SET else len(taken)
    return kept + wide


_RULES = {
    1: _Rule("ORIGIN", _WELL_KNOWN, read.origin, "origin"),  # 7.1
    2: _Rule("AS_PATH", _WELL_KNOWN, read.as_path),  # 7.2
    3: _Rule("NEXT_HOP", _WELL_KNOWN, read.next_hop),  # 7.3
    4: _Rule("MULTI_EXIT_DISC", _NON_TRANSITIVE, read.number, "med"),  # 7.4
    5: _Rule("LOCAL_PREF", _WELL_KNOWN, read.number, "local_pref", internal_only=True),  # 7.5
    6: _Rule("ATOMIC_AGGREGATE", _WELL_KNOWN, read.sized(0), discard=True),  # 7.6
    7: _Rule("AGGREGATOR", _BOTH, read.aggregator, discard=True),  # 7.7
    8: _Rule("COMMUNITIES", _BOTH, read.communities, "communities"),  # 7.8
    9: _Rule("ORIGINATOR_ID", _NON_TRANSITIVE, read.address, "originator_id", internal_only=True),
    10: _Rule(
        "CLUSTER_LIST", _NON_TRANSITIVE, read.cluster_list, "cluster_list", internal_only=True
    ),
    14: _Rule("MP_REACH_NLRI", _NON_TRANSITIVE, read.anything),  # 7.11
    15: _Rule("MP_UNREACH_NLRI", _NON_TRANSITIVE, read.anything),  # 7.12
    16: _Rule(
        "EXTENDED_COMMUNITIES", _BOTH, read.extended_communities, "extended_communities"
    ),  # 7.14
    17: _Rule("AS4_PATH", _BOTH, read.as4_path, discard=True),  # RFC 6793 section 6
    18: _Rule("AS4_AGGREGATOR", _BOTH, read.sized(8), discard=True),  # RFC 6793 section 6
    25: _Rule("IPV6_EXTENDED_COMMUNITIES", _BOTH, lambda v, _: read.pieces(v, 20)),  # 7.15
    32: _Rule(
        "LARGE_COMMUNITIES", _BOTH, read.large_communities, "large_communities"
    ),  # RFC 8092 section 6
}

_FIELDS = frozenset(rule.field for rule in _RULES.values() if rule.field)
