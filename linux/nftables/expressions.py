"""What a native rule matches: the kernel's small expressions over registers, packed.

Each function gives the bytes of one expression, ready to stand in a rule (linux/netfilter/
nf_tables.h). A match loads something into register 1 and compares it; where it does not hold, or
where the packet has no such field, the rule ends and the next one is asked.

NFE-1: `nft list` reads each of them back as what was asked for.
Tested in tests/linux/test_nftables_expressions.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Literal

from linux.netlink import wire as m
from linux.nftables.port_sets import Part, PortSet, merged

_LIST_ELEM = 1
_NAME, _DATA = 1, 2
_VALUE = 1
REGISTER, VERDICT_REGISTER = 1, 0
_FIRST_WORD = 8  # NFT_REG32_00: the words of register 1 and the following
_EQ, _NEQ = 0, 1
NETWORK, TRANSPORT = 1, 2
META_MARK, _IIFNAME, _OIFNAME, _L4PROTO = 3, 6, 7, 16
_CT_STATE, _CT_STATUS = 0, 2
CT_STATES = {"INVALID": 1, "ESTABLISHED": 2, "RELATED": 4, "NEW": 8, "UNTRACKED": 64}
CT_SNAT, CT_DNAT = 16, 32
_FIB_SADDR, _FIB_DADDR, _FIB_MARK, _FIB_IIF, _FIB_OIF = 1, 2, 4, 8, 16
_FIB_RESULT_OIF, _FIB_RESULT_TYPE = 1, 3
ADDRESS_TYPES = {"UNICAST": 1, "LOCAL": 2, "BROADCAST": 3, "ANYCAST": 4, "MULTICAST": 5}
_IFNAMSIZ = 16
_TCP_FLAGS = 13
_CONNLIMIT_INVERTED = 1
SECONDS = {"second": 1, "sec": 1, "minute": 60, "hour": 3600, "day": 86400}

Family = Literal[4, 6]
TableFamily = Literal[4, 6, "arp"]
FAMILIES: dict[TableFamily, int] = {4: 2, 6: 10, "arp": 3}
"""What the kernel calls a family."""


def be16(kind: int, value: int) -> bytes:
    """An attribute with 16 bits in network order."""
    return m.attribute(kind, struct.pack(">H", value))


def be32(kind: int, value: int) -> bytes:
    """An attribute with 32 bits in network order."""
    return m.attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def be64(kind: int, value: int) -> bytes:
    """An attribute with 64 bits in network order."""
    return m.attribute(kind, struct.pack(">Q", value))


def expression(name: str, *attributes: bytes) -> bytes:
    """One expression of this kind."""
    return m.nest(_LIST_ELEM, m.text(_NAME, name), m.nest(_DATA, *attributes))


def value(kind: int, data: bytes) -> bytes:
    """An attribute that holds a value."""
    return m.nest(kind, m.attribute(_VALUE, data))


def meta(key: int, register: int = REGISTER) -> bytes:
    """Load a property of the packet."""
    return expression("meta", be32(2, key), be32(1, register))


def _payload(base: int, offset: int, length: int, register: int = REGISTER) -> bytes:
    return expression("payload", be32(1, register), be32(2, base), be32(3, offset), be32(4, length))


def _compare(data: bytes, negated: bool = False) -> bytes:
    op = _NEQ if negated else _EQ
    return expression("cmp", be32(1, REGISTER), be32(2, op), value(3, data))


def masked(mask: bytes, xor: bytes = b"") -> bytes:
    """Register 1 becomes `(register & mask) ^ xor`."""
    return expression(
        "bitwise",
        be32(1, REGISTER),
        be32(2, REGISTER),
        be32(3, len(mask)),
        value(4, mask),
        value(5, xor or bytes(len(mask))),
    )


def protocol(number: int, negated: bool = False) -> bytes:
    """The transport protocol."""
    return meta(_L4PROTO) + _compare(bytes((number,)), negated)


def interface(name: str, *, incoming: bool) -> bytes:
    """The name of an interface; a trailing `+` matches every name with the prefix."""
    if name.endswith("+"):
        data = name[:-1].encode()
        if not data:
            return b""
    else:
        # The kernel has no name as long as that: it never matches.
        data = name.encode()[:_IFNAMSIZ].ljust(_IFNAMSIZ, b"\0")
    return meta(_IIFNAME if incoming else _OIFNAME) + _compare(data)


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
    return _payload(NETWORK, offset, length) + masked(mask) + _compare(address, negated)


def in_set(family: Family, source: bool, name: str, *, ports: bool, negated: bool) -> bytes:
    """One side's address, or address, protocol and port, is an element of a named set."""
    offset, length = _address_place(family, source)
    parts = [_payload(NETWORK, offset, length)]
    if ports:
        word = _FIRST_WORD + length // 4
        parts.append(meta(_L4PROTO, word))
        parts.append(_payload(TRANSPORT, 0 if source else 2, 2, word + 1))
    return b"".join((*parts, lookup(name, negated=negated)))


def lookup(name: str, *, negated: bool = False) -> bytes:
    """Whether register 1 is in a set."""
    return expression(
        "lookup",
        be32(2, REGISTER),
        m.text(1, name),
        be32(5, 1) if negated else b"",
    )


def interface_map(name: str, *, incoming: bool) -> bytes:
    """Do what a verdict map says of the interface; without an element the rule ends."""
    return meta(_IIFNAME if incoming else _OIFNAME) + expression(
        "lookup", be32(2, REGISTER), be32(3, VERDICT_REGISTER), m.text(1, name)
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
    within = expression(
        "range",
        be32(1, REGISTER),
        be32(2, op),
        value(3, struct.pack(">H", first)),
        value(4, struct.pack(">H", last)),
    )
    return [load + within]


def icmp(kind: int, code: int | None, negated: bool = False) -> bytes:
    """Type, or type and code, of a message; asks for the protocol beside it."""
    data = bytes((kind,)) if code is None else bytes((kind, code))
    return _payload(TRANSPORT, 0, len(data)) + _compare(data, negated)


def mark(value: int, mask: int, negated: bool = False) -> bytes:
    """`(mark & mask) == value`."""
    native = struct.Struct("=I").pack
    return meta(META_MARK) + masked(native(mask)) + _compare(native(value), negated)


def conntrack_state(states: Iterable[str], negated: bool = False) -> bytes:
    """The connection's state is one of these."""
    bits = sum(CT_STATES[state] for state in set(states))
    return _conntrack_bits(_CT_STATE, bits, negated)


def conntrack_status(bits: int, negated: bool = False) -> bytes:
    """The connection has one of these status bits; never holds where there is no connection."""
    return _conntrack_bits(_CT_STATUS, bits, negated)


def _conntrack_bits(key: int, bits: int, negated: bool) -> bytes:
    load = expression("ct", be32(1, REGISTER), be32(2, key))
    some = not negated
    return load + masked(struct.pack("=I", bits)) + _compare(bytes(4), some)


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
    return expression("fib", be32(3, flags), be32(2, result), be32(1, REGISTER))


def limit(rate: int, per: str, burst: int) -> bytes:
    """At most `rate` packets each `per` get past, after a first `burst`."""
    seconds = SECONDS[per]
    return expression(
        "limit", be64(1, rate), be64(2, seconds), be32(3, burst), be32(4, 0), be32(5, 0)
    )


def syn() -> bytes:
    """A TCP packet that asks for a connection: SYN alone of FIN, SYN, RST and ACK."""
    flags = _payload(TRANSPORT, _TCP_FLAGS, 1)
    return flags + masked(bytes((0b10111,))) + _compare(bytes((0b10,)))


def connections_above(count: int) -> bytes:
    """More connections than this live, of those that this rule was asked about."""
    return expression("connlimit", be32(1, count), be32(2, _CONNLIMIT_INVERTED))
