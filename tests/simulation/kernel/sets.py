"""IP sets of the simulated kernel, by nfnetlink (linux/netfilter/ipset/ip_set.h)."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network

from linux.netlink import wire as m
from tests.simulation.kernel.state import Refused

_SUBSYSTEM = 6
_CREATE, _DESTROY, _SWAP, _LIST, _ADD, _DEL, _TYPE = 2, 3, 6, 7, 9, 10, 13
_NAME, _TYPENAME, _REVISION, _FAMILY, _FLAGS, _DATA, _ADT = 2, 3, 4, 5, 6, 7, 8
_MAXELEM, _ELEMENTS, _REFERENCES = 19, 24, 25
_IP, _CIDR, _PORT, _PROTO = 1, 3, 4, 7
_LIST_NAMES, _LIST_HEADER = 2, 4
_MISSING_IP, _BUSY, _SWAP_TYPES, _FULL, _NOT_THERE = 4110, 4100, 4102, 4352, 4103
_REVISIONS = {"hash:net": 7, "hash:ip,port": 7, "hash:ip": 6}
_BIG = m.NLA_F_NET_BYTEORDER
Member = tuple[int, int, int, int]
"""Address, prefix length, protocol, port."""


class Fault(Refused):
    """A code of ipset's own."""

    def __init__(self, number: int) -> None:
        Exception.__init__(self, str(number))
        self.number = number


@dataclass
class Set:
    """One set. `references`: rules that name it."""

    name: str
    type: str
    maxelem: int
    members: dict[Member, None] = field(default_factory=dict)

    def has(self, address: str) -> bool:
        """Whether a host is in a set of networks."""
        ip = IPv4Address(address)
        return any(ip in IPv4Network((value, length)) for value, length, _, _ in self.members)

    def shown(self) -> list[str]:
        """The members as `linux.ipset` spells them."""
        found = []
        for value, length, protocol, port in self.members:
            text = str(IPv4Address(value)) + (f"/{length}" if length != 32 else "")
            found.append(text + (f",{protocol}:{port}" if "port" in self.type else ""))
        return sorted(found)


@dataclass
class Sets:
    """All sets; `used` says how many rules name one."""

    found: dict[str, Set] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    failing: int = 0

    def answer(self, kind: int, flags: int, body: bytes) -> list[tuple[int, bytes]]:
        """What comes of a request. Raises `Refused`."""
        if kind >> 8 != _SUBSYSTEM:
            # Flows: there are none. Tables of nf_tables: this kernel has none.
            raise Refused(errno.ENOENT if kind >> 8 == 1 else errno.EINVAL)
        found = m.parse_attributes(body, 4)
        name = m.as_text(found.get(_NAME, b""))
        command = kind & 0xFF
        if command == _TYPE:
            typename = m.as_text(found[_TYPENAME])
            reply = bytes(4) + m.u8(1, 6) + m.text(_TYPENAME, typename)
            reply += m.u8(_REVISION, _REVISIONS[typename]) + m.u8(_FAMILY, 2) + m.u8(10, 0)
            return [(kind, reply)]
        if command == _LIST:
            return self._list(kind, name, found)
        if command in (_CREATE, _DESTROY, _SWAP, _ADD, _DEL):
            if self.failing:
                self.failing -= 1
                raise Refused(errno.ENOMEM)
            self.writes += 1
        match command:
            case 2:
                self._create(name, found)
            case 3:
                self._destroy(name)
            case 6:
                self._swap(name, m.as_text(found[_TYPENAME]))
            case 9 | 10:
                self._change(command, name, found)
            case _:
                raise Refused(errno.EOPNOTSUPP)
        return []

    def _get(self, name: str) -> Set:
        if name not in self.found:
            raise Refused(errno.ENOENT)
        return self.found[name]

    def _create(self, name: str, found: m.Attributes) -> None:
        if name in self.found:
            raise Refused(errno.EEXIST)
        size = int.from_bytes(m.parse_attributes(found[_DATA])[_MAXELEM], "big")
        self.found[name] = Set(name, m.as_text(found[_TYPENAME]), size)

    def _destroy(self, name: str) -> None:
        self._get(name)
        if self.used.get(name):
            raise Fault(_BUSY)
        del self.found[name]

    def _swap(self, one: str, other: str) -> None:
        if one not in self.found:
            raise Refused(errno.ENOENT)
        if other not in self.found:
            raise Fault(4101)
        first, second = self.found[one], self.found[other]
        if first.type != second.type:
            raise Fault(_SWAP_TYPES)
        self.found[one], self.found[other] = second, first
        first.name, second.name = other, one

    def _change(self, command: int, name: str, found: m.Attributes) -> None:
        held = self._get(name)
        for _, data in m.iterate_attributes(found[_ADT]):
            member = _member(m.parse_attributes(data), held.type)
            if command == _DEL:
                held.members.pop(member, None)
            elif member not in held.members:
                if len(held.members) >= held.maxelem:
                    raise Fault(_FULL)
                held.members[member] = None

    def _list(self, kind: int, name: str, found: m.Attributes) -> list[tuple[int, bytes]]:
        flags = int.from_bytes(found.get(_FLAGS, b""), "big")
        if flags & _LIST_NAMES and not name:
            return [(kind, bytes(4) + m.text(_NAME, each)) for each in self.found]
        held = self._get(name)
        reply = bytes(4) + m.text(_NAME, name) + m.text(_TYPENAME, held.type)
        reply += m.u8(_FAMILY, 2) + m.u8(_REVISION, _REVISIONS[held.type])
        header = m.attribute(_MAXELEM | _BIG, held.maxelem.to_bytes(4, "big"))
        header += m.attribute(_ELEMENTS | _BIG, len(held.members).to_bytes(4, "big"))
        header += m.attribute(_REFERENCES | _BIG, self.used.get(name, 0).to_bytes(4, "big"))
        reply += m.nest(_DATA, header)
        if not flags & _LIST_HEADER:
            parts = [m.nest(_DATA, _shown(member, held.type)) for member in held.members]
            reply += m.nest(_ADT, *parts)
        return [(kind, reply)]


def _member(data: m.Attributes, kind: str) -> Member:
    packed = m.parse_attributes(data[_IP]).get(1)
    if packed is None:
        raise Fault(_MISSING_IP)
    value = int.from_bytes(packed, "big")
    length = data[_CIDR][0] if _CIDR in data else 32
    if kind == "hash:ip,port":
        if _PORT not in data:
            raise Refused(errno.EINVAL)
        return value, 32, data[_PROTO][0], int.from_bytes(data[_PORT], "big")
    if _PORT in data:
        raise Refused(errno.EINVAL)
    return value, length, 0, 0


def _shown(member: Member, kind: str) -> bytes:
    value, length, protocol, port = member
    data = m.nest(_IP, m.attribute(1 | _BIG, value.to_bytes(4, "big")))
    if kind == "hash:net":
        data += m.u8(_CIDR, length)
    if "port" in kind:
        data += m.attribute(_PORT | _BIG, port.to_bytes(2, "big")) + m.u8(_PROTO, protocol)
    return data
