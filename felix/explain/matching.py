"""Whether a rule matches a packet, asked of the very match that the kernel's rules are made of.

`felix.rules.fragments` turns a resolved rule into conditions of one family and keeps access from
widening there (POL-1). Both renderers print those conditions; here they are asked. Sets are looked
up in the calculation's members.

Tested in tests/felix/explain/test_random.py against the oracle of tests/policy_random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Protocol

from felix.calc.labels import WITH_PORTS
from felix.calc.policy_model import ResolvedPolicy, ResolvedRule, SetKind, Verb
from felix.explain.flow import IPAddress, Packet
from felix.rules import model, names
from felix.rules.blocks import Block
from felix.rules.fragments import Fragments, fragments
from felix.rules.model import Condition, Icmp, InSet, Net, Ports, Side
from libcalico.model import ResourceKey

_DENY_ALL = (ResolvedRule(Verb.DENY),)


class Calculated(Protocol):
    """The results of the calculation that a matcher needs (`PolicyEngine` has them)."""

    @property
    def policies(self) -> Mapping[ResourceKey, ResolvedPolicy]:
        """Active policies."""

    @property
    def profiles(self) -> Mapping[str, ResolvedPolicy]:
        """Profiles in use."""

    @property
    def sets(self) -> Mapping[str, SetKind]:
        """Sets in use."""

    def members(self, set_id: str) -> frozenset[str]:
        """The members of a set."""


@dataclass(frozen=True, slots=True)
class Hit:
    """The first rule of a policy that decides: its number among the resolved rules."""

    rule: int
    verb: Verb


class Matcher:
    """Rules and sets of one calculation, as of now; made anew after each flush."""

    def __init__(self, calculated: Calculated, unusable: frozenset[str] = frozenset()) -> None:
        self._calculated = calculated
        self._unusable = unusable
        self._ids = {
            names.ip_set(each, version): each for each in calculated.sets for version in (4, 6)
        }
        self._members: dict[str, frozenset[str]] = {}
        self._compiled: dict[tuple[ResourceKey, bool, int], list[tuple[int, Fragments]]] = {}

    def policy(self, key: ResourceKey) -> ResolvedPolicy:
        """A policy or profile; one that is named but unknown denies (RBK-1)."""
        resolved = (
            self._calculated.profiles.get(key.name)
            if key.kind == "Profile"
            else self._calculated.policies.get(key)
        )
        return resolved or ResolvedPolicy(key, "", (), (), missing=True)

    def first(self, key: ResourceKey, packet: Packet, *, ingress: bool) -> Hit | None:
        """The rule of a policy that decides about a packet, if one does."""
        for number, fragment in self._fragments(key, ingress, packet.version):
            if fragment.verb is not Verb.LOG and self._matches(fragment, packet):
                return Hit(number, fragment.verb)
        return None

    def matches(self, key: ResourceKey, rule: int, packet: Packet, *, ingress: bool) -> bool:
        """Whether one resolved rule of a policy matches a packet, wherever it stands."""
        return any(
            number == rule and self._matches(fragment, packet)
            for number, fragment in self._fragments(key, ingress, packet.version)
        )

    def _fragments(
        self, key: ResourceKey, ingress: bool, version: int
    ) -> list[tuple[int, Fragments]]:
        which = (key, ingress, version)
        compiled = self._compiled.get(which)
        if compiled is None:
            policy = self.policy(key)
            rules = policy.ingress if ingress else policy.egress
            compiled = self._compiled[which] = [
                (number, fragment)
                for number, rule in enumerate(_DENY_ALL if policy.missing else rules)
                if (fragment := fragments(rule, version, self._unusable)) is not None
            ]
        return compiled

    def _matches(self, fragment: Fragments, packet: Packet) -> bool:
        return self.hold(fragment.match, packet) and all(
            self._block(each, packet) for each in fragment.blocks
        )

    def hold(self, conditions: Iterable[Condition], packet: Packet) -> bool:
        """Whether all of these are true of a packet."""
        return all(self._holds(each, packet) for each in conditions)

    def _block(self, block: Block, packet: Packet) -> bool:
        matches = any(self.hold(alternative, packet) for alternative in block.alternatives)
        return matches is not block.negated

    def _holds(self, condition: Condition, packet: Packet) -> bool:
        kind = packet.kind
        match condition:
            case model.Protocol(number, negated):
                return (kind.protocol == number) is not negated
            case Net(side, net, negated):
                return (_address(packet, side) in net) is not negated
            case Ports(side, ranges, negated):
                port = _port(packet, side)
                return any(low <= port <= high for low, high in ranges) is not negated
            case InSet(side, name, negated, ports):
                address = _address(packet, side)
                if ports:
                    contains = self._has_port(name, address, kind.protocol, _port(packet, side))
                else:
                    contains = self.has(self._ids[name], address)
                return contains is not negated
            case Icmp(_, number, code, negated):
                same = kind.icmp_type == number and code in (None, kind.icmp_code)
                return same is not negated
        raise TypeError(f"no condition of a policy's rule: {condition}")

    def members(self, set_id: str) -> frozenset[str]:
        """The members of a set."""
        members = self._members.get(set_id)
        if members is None:
            members = self._members[set_id] = self._calculated.members(set_id)
        return members

    def has(self, set_id: str, address: IPAddress) -> bool:
        """Whether a set of networks holds an address."""
        members = self.members(set_id)
        return not members.isdisjoint(spellings(address))

    def _has_port(self, name: str, address: IPAddress, protocol: int, port: int) -> bool:
        word = WITH_PORTS.get(protocol)
        return f"{address},{word}:{port}" in self.members(self._ids[name])


_SPELLINGS: dict[IPAddress, tuple[str, ...]] = {}
MOST_SPELLINGS = 20_000


def spellings(address: IPAddress) -> tuple[str, ...]:
    """How a member that covers an address may be written: the address, and its networks."""
    texts = _SPELLINGS.get(address)
    if texts is None:
        if len(_SPELLINGS) >= MOST_SPELLINGS:
            _SPELLINGS.clear()
        lengths = range(1, address.max_prefixlen)
        networks = (str(ip_network((address, length), strict=False)) for length in lengths)
        texts = _SPELLINGS[address] = (str(address), *networks)
    return texts


def _address(packet: Packet, side: Side) -> IPAddress:
    return packet.source if side is Side.SOURCE else packet.destination


def _port(packet: Packet, side: Side) -> int:
    kind = packet.kind
    return kind.source_port if side is Side.SOURCE else kind.destination_port
