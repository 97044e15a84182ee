"""What a native rule does: verdicts, marks, logs and translation, packed as expressions.

NFE-1 holds for these as for the matches (linux/nftables/expressions.py).
Tested in tests/linux/test_nftables_expressions.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from linux.netlink import wire as m
from linux.nftables.expressions import (
    FAMILIES,
    META_MARK,
    NETWORK,
    REGISTER,
    VERDICT_REGISTER,
    Family,
    be16,
    be32,
    expression,
    masked,
    meta,
    value,
)

DROP, ACCEPT, JUMP, GOTO, RETURN = 0, 1, -3, -4, -5
_VERDICT = 2
_REJECT_RESET = 1
_RANGE_PORTS, _RANGE_RANDOM_FULLY, _RANGE_ADDRESS = 2, 16, 1


def verdict_data(kind: int, code: int, chain: str = "") -> bytes:
    """An attribute that holds a verdict, for rules and for maps."""
    return m.nest(kind, m.nest(_VERDICT, be32(1, code), m.text(2, chain) if chain else b""))


def counter() -> bytes:
    """Count packets and bytes that come so far."""
    return expression("counter")


def verdict(code: int, chain: str = "") -> bytes:
    """End, or go on in a chain."""
    return expression("immediate", be32(1, VERDICT_REGISTER), verdict_data(2, code, chain))


def set_mark(value: int, mask: int) -> bytes:
    """Replace the bits of `mask` by `value`."""
    native = struct.Struct("=I").pack
    change = masked(native(~mask & 0xFFFFFFFF), native(value))
    return meta(META_MARK) + change + expression("meta", be32(2, META_MARK), be32(3, REGISTER))


def notrack() -> bytes:
    """No connection tracking."""
    return expression("notrack")


def reject(family: Family) -> bytes:
    """Drop and tell the sender that the port is unreachable."""
    code = 3 if family == 4 else 4
    return expression("reject", be32(1, 0), m.u8(2, code))


def reset() -> bytes:
    """Drop and end the sender's TCP connection."""
    return expression("reject", be32(1, _REJECT_RESET), m.u8(2, 0))


def set_dscp(family: Family, number: int) -> bytes:
    """Write the DSCP: the upper six bits of IPv4's second byte, or of IPv6's traffic class.

    Both lie in the first two bytes, which are written at once: the kernel works out the change of
    IPv4's checksum from whole words.
    """
    shift = 2 if family == 4 else 6
    kept = struct.pack(">H", ~(63 << shift) & 0xFFFF)
    words = be32(1, REGISTER), be32(2, NETWORK), be32(3, 0), be32(4, 2)
    checksum = (be32(6, 1), be32(7, 10)) if family == 4 else (be32(6, 0), be32(7, 0))
    return (
        expression("payload", *words)
        + masked(kept, struct.pack(">H", number << shift))
        + expression("payload", be32(5, REGISTER), *words[1:], *checksum, be32(8, 0))
    )


def log(prefix: str, level: int) -> bytes:
    """A line in the kernel's log."""
    return expression("log", m.text(2, prefix), be32(5, level))


def log_to_group(prefix: str, group: int, size: int) -> bytes:
    """The packet, up to `size` bytes of it, to those who listen to an NFLOG group."""
    size_of = be32(3, size) if size else b""
    return expression("log", be16(1, group), m.text(2, prefix), size_of)


def masquerade(port_range: tuple[int, int] | None, random_fully: bool) -> bytes:
    """Source address of the outgoing interface."""
    loads, registers = _port_registers(port_range, 1, 2, 3)
    return loads + expression("masq", be32(1, _flags(port_range, random_fully)), *registers)


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
        + expression(
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
    return expression("immediate", be32(1, register), value(2, data))


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
