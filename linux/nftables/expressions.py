"""What a native rule consists of: the kernel's small expressions over registers, packed.

Each function gives the bytes of one expression, ready to stand in a rule (linux/netfilter/
nf_tables.h). A match loads something into register 1 and compares it; where it does not hold, or
where the packet has no such field, the rule ends and the next one is asked.

NFE-1: `nft list` reads each of them back as what was asked for.
Tested in tests/linux/test_nftables_expressions.py.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from linux.netlink import wire as m

_LIST_ELEM = 1
_NAME, _DATA = 1, 2
_VALUE, _VERDICT = 1, 2
_REGISTER, _VERDICT_REGISTER = 1, 0
_FIRST_WORD = 8  # NFT_REG32_00: the words of register 1 and the following
_EQ, _NEQ = 0, 1
NETWORK, TRANSPORT = 1, 2
DROP, ACCEPT, JUMP, GOTO, RETURN = 0, 1, -3, -4, -5
_MARK, _IIFNAME, _OIFNAME, _L4PROTO = 3, 6, 7, 16
_CT_STATE, _CT_STATUS = 0, 2
CT_STATES = {"INVALID": 1, "ESTABLISHED": 2, "RELATED": 4, "NEW": 8, "UNTRACKED": 64}
CT_SNAT, CT_DNAT = 16, 32
_FIB_SADDR, _FIB_DADDR, _FIB_MARK, _FIB_IIF, _FIB_OIF = 1, 2, 4, 8, 16
_FIB_RESULT_OIF, _FIB_RESULT_TYPE = 1, 3
ADDRESS_TYPES = {"UNICAST": 1, "LOCAL": 2, "BROADCAST": 3, "ANYCAST": 4, "MULTICAST": 5}
_RANGE_PORTS, _RANGE_RANDOM_FULLY, _RANGE_ADDRESS = 2, 16, 1
_IFNAMSIZ = 16
PORT_SET_PREFIX = "ports-"
_LONGEST_PORTS = 40
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}

Family = Literal[4, 6]
TableFamily = Literal[4, 6, "arp"]
FAMILIES: dict[TableFamily, int] = {4: 2, 6: 10, "arp": 3}
"""What the kernel calls a family."""


@dataclass(frozen=True, slots=True)
class PortSet:
    """A lookup in a set of ports. `ranges` (first, last) are in order and do not touch."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False

    @property
    def name(self) -> str:
        """What the set is called, by what is in it: (80, 80), (90, 95) is ports-80_90-95."""
        text = "_".join(str(a) if a == b else f"{a}-{b}" for a, b in self.ranges)
        if len(text) > _LONGEST_PORTS:
            text = hashlib.sha256(text.encode()).hexdigest()[:_LONGEST_PORTS]
        return PORT_SET_PREFIX + text


Part = bytes | PortSet


def be16(kind: int, value: int) -> bytes:
    """An attribute with 16 bits in network order."""
    return m.attribute(kind, struct.pack(">H", value))


def be32(kind: int, value: int) -> bytes:
    """An attribute with 32 bits in network order."""
    return m.attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def be64(kind: int, value: int) -> bytes:
    """An attribute with 64 bits in network order."""
    return m.attribute(kind, struct.pack(">Q", value))


def _expression(name: str, *attributes: bytes) -> bytes:
    return m.nest(_LIST_ELEM, m.text(_NAME, name), m.nest(_DATA, *attributes))


def _value(kind: int, data: bytes) -> bytes:
    return m.nest(kind, m.attribute(_VALUE, data))


def verdict_data(kind: int, code: int, chain: str = "") -> bytes:
    """An attribute that holds a verdict, for rules and for maps."""
    return m.nest(kind, m.nest(_VERDICT, be32(1, code), m.text(2, chain) if chain else b""))


# -- loading and comparing -------------------------------------------------------------------------


def _meta(key: int, register: int = _REGISTER) -> bytes:
    return _expression("meta", be32(2, key), be32(1, register))


def _payload(base: int, offset: int, length: int, register: int = _REGISTER) -> bytes:
    return _expression(
        "payload", be32(1, register), be32(2, base), be32(3, offset), be32(4, length)
    )


def _compare(data: bytes, negated: bool = False) -> bytes:
    op = _NEQ if negated else _EQ
    return _expression("cmp", be32(1, _REGISTER), be32(2, op), _value(3, data))


def _masked(mask: bytes, xor: bytes = b"") -> bytes:
    return _expression(
        "bitwise",
        be32(1, _REGISTER),
        be32(2, _REGISTER),
        be32(3, len(mask)),
        _value(4, mask),
        _value(5, xor or bytes(len(mask))),
    )


def protocol(number: int, negated: bool = False) -> bytes:
    """The transport protocol."""
    return _meta(_L4PROTO) + _compare(bytes((number,)), negated)


def interface(name: str, *, incoming: bool) -> bytes:
    """The name of an interface; a trailing `+` matches every name with the prefix."""
    if name.endswith("+"):
        data = name[:-1].encode()
        if not data:
            return b""
    else:
        # The kernel has no name as long as that: it never matches.
        data = name.encode()[:_IFNAMSIZ].ljust(_IFNAMSIZ, b"\0")
    return _meta(_IIFNAME if incoming else _OIFNAME) + _compare(data)


def interface_key(name: str) -> bytes:
    """A name as a map holds it."""
    data = name.encode()
    if not 0 < len(data) < _IFNAMSIZ:
        raise ValueError(f"interface {name!r}: want 1 to 15 bytes")
    return data.ljust(_IFNAMSIZ, b"\0")


def _address_place(family: Family, source: bool) -> tuple[int, int]:
    """Offset and length of an address in its header."""
    if family == 4:
        return (12 if source else 16), 4
    return (8 if source else 24), 16


def network(
    family: Family, source: bool, address: bytes, prefix: int, negated: bool = False
) -> bytes:
    """One side's address lies in a network."""
    offset, length = _address_place(family, source)
    whole, rest = divmod(prefix, 8)
    if prefix and not rest:
        return _payload(NETWORK, offset, whole) + _compare(address[:whole], negated)
    mask = ((1 << 8 * length) - (1 << 8 * length - prefix)).to_bytes(length, "big")
    return _payload(NETWORK, offset, length) + _masked(mask) + _compare(address, negated)


def in_set(family: Family, source: bool, name: str, *, ports: bool, negated: bool) -> bytes:
    """One side's address, or address, protocol and port, is an element of a named set."""
    offset, length = _address_place(family, source)
    parts = [_payload(NETWORK, offset, length)]
    if ports:
        word = _FIRST_WORD + length // 4
        parts.append(_meta(_L4PROTO, word))
        parts.append(_payload(TRANSPORT, 0 if source else 2, 2, word + 1))
    return b"".join((*parts, lookup(name, negated=negated)))


def lookup(name: str, *, negated: bool = False) -> bytes:
    """Whether register 1 is in a set."""
    return _expression(
        "lookup",
        be32(2, _REGISTER),
        m.text(1, name),
        be32(5, 1) if negated else b"",
    )


def interface_map(name: str, *, incoming: bool) -> bytes:
    """Do what a verdict map says of the interface; without an element the rule ends."""
    return _meta(_IIFNAME if incoming else _OIFNAME) + _expression(
        "lookup", be32(2, _REGISTER), be32(3, _VERDICT_REGISTER), m.text(1, name)
    )


def ports(source: bool, ranges: Iterable[tuple[int, int]], negated: bool = False) -> list[Part]:
    """One side's port is in one of the ranges (first, last); asks for a protocol beside it."""
    load = _payload(TRANSPORT, 0 if source else 2, 2)
    disjoint = merged(ranges)
    if len(disjoint) > 1:
        return [load, PortSet(disjoint, negated)]
    first, last = disjoint[0]
    if first == last:
        return [load + _compare(struct.pack(">H", first), negated)]
    op = _NEQ if negated else _EQ
    within = _expression(
        "range",
        be32(1, _REGISTER),
        be32(2, op),
        _value(3, struct.pack(">H", first)),
        _value(4, struct.pack(">H", last)),
    )
    return [load + within]


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges in order, none touching the next."""
    disjoint: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if disjoint and first <= disjoint[-1][1] + 1:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], last))
        else:
            disjoint.append((first, last))
    return tuple(disjoint)


def icmp(kind: int, code: int | None, negated: bool = False) -> bytes:
    """Type, or type and code, of a message; asks for the protocol beside it."""
    data = bytes((kind,)) if code is None else bytes((kind, code))
    return _payload(TRANSPORT, 0, len(data)) + _compare(data, negated)


def mark(value: int, mask: int, negated: bool = False) -> bytes:
    """`(mark & mask) == value`."""
    native = struct.Struct("=I").pack
    return _meta(_MARK) + _masked(native(mask)) + _compare(native(value), negated)


def conntrack_state(states: Iterable[str], negated: bool = False) -> bytes:
    """The connection's state is one of these."""
    bits = sum(CT_STATES[state] for state in set(states))
    return _conntrack_bits(_CT_STATE, bits, negated)


def conntrack_status(bits: int, negated: bool = False) -> bytes:
    """The connection has one of these status bits; never holds where there is no connection."""
    return _conntrack_bits(_CT_STATUS, bits, negated)


def _conntrack_bits(key: int, bits: int, negated: bool) -> bytes:
    load = _expression("ct", be32(1, _REGISTER), be32(2, key))
    some = not negated
    return load + _masked(struct.pack("=I", bits)) + _compare(bytes(4), some)


def reverse_path_fails() -> bytes:
    """No route to the source, by the packet's mark, leaves by the interface it came in by."""
    flags = _FIB_SADDR | _FIB_MARK | _FIB_IIF
    return _fib(_FIB_RESULT_OIF, flags) + _compare(bytes(4))


def address_type(
    source: bool, kind: str, *, negated: bool = False, limit_out: bool = False
) -> bytes:
    """The kernel's type of an address; `limit_out`: as the outgoing interface sees it."""
    flags = (_FIB_SADDR if source else _FIB_DADDR) | (_FIB_OIF if limit_out else 0)
    number = struct.pack("=I", ADDRESS_TYPES[kind])
    return _fib(_FIB_RESULT_TYPE, flags) + _compare(number, negated)


def _fib(result: int, flags: int) -> bytes:
    return _expression("fib", be32(3, flags), be32(2, result), be32(1, _REGISTER))


def limit(rate: int, per: str, burst: int) -> bytes:
    """At most `rate` packets each `per` get past, after a first `burst`."""
    seconds = SECONDS[per]
    return _expression(
        "limit", be64(1, rate), be64(2, seconds), be32(3, burst), be32(4, 0), be32(5, 0)
    )


# -- doing -----------------------------------------------------------------------------------------


def counter() -> bytes:
    """Count packets and bytes that come so far."""
    return _expression("counter")


def verdict(code: int, chain: str = "") -> bytes:
    """End, or go on in a chain."""
    return _expression("immediate", be32(1, _VERDICT_REGISTER), verdict_data(2, code, chain))


def set_mark(value: int, mask: int) -> bytes:
    """Replace the bits of `mask` by `value`."""
    native = struct.Struct("=I").pack
    change = _masked(native(~mask & 0xFFFFFFFF), native(value))
    return _meta(_MARK) + change + _expression("meta", be32(2, _MARK), be32(3, _REGISTER))


def notrack() -> bytes:
    """No connection tracking."""
    return _expression("notrack")


def reject(family: Family) -> bytes:
    """Drop and tell the sender that the port is unreachable."""
    code = 3 if family == 4 else 4
    return _expression("reject", be32(1, 0), m.u8(2, code))


def log(prefix: str, level: int) -> bytes:
    """A line in the kernel's log."""
    return _expression("log", m.text(2, prefix), be32(5, level))


def log_to_group(prefix: str, group: int, size: int) -> bytes:
    """The packet, up to `size` bytes of it, to those who listen to an NFLOG group."""
    size_of = be32(3, size) if size else b""
    return _expression("log", be16(1, group), m.text(2, prefix), size_of)


def masquerade(port_range: tuple[int, int] | None, random_fully: bool) -> bytes:
    """Source address of the outgoing interface."""
    loads, registers = _port_registers(port_range, 1, 2, 3)
    return loads + _expression("masq", be32(1, _flags(port_range, random_fully)), *registers)


def translate(
    family: Family,
    source: bool,
    address: bytes,
    port_range: tuple[int, int] | None = None,
    random_fully: bool = False,
) -> bytes:
    """A fixed source or destination address."""
    loads, registers = _port_registers(port_range, 2, 5, 6)
    flags = _flags(port_range, random_fully)
    return (
        _load(1, address)
        + loads
        + _expression(
            "nat",
            be32(1, 0 if source else 1),
            be32(2, FAMILIES[family]),
            be32(3, 1),
            be32(4, 1),
            *registers,
            be32(7, flags | _RANGE_ADDRESS),
        )
    )


def _load(register: int, data: bytes) -> bytes:
    return _expression("immediate", be32(1, register), _value(2, data))


def _port_registers(
    port_range: tuple[int, int] | None, first: int, minimum: int, maximum: int
) -> tuple[bytes, Sequence[bytes]]:
    """Loads of a range into registers, and the attributes that name these."""
    if port_range is None:
        return b"", ()
    loads = b"".join(_load(first + n, struct.pack(">H", port)) for n, port in enumerate(port_range))
    return loads, (be32(minimum, first), be32(maximum, first + 1))


def _flags(port_range: tuple[int, int] | None, random_fully: bool) -> int:
    return (_RANGE_PORTS if port_range else 0) | (_RANGE_RANDOM_FULLY if random_fully else 0)
