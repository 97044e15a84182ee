"""What would decide about a connection now, with staged policies as if they were in force.

As in Calico nothing of a staged policy is in the kernel: its part of a trace (`pending`) is
calculated, from the same rules that the renderers take (`felix.explain.matching`). Sets of staged
policies are never made; whether an address is in one is found out by its holders.

Rules rarely look at source ports, so a result is kept for all source ports unless some rule of the
endpoint does. Results are forgotten when policies or endpoints change.

Invariant:
  PND-1  A pending trace is what `StagedPolicies.would_be` decides about the packet (STG-2).
Tested in tests/felix/flows/test_pending.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from felix.calc.labels import WITH_PORTS
from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import EndpointPolicy, ResolvedPolicy, SetKind
from felix.calc.sets.service_sets import Need, ServiceNeed
from felix.calc.sets.set_needs import SetNeed
from felix.explain.flow import ECHO_OF, ICMP_OF, IPAddress, Kind, Packet
from felix.explain.matching import Matcher, spellings
from felix.explain.walk import walk
from felix.flows.hits import Hits
from flows.record import Hit
from libcalico.model import ResourceKey
from linux.tracking.connections import Key

MOST_KEPT = 50_000
Which = tuple[ResourceKey, bool, bytes, bytes, int, int, int]


class _WithStaged:
    """The calculation's results and the staged policies beside them (`Calculated`)."""

    def __init__(self, engine: PolicyEngine) -> None:
        staged = engine.staged
        self.policies: Mapping[ResourceKey, ResolvedPolicy] = engine.policies
        self.profiles = engine.profiles
        self.needs: dict[str, Need] = {}
        if staged:
            resolved = {k: one.resolved for k, one in staged.items() if one.resolved is not None}
            self.policies = {**engine.policies, **resolved}
            self.needs = {need.id: need for one in staged.values() for need in one.needs}
        self.sets: Mapping[str, SetKind] = {
            **engine.sets,
            **dict.fromkeys(self.needs, SetKind.NETS),
        }

    def members(self, set_id: str) -> frozenset[str]:
        """Sets are asked about single addresses here."""
        raise KeyError(set_id)


class _Asking(Matcher):
    """A matcher that finds out about one address, and never lists a set."""

    def __init__(self, calculated: _WithStaged, engine: PolicyEngine) -> None:
        super().__init__(calculated)
        self._engine, self._staged = engine, calculated.needs
        self._asked: dict[tuple[str, IPAddress, int, int], bool] = {}

    def has(self, set_id: str, address: IPAddress) -> bool:
        """Whether a set of networks holds an address."""
        return self._ask(set_id, address, 0, 0)

    def _has_port(self, name: str, address: IPAddress, protocol: int, port: int) -> bool:
        return self._ask(self._ids[name], address, protocol, port)

    def _ask(self, set_id: str, address: IPAddress, protocol: int, port: int) -> bool:
        which = (set_id, address, protocol, port)
        if which not in self._asked:
            need = self._engine.need(set_id) or self._staged.get(set_id)
            self._asked[which] = self._in(need, address, WITH_PORTS.get(protocol, ""), port)
        return self._asked[which]

    def _in(self, need: Need | None, address: IPAddress, protocol: str, port: int) -> bool:
        if isinstance(need, ServiceNeed):
            member = f"{address},{protocol}:{port}" if need.ports else str(address)
            return member in self._engine.service_endpoints(need)
        if need is None:
            return False
        texts = spellings(address) if need.port is None else (str(address),)
        return any(self._selected(need, text, protocol, port) for text in texts)

    def _selected(self, need: SetNeed, text: str, protocol: str, port: int) -> bool:
        population = self._engine.places.population
        for item in population.holders(text):
            if need.port is not None and not any(
                (own.protocol, own.name) == need.port
                and (own.protocol, own.number) == (protocol, port)
                for own in population.ports_of.get(item, ())
            ):
                continue
            labels = population.label_sets.labels(population.label_set_of[item])
            if need.selector.matches(labels):
                return True
        return False


class Pending:
    """The pending traces of one calculation."""

    def __init__(self, engine: PolicyEngine, hits: Hits) -> None:
        self._engine, self._hits = engine, hits
        self._matcher: _Asking | None = None
        self._lists: dict[ResourceKey, EndpointPolicy] = {}
        self._sources: dict[ResourceKey, bool] = {}
        self._kept: dict[Which, tuple[Hit, ...]] = {}

    def forget(self) -> None:
        """Calculate everything anew."""
        self._matcher = None
        self._lists.clear()
        self._sources.clear()
        self._kept.clear()

    def known(self, endpoint: ResourceKey, key: Key, *, ingress: bool) -> bool:
        """Whether this trace was calculated since the last change: it costs nothing then."""
        return self._which(endpoint, key, ingress) in self._kept

    def trace(self, endpoint: ResourceKey, key: Key, *, ingress: bool) -> tuple[Hit, ...]:
        """The rules that a connection would meet at an endpoint of this node."""
        which = self._which(endpoint, key, ingress)
        kept = self._kept.get(which)
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            kept = self._kept[which] = self._calculate(endpoint, key, ingress)
        return kept

    def _which(self, endpoint: ResourceKey, key: Key, ingress: bool) -> Which:
        source = key.source_port if self._looks_at_sources(endpoint) else 0
        ends = (key.source, key.destination)
        return (endpoint, ingress, *ends, key.protocol, key.destination_port, source)

    def _calculate(self, endpoint: ResourceKey, key: Key, ingress: bool) -> tuple[Hit, ...]:
        policy = self._policy(endpoint)
        packet = packet_of(key)
        ruling = walk(policy.tiers, policy.profiles, packet, self._asking(), ingress=ingress)
        return self._hits.walked(ruling, policy, ingress=ingress)

    def _policy(self, endpoint: ResourceKey) -> EndpointPolicy:
        policy = self._lists.get(endpoint)
        if policy is None:
            policy = self._engine.would_be(endpoint) or EndpointPolicy()
            self._lists[endpoint] = policy
        return policy

    def _asking(self) -> _Asking:
        if self._matcher is None:
            self._matcher = _Asking(_WithStaged(self._engine), self._engine)
        return self._matcher

    def _looks_at_sources(self, endpoint: ResourceKey) -> bool:
        answer = self._sources.get(endpoint)
        if answer is None:
            policy, matcher = self._policy(endpoint), self._asking()
            keys = [*policy.policies(), *(ResourceKey("Profile", n) for n in policy.profiles)]
            answer = self._sources[endpoint] = any(map(_has_sources, map(matcher.policy, keys)))
        return answer


def packet_of(key: Key) -> Packet:
    """The packet that began a connection. An ICMP connection begins with an echo request."""
    source, destination = ip_address(key.source), ip_address(key.destination)
    version = destination.version
    if key.protocol == ICMP_OF[version]:
        return Packet(source, destination, Kind(key.protocol, 0, 0, ECHO_OF[version]))
    kind = Kind(key.protocol, key.destination_port, key.source_port)
    return Packet(source, destination, kind)


def _has_sources(policy: ResolvedPolicy) -> bool:
    sides = (rule.source for rule in (*policy.ingress, *policy.egress))
    return any(s.ports or s.not_ports or s.named_ports or s.not_named_ports for s in sides)
