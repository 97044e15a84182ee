"""Kinds of iptables rules: the shape of their text, and the kernel's bytes of such a rule.

Problem: rules of different pods differ in their hash, their interface and the chain that they go
to. A line of a restore is read into these names and the shape around them; the kernel's attributes
of one such rule are cut at the same names, and put together again with others.

A rule in which one of the names does not stand exactly once is not cut, and so not known: which of
the places differs in another rule would be a guess.
Tested in tests/linux/test_iptables_packed.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linux.iptables.hashes import HASH_LENGTH, JUMP, HashScheme
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.expressions import be32

_INTERFACE = re.compile(r"(?:-[io]|--(?:in|out)-interface) (\S+)")
_TARGET = re.compile(rf"{JUMP}(\S+)")
_PROTOCOL = re.compile(r"(! )?(?:-p|--protocol) (\S+)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PROTOCOLS = {
    "icmp": 1, "ipencap": 4, "tcp": 6, "udp": 17, "ipv6-icmp": 58, "icmpv6": 58, "sctp": 132,
}  # fmt: skip
_COMPAT, _COMPAT_PROTOCOL, _COMPAT_FLAGS, _COMPAT_INVERTED = 5, 1, 2, 2
_ELEMENT, _NAME, _DATA = 1, 1, 2
_PLAIN = frozenset({b"meta", b"cmp", b"bitwise", b"payload", b"immediate", b"counter", b"ct"})
_EXTENSIONS = frozenset(
    {b"comment", b"conntrack", b"multiport", b"mark", b"MARK", b"udp", b"tcp", b"icmp", b"icmp6"}
)
_INTERFACES, _TARGETS = ("--in-interface", "--out-interface"), ("--goto", "--jump")
_MOST = 4000
"""Kinds that are remembered."""


@dataclass(slots=True)
class Line:
    """A line that adds a rule: where, its hash, and its kind with what else is its own."""

    chain: str
    first: bool
    hash: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Kind:
    """A rule without its hash: a shape, and the names in it.

    `interface` is without the `+` of a wildcard; `target` a chain of ours.
    """

    shape: tuple[str, int, int]
    interface: bytes
    target: bytes


@dataclass(frozen=True, slots=True)
class PackedKind:
    """Attributes of a rule behind its place, in pieces: between them stand the names of `order`
    (0 the hash, 1 the target, 2 the interface)."""

    pieces: tuple[bytes, ...]
    order: tuple[int, ...]

    def renamed(self, line: Line) -> bytes:
        """With the names of this line."""
        return self.named(line.hash.encode(), line.kind.target, line.kind.interface)

    def named(self, *names: bytes) -> bytes:
        """With this hash, target and interface."""
        parts = [self.pieces[0]]
        for each, piece in zip(self.order, self.pieces[1:], strict=True):
            parts += names[each], piece
        return b"".join(parts)


class DispatchRule(NamedTuple):
    """A rule of dispatch: packets of an interface go to a chain of ours.

    `kind`: the options, and of the names what `Kind.shape` says of them.
    """

    interface: str
    target: str
    kind: tuple[str, str, bool, int, int]

    @classmethod
    def of(cls, rule: str, ours: Callable[[str], bool]) -> DispatchRule | None:
        """None for any other rule."""
        words = rule.split(" ")
        if len(words) != 4 or words[0] not in _INTERFACES or words[2] not in _TARGETS:
            return None
        _, name, _, target = words
        interface = name.removesuffix("+")
        # `Reader.read` judges names that may be an option, or a part of another name.
        if not interface or "-" in name or '"' in name or target in name or not ours(target):
            return None
        kind = (words[0], words[2], interface != name, len(interface), len(target))
        return cls(interface, target, kind)


class Reader:
    """Reads lines of a restore; it keeps kinds without an interface, the same for every pod."""

    def __init__(self, scheme: HashScheme) -> None:
        self._mark, self._ours = f'"{scheme.prefix}', scheme.owns
        self._kinds: dict[str, Kind] = {}

    def forget(self) -> None:
        """Remember none."""
        self._kinds.clear()

    def read(self, text: str) -> Line | None:
        """A line that adds one of our rules at an end of a chain; None for any other."""
        action, _, rest = text.partition(" ")
        chain, _, rule = rest.partition(" ")
        first = action == "-I"
        if first and rule.startswith("1 "):
            rule = rule[2:]
        elif action != "-A":
            return None
        start = rule.find(self._mark)
        if start < 0:
            return None
        start += len(self._mark)
        own, kind = rule[start : start + HASH_LENGTH], rule[:start] + rule[start + HASH_LENGTH :]
        return Line(chain, first, own, self._kinds.get(kind) or self._kind(kind))

    def _kind(self, text: str) -> Kind:
        interface = target = ""
        shape = text
        start, name = _named(_TARGET, shape)
        if self._ours(name) and (without := _without(shape, start, name, "#")) is not None:
            target, shape = name, without
        start, name = _named(_INTERFACE, shape)
        name = name.removesuffix("+")
        if name and (without := _without(shape, start, name, "@")) is not None:
            interface, shape = name, without
        parsed = Kind((shape, len(interface), len(target)), interface.encode(), target.encode())
        if not interface:
            if len(self._kinds) >= _MOST:
                self._kinds.clear()
            self._kinds[text] = parsed
        return parsed


def _unquoted(text: str) -> str:
    """The text with nothing in its quotes, every other character at its place: text in a
    comment is no option."""
    return _QUOTED.sub(lambda quoted: " " * len(quoted.group()), text)


def _named(option: re.Pattern[str], text: str) -> tuple[int, str]:
    """The word behind an option, and where it stands."""
    match = option.search(_unquoted(text))
    return (0, "") if match is None else (match.start(1), match.group(1))


def _without(text: str, start: int, name: str, sign: str) -> str | None:
    """The text with a sign for this name; None where the name stands elsewhere too: then it is
    not known which of them another rule of this kind would have otherwise."""
    if text.count(name) != 1:
        return None
    return f"{text[:start]}{sign}{text[start + len(name) :]}"


def _protocol(kind: str) -> tuple[int, bool] | None:
    """The protocol that a rule names, and whether it excludes it. Raises KeyError: unknown."""
    match = _PROTOCOL.search(_unquoted(kind))
    if match is None:
        return None
    name = match.group(2)
    return int(name) if name.isdigit() else _PROTOCOLS[name], bool(match.group(1))


def packed_kind(attributes: m.Attributes, line: Line) -> PackedKind | None:
    """What the kernel holds of this line, if these attributes are of its rule and plain (PKD-2)."""
    own = line.hash.encode()
    userdata = attributes.get(messages.RULE_USERDATA, b"")
    listed = attributes.get(messages.RULE_EXPRESSIONS, b"")
    if own not in userdata and own not in listed:
        return None
    try:
        protocol = _protocol(line.kind.shape[0])
    except KeyError:
        return None
    elements = [_plain(m.parse_attributes(data)) for _, data in m.iterate_attributes(listed)]
    if None in elements:
        return None
    packed = m.nest(messages.RULE_EXPRESSIONS, *(element for element in elements if element))
    if protocol is not None:
        number, inverted = protocol
        flags = _COMPAT_INVERTED if inverted else 0
        # The kernel does not send it, and needs it where an extension looks at the protocol.
        packed += m.nest(_COMPAT, be32(_COMPAT_PROTOCOL, number), be32(_COMPAT_FLAGS, flags))
    if userdata:
        packed += m.attribute(messages.RULE_USERDATA, userdata)
    return _in_pieces(packed, (own, line.kind.target, line.kind.interface))


def _in_pieces(data: bytes, names: Sequence[bytes]) -> PackedKind | None:
    """Cut the names out; None where one does not stand there exactly once."""
    places: list[tuple[int, int, int]] = []
    left = data
    for number, name in enumerate(names):
        if not name:
            continue
        if left.count(name) != 1:
            return None
        start = left.index(name)
        places.append((start, start + len(name), number))
        # An interface's name is part of its chain's.
        left = left[:start] + bytes(len(name)) + left[start + len(name) :]
    places.sort()
    starts = (0, *(end for _, end, _ in places))
    ends = (*(start for start, _, _ in places), len(data))
    pieces = tuple(data[start:end] for start, end in zip(starts, ends, strict=True))
    return PackedKind(pieces, tuple(number for _, _, number in places))


def _plain(expression: m.Attributes) -> bytes | None:
    """An expression for a new rule; None for one that may carry more than it shows."""
    name, data = expression.get(_NAME, b"").rstrip(b"\0"), expression.get(_DATA, b"")
    if name in (b"match", b"target"):
        extension = m.parse_attributes(data).get(_NAME, b"").rstrip(b"\0")
        if extension not in _EXTENSIONS:
            return None
    elif name == b"counter":
        data = b""
    elif name not in _PLAIN:
        return None
    return m.nest(_ELEMENT, m.attribute(_NAME, name + b"\0"), m.nest(_DATA, data))
