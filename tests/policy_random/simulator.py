"""A node without a kernel: engine and renderer of the product, rules walked by hand.

What felix would program is taken from the engine's flushes alone (never from its views), rendered
by `felix.rules`, and walked as netfilter walks it: marks, jumps, returns, sets. What iptables
would refuse (two `-p` in one rule, `multiport` without a protocol, more than 15 ports, a set that
is not there) is an error here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import (
    EndpointPolicy,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
    SetKind,
)
from felix.rules import names
from felix.rules.endpoints import EndpointRules, TierChains, Verdicts, endpoint_chains
from felix.rules.iptables import render_rule
from felix.rules.model import (
    Accept,
    Chain,
    Condition,
    Conntrack,
    Drop,
    Icmp,
    InSet,
    Jump,
    Log,
    Mark,
    Marks,
    Net,
    Nothing,
    Ports,
    Protocol,
    Return,
    Rule,
    SetMark,
    Side,
)
from felix.rules.policy import policy_chains
from libcalico.model import ResourceKey
from tests.policy_random.oracle import WITH_PORTS, Address, Network, Packet

MARKS = Marks.allocate(0xFFFF0000)
VERDICTS = Verdicts(Accept(), Drop())
WORDS = {6: "tcp", 17: "udp", 132: "sctp", 136: "udplite"}
Render = Callable[[ResolvedPolicy, int], tuple[Chain, Chain]]


def render(policy: ResolvedPolicy, version: int) -> tuple[Chain, Chain]:
    """The product's renderer; a test may plant another one."""
    return policy_chains(policy, version, MARKS, VERDICTS)


@dataclass(eq=False)
class KernelSet:
    """An ipset; networks looked up by prefix length, as the kernel does."""

    kind: SetKind
    members: set[str] = field(default_factory=set)
    cache: dict[Address, bool] = field(default_factory=dict)

    def change(self, added: frozenset[str], removed: frozenset[str]) -> None:
        """Apply a difference; adding what is there or removing what is not is an error."""
        assert not added & self.members, "added twice"
        assert removed <= self.members, "removed what is not there"
        self.members = (self.members - removed) | added
        self.cache.clear()

    def has(self, address: Address, port: int, protocol: int) -> bool:
        """Whether the kernel would match."""
        if self.kind is SetKind.ADDRESS_PORTS:
            return f"{address},{WORDS.get(protocol)}:{port}" in self.members
        found = self.cache.get(address)
        if found is None:
            nets: list[Network] = [ip_network(member) for member in self.members]
            found = any(address in net for net in nets if net.version == address.version)
            self.cache[address] = found
        return found


class Refused(AssertionError):
    """The kernel or iptables would not take this."""


class Node:
    """One node: the product's calculation, and what it told."""

    def __init__(self, name: str, render_policy: Render = render) -> None:
        self.engine = PolicyEngine(name)
        self.sets: dict[str, KernelSet] = {}
        self.policies: dict[ResourceKey, ResolvedPolicy] = {}
        self.profiles: dict[str, ResolvedPolicy] = {}
        self.endpoints: dict[ResourceKey, EndpointPolicy] = {}
        self.hosts: dict[ResourceKey, HostEndpoint] = {}
        self.render = render_policy
        self._chains: dict[int, dict[str, Chain]] = {}

    def flush(self) -> None:
        """Take over what the engine tells."""
        changes: PolicyChanges = self.engine.flush()
        gone = []
        for change in changes.sets:
            if change.removed_whole:
                gone.append(change.set_id)
            elif change.full is not None:
                assert change.set_id not in self.sets, "a new set that exists"
                self.sets[change.set_id] = KernelSet(change.kind, set(change.full))
            else:
                self.sets[change.set_id].change(change.added, change.removed)
        take(self.policies, changes.policies)
        take(self.profiles, changes.profiles)
        take(self.endpoints, changes.endpoints)
        take(self.hosts, changes.host_endpoints)
        for set_id in gone:
            del self.sets[set_id]
        self._chains.clear()

    def chains(self, version: int) -> dict[str, Chain]:
        """The filter table's chains of policies, profiles and endpoints in one family."""
        if version not in self._chains:
            found: list[Chain] = []
            for policy in (*self.policies.values(), *self.profiles.values()):
                found += self.render(policy, version)
            for key, view in self.endpoints.items():
                found += endpoint_chains(endpoint_rules(key, view), MARKS, VERDICTS)
            self._chains[version] = {chain.name: chain for chain in found}
            assert len(self._chains[version]) == len(found), "two chains of one name"
            self.check(version)
        return self._chains[version]

    def check(self, version: int) -> None:
        """Refused unless the kernel would take the chains."""
        known = {names.ip_set(set_id, version) for set_id in self.sets}
        assert len(known) == len(self.sets), "two sets of one name"
        for chain in self._chains[version].values():
            for rule in chain.rules:
                check_rule(rule, known, self._chains[version])

    def allows(self, key: ResourceKey, packet: Packet, *, egress: bool) -> tuple[bool, list[str]]:
        """Whether an endpoint's chain accepts a first packet; the rules that it matched."""
        version = packet.flow.version
        prefix = names.FROM_WORKLOAD if egress else names.TO_WORKLOAD
        walk = Walk(
            self.chains(version),
            {names.ip_set(set_id, version): s for set_id, s in self.sets.items()},
            packet,
        )
        verdict = walk.chain(names.endpoint_chain(prefix, interface_of(key)))
        if verdict is None and not walk.mark & MARKS.accept:
            raise AssertionError(f"{key}: the packet fell through its chain")
        return verdict is not False, walk.trace


def take(table: dict[Any, Any], changes: Mapping[Any, Any]) -> None:
    """Apply a flush's differences to a table."""
    for key, value in changes.items():
        if value is None:
            del table[key]
        else:
            table[key] = value


def interface_of(key: ResourceKey) -> str:
    """A name for the endpoint's chains."""
    return f"cali{abs(hash(key)) % 16**11:011x}"


def endpoint_rules(key: ResourceKey, view: EndpointPolicy) -> EndpointRules:
    """The chains that an endpoint's policies name."""
    tiers = tuple(
        TierChains(
            tier.name,
            tuple(names.policy_chain(names.POLICY_INGRESS, key) for key in tier.ingress),
            tuple(names.policy_chain(names.POLICY_EGRESS, key) for key in tier.egress),
            tier.ends_in_deny,
        )
        for tier in view.tiers
    )
    return EndpointRules(interface_of(key), tiers=tiers, profiles=view.profiles)


def check_rule(rule: Rule, known: set[str], chains: Mapping[str, Chain]) -> None:
    """Refused unless iptables would take one rule."""
    protocols = [c for c in rule.match if isinstance(c, Protocol)]
    if len(protocols) > 1:
        raise Refused(f"two protocols: {rule}")
    number = protocols[0].number if protocols and not protocols[0].negated else None
    for side in Side:
        if len([c for c in rule.match if isinstance(c, Net) and c.side is side]) > 1:
            raise Refused(f"two networks of one side: {rule}")
    for condition in rule.match:
        match condition:
            case Ports(_, ranges):
                if number not in WITH_PORTS and number != 136:
                    raise Refused(f"ports without a protocol: {rule}")
                if sum(1 if low == high else 2 for low, high in ranges) > 15 or not ranges:
                    raise Refused(f"number of ports: {rule}")
            case Icmp(version):
                if number != (1 if version == 4 else 58):
                    raise Refused(f"ICMP without its protocol: {rule}")
            case InSet(_, name) if name not in known:
                raise Refused(f"no such set: {rule}")
    if isinstance(rule.action, Jump) and rule.action.chain not in chains:
        raise Refused(f"no such chain: {rule}")


class Walk:
    """One packet on its way through chains."""

    def __init__(
        self, chains: Mapping[str, Chain], sets: Mapping[str, KernelSet], packet: Packet
    ) -> None:
        self.chains, self.sets, self.packet = chains, sets, packet
        self.mark = 0
        self.trace: list[str] = []

    def chain(self, name: str) -> bool | None:
        """True accepted, False dropped, None returned."""
        for rule in self.chains[name].rules:
            if not all(self.holds(condition) for condition in rule.match):
                continue
            self.trace.append(f"{name}: {render_rule(rule)}")
            match rule.action:
                case Accept():
                    return True
                case Drop():
                    return False
                case Return():
                    return None
                case SetMark(value, mask):
                    self.mark = self.mark & ~mask | value
                case Jump(target):
                    verdict = self.chain(target)
                    if verdict is not None:
                        return verdict
                case Log() | Nothing():
                    pass
                case _:
                    raise Refused(f"no action for a workload's packet: {rule}")
        return None

    def holds(self, condition: Condition) -> bool:
        """Whether one condition is true of the packet."""
        flow = self.packet.flow
        match condition:
            case Mark(value, mask, negated):
                return (self.mark & mask == value) is not negated
            case Protocol(number, negated):
                return (flow.protocol == number) is not negated
            case Net(side, net, negated):
                return (self.end(side)[0] in net) is not negated
            case Ports(side, ranges, negated):
                port = self.end(side)[1]
                return any(low <= port <= high for low, high in ranges) is not negated
            case InSet(side, name, negated):
                address, port = self.end(side)
                return self.sets[name].has(address, port, flow.protocol) is not negated
            case Icmp(_, kind, code, negated):
                same = flow.icmp_type == kind and code in (None, flow.icmp_code)
                return same is not negated
            case Conntrack(states, negated):
                return ("NEW" in states) is not negated
        raise Refused(f"no condition for a workload's packet: {condition}")

    def end(self, side: Side) -> tuple[Address, int]:
        """Address and port of one side."""
        packet = self.packet
        if side is Side.SOURCE:
            return packet.source, packet.flow.source_port
        return packet.destination, packet.flow.destination_port
