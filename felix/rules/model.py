"""Rules as data: what is matched, what is done, in which chain.

The problem: the same policy must reach two back ends (iptables text, native nftables) and
must be explained to people. So every decision ends in these values, and a back end is only
a renderer of them (wall 4 of the architecture).

Invariants:
  RUL-1  A rule says everything about itself: no condition depends on the order in which the
         conditions of one rule are written.
  RUL-2  Marks are bits of one allocation (`Marks`); no rule writes a bit outside its mask.
Tested in tests/felix/rules/test_rules.py (text and hashes against a recording of Calico's).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network

IPNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Protocol:
    """The transport protocol, by number; `named` asks for its name in the text.

    Calico spells a user's protocols by name and its own by number; hashes cover the spelling.
    """

    number: int
    negated: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True)
class InInterface:
    """The interface a packet came in by; a trailing `+` matches every name with the prefix."""

    name: str


@dataclass(frozen=True, slots=True)
class OutInterface:
    """The interface a packet leaves by; a trailing `+` as in `InInterface`."""

    name: str


class Side(Enum):
    """Which end of a packet."""

    SOURCE = "src"
    DESTINATION = "dst"


@dataclass(frozen=True, slots=True)
class Net:
    """The address of one side lies in a network."""

    side: Side
    net: IPNetwork
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InSet:
    """The address (or address and port, as the set's type says) of one side is in an ipset."""

    side: Side
    name: str
    negated: bool = False
    ports: bool = False


@dataclass(frozen=True, slots=True)
class Ports:
    """The port of one side is one of `ranges` (first, last), at most 15 slots."""

    side: Side
    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Icmp:
    """ICMP of the table's family, by type and perhaps code."""

    version: int
    type: int
    code: int | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Bits of the packet mark: `(mark & mask) == value`."""

    value: int
    mask: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Conntrack:
    """The connection's state is one of `states`."""

    states: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class ReversePathFails:
    """A packet to its source would not leave by the interface it came in by."""


@dataclass(frozen=True, slots=True)
class AddressType:
    """The kernel's type of one side's address, such as `LOCAL`.

    `limit_out`: as the interface sees it that the packet leaves by.
    """

    side: Side
    type: str
    negated: bool = False
    limit_out: bool = False


@dataclass(frozen=True, slots=True)
class Syn:
    """A TCP packet that asks for a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionsAbove:
    """More connections than `count` live of those that came to this rule."""

    count: int


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `rate` packets each `per` (second, minute, hour, day) after a first `burst`."""

    rate: int
    per: str
    burst: int


Condition = (
    Protocol
    | InInterface
    | OutInterface
    | Net
    | InSet
    | Ports
    | Icmp
    | Mark
    | Conntrack
    | ReversePathFails
    | AddressType
    | Limit
    | Syn
    | ConnectionsAbove
)


@dataclass(frozen=True, slots=True)
class Accept:
    """Let the packet pass this table."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop in silence."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Drop and tell the sender."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop and end the sender's TCP connection."""


@dataclass(frozen=True, slots=True)
class SetDscp:
    """Write the differentiated services code point (0 to 63) into the packet."""

    value: int


@dataclass(frozen=True, slots=True)
class Return:
    """Go on after the rule that jumped here."""


@dataclass(frozen=True, slots=True)
class Jump:
    """Walk a chain and come back."""

    chain: str


@dataclass(frozen=True, slots=True)
class Goto:
    """Walk a chain; its end is this chain's end."""

    chain: str


@dataclass(frozen=True, slots=True)
class SetMark:
    """Replace the bits of `mask` by `value`."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class NoTrack:
    """No connection tracking for this packet."""


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Source address of the outgoing interface; `ports` as first, last."""

    ports: tuple[int, int] | None = None
    random_fully: bool = True


@dataclass(frozen=True, slots=True)
class SourceNat:
    """A fixed source address."""

    address: str
    ports: tuple[int, int] | None = None
    random_fully: bool = True


@dataclass(frozen=True, slots=True)
class DestinationNat:
    """A fixed destination address."""

    address: str


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the kernel's log and go on; `level` as syslog counts (5: notice)."""

    prefix: str
    level: int = 5


@dataclass(frozen=True, slots=True)
class Nflog:
    """Hand the packet's first `size` bytes to the readers of an NFLOG group and go on."""

    group: int
    prefix: str
    size: int = 80


@dataclass(frozen=True, slots=True)
class Nothing:
    """Count and go on: the rule stands for its comment."""


Action = (
    Accept
    | Drop
    | Reject
    | Reset
    | SetDscp
    | Return
    | Jump
    | Goto
    | SetMark
    | NoTrack
    | Masquerade
    | SourceNat
    | DestinationNat
    | Log
    | Nflog
    | Nothing
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done (`action`) with packets for which every condition of `match` holds."""

    action: Action
    match: tuple[Condition, ...] = ()
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of ours. `unordered`: its rules exclude each other, so a new one may stand anywhere.

    `closed`: but for the last one, which takes what the others leave.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    unordered: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class TableModel:
    """One table: our chains, and our rules at the head or the tail of the kernel's chains."""

    name: str
    chains: tuple[Chain, ...]
    inserts: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    appends: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Marks:
    """The meaning of each mark bit (RUL-2; the reference's order, lowest bit first)."""

    accept: int
    passed: int
    drop: int
    scratch0: int
    scratch1: int
    served: int = 0
    sender: int = 0

    @property
    def all(self) -> int:
        """The mark bits that a packet loses on its way in: all that our chains set."""
        return self.accept | self.passed | self.scratch0 | self.scratch1

    @classmethod
    def allocate(cls, mask: int) -> Marks:
        """Take the lowest bits of `mask`. Raises `ValueError` if it has fewer than five.

        The last two are for ipvs alone (felix.rules.ipvs); without them they are 0.
        """
        bits = [1 << n for n in range(32) if mask >> n & 1]
        if len(bits) < 5:
            raise ValueError(f"mark mask {mask:#x} has {len(bits)} bits: at least 5 are needed")
        return cls(*bits[:7] if len(bits) > 6 else bits[:5])


@lru_cache(maxsize=64)
def is_set(bits: int) -> Mark:
    """All of these mark bits are set."""
    return Mark(bits, bits)


@lru_cache(maxsize=64)
def is_clear(bits: int) -> Mark:
    """None of these mark bits is set."""
    return Mark(0, bits)


@lru_cache(maxsize=64)
def set_bits(bits: int) -> SetMark:
    """Set these mark bits, leave the others."""
    return SetMark(bits, bits)


@lru_cache(maxsize=64)
def clear_bits(bits: int) -> SetMark:
    """Clear these mark bits, leave the others."""
    return SetMark(0, bits)
