"""A packet's walk through chains of the rule model, as the kernel walks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_network

from felix.rules.model import (
    Accept,
    Chain,
    Condition,
    Conntrack,
    Drop,
    Goto,
    Icmp,
    InInterface,
    InSet,
    Jump,
    Log,
    Mark,
    Net,
    Nothing,
    NoTrack,
    OutInterface,
    Ports,
    Protocol,
    Reject,
    Return,
    Rule,
    SetMark,
    Side,
)

IPAddress = IPv4Address | IPv6Address
ONE, TWO = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
PORTFUL = (6, 17, 33, 132, 136)
NAMES = {6: "tcp", 17: "udp", 132: "sctp", 136: "udplite"}


@dataclass(frozen=True)
class Packet:
    """What rules look at. Ports are 0 where the protocol has none."""

    source: IPAddress = ONE
    destination: IPAddress = TWO
    protocol: int = 6
    ports: tuple[int, int] = (40000, 80)
    icmp: tuple[int, int] = (8, 0)
    state: str = "NEW"
    came_by: str = "eth0"
    leaves_by: str = "eth0"

    @property
    def version(self) -> int:
        return self.source.version

    @property
    def is_icmp(self) -> bool:
        return self.protocol == (1 if self.version == 4 else 58)

    def address(self, side: Side) -> IPAddress:
        return self.source if side is Side.SOURCE else self.destination

    def port(self, side: Side) -> int:
        return self.ports[0 if side is Side.SOURCE else 1]


def in_set(members: Iterable[str], packet: Packet, side: Side, *, ports: bool) -> bool:
    """Whether an address, or an address and port, is in a set of ipset's spelling."""
    address = packet.address(side)
    if not ports:
        return any(address in ip_network(m) for m in members)
    if packet.protocol not in NAMES:
        return False
    return f"{address},{NAMES[packet.protocol]}:{packet.port(side)}" in members


def check(rule: Rule) -> None:
    """That iptables would take a rule, and read it as we do."""
    protocols = [match for match in rule.match if isinstance(match, Protocol)]
    assert len(protocols) <= 1, "one protocol a rule"
    positive = protocols[0].number if protocols and not protocols[0].negated else None
    for side in Side:
        nets = [m for m in rule.match if isinstance(m, Net) and m.side is side]
        assert len(nets) <= 1, "one address match a side"
        assert not any(net.negated and net.net.prefixlen == 0 for net in nets)
    for match in rule.match:
        match match:
            case Protocol(number):
                assert number, "protocol 0 means all"
            case Ports(_, ranges):
                assert positive in PORTFUL, "multiport wants a protocol"
                assert sum(1 if a == b else 2 for a, b in ranges) <= 15
            case Icmp(version, kind):
                assert positive == (1 if version == 4 else 58), "icmp wants its protocol"
                assert kind != 255, "type 255 means any"


@dataclass
class Kernel:
    """Chains and sets; `walk` says what becomes of a packet."""

    chains: dict[str, Chain]
    sets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    logged: list[str] = field(default_factory=list)
    visited: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for chain in self.chains.values():
            for rule in chain.rules:
                check(rule)

    def walk(self, start: str, packet: Packet, mark: int = 0) -> tuple[str, int]:
        """ACCEPT, DROP, REJECT, or RETURN past the end of `start`; and the mark."""
        stack = [self._rules(start)]
        while stack:
            if not stack[-1]:
                stack.pop()
                continue
            rule = stack[-1].pop(0)
            if not all(self.holds(condition, packet, mark) for condition in rule.match):
                continue
            match rule.action:
                case Accept():
                    return "ACCEPT", mark
                case Drop():
                    return "DROP", mark
                case Reject():
                    return "REJECT", mark
                case Return():
                    stack.pop()
                case SetMark(value, mask):
                    mark = mark & ~mask | value
                case Jump(chain):
                    stack.append(self._rules(chain))
                case Goto(chain):
                    stack.pop()
                    stack.append(self._rules(chain))
                case Log(prefix, _):
                    self.logged.append(prefix)
                case Nothing() | NoTrack():
                    pass
                case other:
                    raise AssertionError(other)
        return "RETURN", mark

    def _rules(self, chain: str) -> list[Rule]:
        self.visited.append(chain)
        return list(self.chains[chain].rules)

    def holds(self, condition: Condition, packet: Packet, mark: int) -> bool:
        """Whether one condition of a rule holds."""
        match condition:
            case Protocol(number, negated, _):
                return (packet.protocol == number) is not negated
            case InInterface(name):
                return _interface(name, packet.came_by)
            case OutInterface(name):
                return _interface(name, packet.leaves_by)
            case Net(side, net, negated):
                return (packet.address(side) in net) is not negated
            case InSet(side, name, negated, ports):
                found = in_set(self.sets.get(name, ()), packet, side, ports=ports)
                return found is not negated
            case Ports(side, ranges, negated):
                hit = any(a <= packet.port(side) <= b for a, b in ranges)
                return packet.protocol in PORTFUL and hit is not negated
            case Icmp(version, kind, code, negated):
                assert version == packet.version
                hit = packet.icmp[0] == kind and code in (None, packet.icmp[1])
                return packet.is_icmp and hit is not negated
            case Mark(value, mask, negated):
                return (mark & mask == value) is not negated
            case Conntrack(states, negated):
                return (packet.state in states) is not negated
        raise AssertionError(condition)


def _interface(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("+") else name == pattern
