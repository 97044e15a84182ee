"""Endpoints and outside addresses in classes that policy cannot tell apart.

The problem: a plan must not look at all pairs of thousands of endpoints. Policy sees of an
endpoint only which lists decide about it, which sets and networks hold its addresses, and the
numbers of its named ports. Endpoints that are equal in these get the same verdicts with any peer.
So one of each class is evaluated, and the class is shown by the labels that selectors mention.

Addresses of no endpoint are classes too: one for each network that rules or network sets name,
less what narrower ones cover, and one for the rest of the world.

Invariants:
  POP-1  Two members of one class have the same verdict with any peer, in both worlds.
Tested in tests/felix/explain/test_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from felix.calc.labels import NamedPort
from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, IPNetwork, ResolvedRule, SetKind
from felix.explain.flow import IPAddress
from libcalico.model import ResourceKey

WITH_PORT = 4
"""Parts of a holder that is a port: family, calculation, set, and `tcp:80`."""
MOST_NETWORKS = 500
"""Networks whose outside addresses are looked at."""
_OUTSIDE: dict[int, str] = {4: "198.51.100.1", 6: "2001:db8::1"}
"""Addresses for documentation, which no host has (RFC 5737, RFC 3849)."""


@dataclass(frozen=True, slots=True)
class Member:
    """An endpoint as a plan sees it; `labels` are those that selectors mention."""

    key: ResourceKey
    title: str
    addresses: tuple[IPAddress, ...]
    labels: tuple[tuple[str, str], ...]


@dataclass(eq=False, slots=True)
class Class:
    """Endpoints that fare alike, or (without members) outside addresses, as `title` says.

    `policies`: what decides about it before and after; `holders`: which sets and networks hold
    its addresses, and which of them by which of its ports.
    """

    policies: tuple[EndpointPolicy | None, EndpointPolicy | None]
    holders: frozenset[tuple[object, ...]]
    addresses: Mapping[int, IPAddress]
    title: str = ""
    members: list[Member] = field(default_factory=list)

    def named(self) -> Iterator[NamedPort]:
        """The ports of its members that rules mean by name."""
        for holder in self.holders:
            if len(holder) == WITH_PORT:
                protocol, _, number = str(holder[-1]).partition(":")
                yield NamedPort("", protocol, int(number))

    @property
    def outside(self) -> bool:
        """Whether nothing here decides about it."""
        return not self.members

    def address(self, version: int) -> IPAddress | None:
        """One address of a family."""
        return self.addresses.get(version)


class Holders:
    """Which sets of some calculations, and which of some networks, hold an address."""

    def __init__(self, engines: Sequence[PolicyEngine], networks: Iterable[IPNetwork]) -> None:
        self._hosts: dict[str, list[tuple[object, ...]]] = {}
        self._ports: dict[str, list[tuple[object, ...]]] = {}
        self._networks: dict[tuple[int, int], dict[int, list[tuple[object, ...]]]] = {}
        self.networks: set[IPNetwork] = set()
        for number, engine in enumerate(engines):
            for set_id, kind in engine.sets.items():
                for member in engine.members(set_id):
                    self._note(number, set_id, kind, member)
        for network in networks:
            self._note_network(network, ("net", str(network)))

    def _note(self, engine: int, set_id: str, kind: SetKind, member: str) -> None:
        if kind is SetKind.ADDRESS_PORTS:
            address, _, port = member.partition(",")
            self._ports.setdefault(address, []).append((engine, set_id, port))
        elif "/" in member:
            self._note_network(ip_network(member), (engine, set_id))
        else:
            self._hosts.setdefault(member, []).append((engine, set_id))

    def _note_network(self, network: IPNetwork, holder: tuple[object, ...]) -> None:
        self.networks.add(network)
        level = self._networks.setdefault((network.version, network.prefixlen), {})
        level.setdefault(int(network.network_address), []).append(holder)

    def of(self, address: IPAddress) -> Iterator[tuple[object, ...]]:
        """All that hold an address."""
        text = str(address)
        yield from self._hosts.get(text, ())
        yield from self._ports.get(text, ())
        number, width = int(address), address.max_prefixlen
        for (version, length), level in self._networks.items():
            if version == address.version:
                shift = width - length
                yield from level.get(number >> shift << shift, ())


def classes_of(
    members: Iterable[Member],
    engines: tuple[PolicyEngine, PolicyEngine],
    rules: Iterable[ResolvedRule],
) -> tuple[list[Class], bool]:
    """Endpoints and outside addresses in classes; False where not all networks are in them."""
    named = {
        net
        for rule in rules
        for side in (rule.source, rule.destination)
        for net in (*side.nets, *side.not_nets)
    }
    holders = Holders(engines, named)
    classes: dict[object, Class] = {}
    taken: set[IPAddress] = set()
    for member in members:
        taken.update(member.addresses)
        before, after = (engine.endpoint(member.key) for engine in engines)
        memberships = frozenset(
            (address.version, *holder)
            for address in member.addresses
            for holder in holders.of(address)
        )
        families = frozenset(address.version for address in member.addresses)
        which = (before, after, memberships, families)
        one = classes.get(which)
        if one is None:
            addresses: dict[int, IPAddress] = {a.version: a for a in reversed(member.addresses)}
            one = classes[which] = Class((before, after), memberships, addresses)
        one.members.append(member)
    outside, whole = _outside(holders, taken)
    return [*classes.values(), *outside], whole


def _outside(holders: Holders, taken: set[IPAddress]) -> tuple[list[Class], bool]:
    classes: dict[object, Class] = {}
    ordered = sorted(holders.networks, key=lambda n: (n.version, n.prefixlen, n))
    some = ordered[:MOST_NETWORKS]
    for network in some:
        address = _free(network, some, taken)
        if address is None:
            continue
        memberships = frozenset((address.version, *holder) for holder in holders.of(address))
        title = f"{network}, outside" if network.num_addresses > 1 else str(network)
        only: dict[int, IPAddress] = {address.version: address}
        classes.setdefault(memberships, Class((None, None), memberships, only, title))
    for version, text in _OUTSIDE.items():
        address = ip_address(text)
        memberships = frozenset((address.version, *holder) for holder in holders.of(address))
        if memberships not in classes:
            title = f"any other IPv{version} address"
            key = (version, memberships)
            alone: dict[int, IPAddress] = {version: address}
            classes[key] = Class((None, None), memberships, alone, title)
    return list(classes.values()), len(some) == len(ordered)


def _free(
    network: IPNetwork, others: Sequence[IPNetwork], taken: set[IPAddress]
) -> IPAddress | None:
    """A free address of a network, outside all narrower networks."""
    inner = [
        other
        for other in others
        if other.version == network.version
        and other.prefixlen > network.prefixlen
        and other.subnet_of(network)  # type: ignore[arg-type]
    ]
    candidates = [network.network_address]
    candidates += [other.broadcast_address + 1 for other in inner if _next(other, network)]
    for candidate in candidates:
        address = candidate
        for _ in range(len(taken) + 1):
            if address not in network:
                break
            if any(address in other for other in inner):
                break
            if address not in taken:
                return address
            address += 1
    return None


def _next(inner: IPNetwork, outer: IPNetwork) -> bool:
    return int(inner.broadcast_address) < int(outer.broadcast_address)
