"""Named sets of our tables, with the interface of `linux.ipset.IPSets`: members are text.

A member is spelled as ipset spells it: "10.0.0.0/26" and "10.0.0.1" (hash:net),
"10.0.0.1" (hash:ip), "10.0.0.1,tcp:80" (hash:ip,port). The first becomes an interval set, in
which nothing may overlap (`linux.nftables.intervals`), the others plain hash sets.

Unlike an ipset, a set lies in a table: a flush of the table takes it along. The kernel gets no
limit to keep, because it would reserve the room; the limit is kept here.

NFS-1: `members` of what `add` wrote are the same strings, if they were canonical.
NFS-2: one call is one batch: readers see the set before or after it.
Tested in tests/linux/test_nftables_sets.py.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Literal

from linux.closing import Closing
from linux.errors import KernelError
from linux.ipset import SetInfo, SetType
from linux.netlink import wire as m
from linux.nftables import intervals, messages
from linux.nftables.connection import Connection
from linux.nftables.expressions import Family

_ADDRESS = {4: 7, 6: 8}
_PROTOCOL_TYPE, _PORT_TYPE = 12, messages.TYPE_PORT
_PER_MESSAGE = 400
_FOREIGN = "another type"
# Older kernels do not say how many members a set has: there may be many.
_UNCOUNTED = b"\xff\xff\xff"
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}


@dataclass(slots=True)
class _Known:
    """What is remembered of a set."""

    family: Family
    type: str
    ranges: intervals.Intervals | None = None
    count: int = 0


class NamedSets(Closing):
    """The sets of the tables called `table`. Blocking, quick.

    `prefixes`: which families there are, and how names of sets of each begin. `naming`: from a
    name to what the kernel calls it, and back.
    """

    def __init__(
        self,
        prefixes: dict[Family, str],
        table: str,
        naming: tuple[Callable[[str], str], Callable[[str], str]] = (str, str),
    ) -> None:
        self.table = table
        self._inward, self._outward = naming
        self._prefixes = prefixes
        self._connection = Connection()
        self._known: dict[str, _Known] = {}

    @property
    def port(self) -> int:
        """What the kernel calls our socket: changes that come from it are ours."""
        return self._connection.port

    def another(self) -> NamedSets:
        """The same sets by a connection of its own, for another thread."""
        other = NamedSets(self._prefixes, self.table, (self._inward, self._outward))
        # What one of them reads the other one knows; a set is in one thread's hands at a time.
        other._known = self._known
        return other

    def close(self) -> None:
        """Closes the connection; the sets stay."""
        self._connection.close()

    def create(
        self, name: str, type: SetType, family: Literal[4, 6], maxelem: int = 1 << 20
    ) -> bool:
        """Makes a set; False if an equal one exists. Raises `KernelError`.

        EEXIST: a set of that name has another type; destroy it first. No limit is given to the
        kernel: it would reserve the room.
        """
        key_type, key_length = _key(type, family)
        new_set = messages.new_set(
            family,
            self.table,
            self._inward(name),
            key_type=key_type,
            key_length=key_length,
            flags=messages.INTERVAL if type == "hash:net" else 0,
            exclusive=True,
        )
        requests = [messages.new_table(family, self.table), new_set]
        self._known.pop(name, None)
        try:
            self._connection.commit(requests, [f"make table {self.table}", f"create set {name}"])
        except KernelError as error:
            there = self.info(name) if error.errno == errno.EEXIST else None
            if there is None or there.type != type:
                raise
            return False
        ranges = intervals.Intervals(family) if type == "hash:net" else None
        self._known[name] = _Known(family, type, ranges)
        return True

    def destroy(self, name: str) -> None:
        """Removes a set; fine if it is gone. Raises `KernelError` (EBUSY: a rule uses it)."""
        request = messages.delete_set(self._family(name), self.table, self._inward(name))
        try:
            self._connection.commit([request], [f"destroy set {name}"])
        except KernelError as error:
            if error.errno != errno.ENOENT:
                raise
        self._known.pop(name, None)

    def swap(self, one: str, other: str) -> None:
        """Sets of ours have no size for which one would have to be built anew."""
        raise KernelError(errno.EOPNOTSUPP, f"swap sets {one} and {other}")

    def names(self) -> list[str]:
        """The names of all named sets of ours, maps excluded."""
        set_names: list[str] = []
        for family, prefix in self._prefixes.items():
            try:
                listed = self._connection.objects(messages.GETSET, family, self.table)
            except KernelError as error:
                if error.errno != errno.ENOENT:
                    raise
                continue
            for attributes in listed:
                name = self._outward(m.as_text(attributes[messages.SET_NAME]))
                flags = int.from_bytes(attributes.get(messages.SET_FLAGS, b""), "big")
                if name.startswith(prefix) and not flags & (messages.MAP | messages.ANONYMOUS):
                    set_names.append(name)
                    self._learn(name, family, attributes)
        return set_names

    def _learn(self, name: str, family: Family, attributes: m.Attributes) -> None:
        key_type = int.from_bytes(attributes.get(messages.SET_KEY_TYPE, b""), "big")
        flags = int.from_bytes(attributes.get(messages.SET_FLAGS, b""), "big")
        kind = _kind(key_type, flags, family) or _FOREIGN
        before = self._known.get(name)
        if before is not None and before.type == kind:
            return
        ranges = intervals.Intervals(family) if kind == "hash:net" else None
        count = attributes.get(messages.SET_COUNT, _UNCOUNTED)
        self._known[name] = _Known(family, kind, ranges, int.from_bytes(count, "big"))

    def info(self, name: str) -> SetInfo | None:
        """What there is of this name, None if there is none; `maxelem` 0: no limit."""
        known = self._known.get(name)
        if known is None:
            self.names()
            known = self._known.get(name)
        if known is None:
            return None
        return SetInfo(name, known.type, known.family, 0, 0, known.count)

    def members(self, name: str) -> set[str]:
        """All members in canonical spelling. Raises `KernelError` (ENOENT)."""
        known = self._get(name)
        if known.type == _FOREIGN:
            return set()
        elements = self._connection.elements(known.family, self.table, self._inward(name))
        if known.ranges is None:
            decoded = {_decode(_key_of(each), known) for each in elements}
            known.count = len(decoded)
            return decoded
        ranges = _pairs(elements, known.family)
        # A range that was removed covers nothing; a member that still lies in a range is present.
        covered = [each for each in known.ranges.covered() if _lies_in(each, ranges)]
        known.ranges = intervals.Intervals(known.family)
        known.ranges.add(ranges)
        known.ranges.add(covered)
        known.count = len(ranges)
        return {intervals.render(each, known.family) for each in (*ranges, *covered)}

    def add(self, name: str, members: Iterable[str]) -> None:
        """Adds members, those already present are fine. Raises `KernelError`."""
        self._change(name, members, adding=True)

    def delete(self, name: str, members: Iterable[str]) -> None:
        """Deletes members that are there. Raises `KernelError`."""
        self._change(name, members, adding=False)

    def _change(self, name: str, members: Iterable[str], *, adding: bool) -> None:
        known = self._get(name)
        going: Collection[bytes]
        coming: Collection[bytes]
        if known.ranges is None:
            packed = [messages.element(_encode(each, known)) for each in members]
            going, coming = ([], packed) if adding else (packed, [])
            difference = len(coming) - len(going)
        else:
            parsed = [_parse(each, known.family, name) for each in members]
            work = known.ranges.add if adding else known.ranges.remove
            old, new = work(parsed)
            difference = len(new) - len(old)
            going, coming = _bounds(old, known.family), _bounds(new, known.family)
        requests = [
            messages.change_elements(kind, known.family, self.table, self._inward(name), part)
            for kind, elements in ((messages.DELSETELEM, going), (messages.NEWSETELEM, coming))
            for part in _parts(elements)
        ]
        try:
            self._connection.commit(requests, [f"change set {name}"] * len(requests))
        except KernelError:
            self._undo(known, name)
            raise
        known.count += difference

    def _undo(self, known: _Known, name: str) -> None:
        """The memory is not what the kernel has: the next reading makes it so."""
        if known.ranges is not None:
            known.ranges = intervals.Intervals(known.family)
        try:
            self.members(name)
        except KernelError:
            pass

    def _family(self, name: str) -> Family:
        for family, prefix in self._prefixes.items():
            if name.startswith(prefix):
                return family
        raise KernelError(errno.ENOENT, f"look up set {name}", "not ours by its name")

    def _get(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            self.names()
            known = self._known.get(name)
        if known is None:
            raise KernelError(errno.ENOENT, f"look up set {name}")
        return known


def _key(type: SetType, family: Family) -> tuple[int, int]:
    length = 4 if family == 4 else 16
    if type == "hash:ip,port":
        return _ADDRESS[family] << 12 | _PROTOCOL_TYPE << 6 | _PORT_TYPE, length + 8
    return _ADDRESS[family], length


def _kind(key_type: int, flags: int, family: Family) -> SetType | None:
    if flags & ~messages.INTERVAL:
        return None
    if key_type == _ADDRESS[family]:
        return "hash:net" if flags else "hash:ip"
    if key_type == _key("hash:ip,port", family)[0] and not flags:
        return "hash:ip,port"
    return None


def _parse(member: str, family: Family, name: str) -> intervals.Range:
    try:
        return intervals.parse(member, family)
    except ValueError as error:
        raise KernelError(errno.EINVAL, f"change set {name}", str(error)) from error


def _encode(member: str, known: _Known) -> bytes:
    number = AF_INET if known.family == 4 else AF_INET6
    address, comma, rest = member.partition(",")
    try:
        key = inet_pton(number, address)
        if not comma:
            return key
        protocol, _, port = rest.partition(":")
        which = _PROTOCOLS.get(protocol)
        which = int(protocol) if which is None else which
        return key + struct.pack(">B3xH2x", which, int(port))
    except (OSError, ValueError, struct.error) as error:
        raise KernelError(errno.EINVAL, "change set", f"{member!r} is malformed") from error


def _decode(key: bytes, known: _Known) -> str:
    number, length = (AF_INET, 4) if known.family == 4 else (AF_INET6, 16)
    address = inet_ntop(number, key[:length])
    if known.type != "hash:ip,port":
        return address
    protocol, port = struct.unpack_from(">B3xH", key, length)
    return f"{address},{_PROTOCOL_NAMES.get(protocol, str(protocol))}:{port}"


def _key_of(element: m.Attributes) -> bytes:
    return m.parse_attributes(element[messages.ELEMENT_KEY])[1]


def _bounds(ranges: Iterable[intervals.Range], family: Family) -> list[bytes]:
    """Start and end of each range, as the kernel keeps them."""
    octets = 4 if family == 4 else 16
    most = (1 << 8 * octets) - 1
    bounds = []
    for first, last in sorted(ranges):
        bounds.append(messages.element(first.to_bytes(octets, "big")))
        if last < most:
            bounds.append(messages.element((last + 1).to_bytes(octets, "big"), end=True))
    return bounds


def _pairs(elements: Iterable[m.Attributes], family: Family) -> list[intervals.Range]:
    bounds = sorted(
        (
            int.from_bytes(_key_of(each), "big"),
            not int.from_bytes(each.get(messages.ELEMENT_FLAGS, b""), "big")
            & messages.INTERVAL_END,
        )
        for each in elements
    )
    ranges: list[intervals.Range] = []
    first: int | None = None
    for key, starts in bounds:
        if not starts:
            if first is not None:
                ranges.append((first, key - 1))
            first = None
        else:
            first = key
    if first is not None:
        ranges.append((first, (1 << (32 if family == 4 else 128)) - 1))
    return ranges


def _lies_in(member: intervals.Range, ranges: list[intervals.Range]) -> bool:
    at = bisect_right(ranges, (member[0], 1 << 128)) - 1
    return at >= 0 and ranges[at][0] <= member[0] and member[1] <= ranges[at][1]


def _parts(elements: Collection[bytes]) -> Iterable[list[bytes]]:
    listed = list(elements)
    return (listed[n : n + _PER_MESSAGE] for n in range(0, len(listed), _PER_MESSAGE))
