"""Builders of the objects that policy is calculated from, and a reader of the result.

`Told` applies flushes as the data plane does and checks on the way that they are in order:
no rule names a set that is not there, no endpoint a policy that is not there.
`verdict` sends an imaginary packet through what was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import libcalico.model
from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import (
    EndpointPolicy,
    EntityMatch,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
    ResolvedRule,
    Verb,
)
from libcalico.model import (
    EndpointPort,
    EntityRule,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    GlobalNetworkSet,
    HostEndpointSpec,
    Metadata,
    NetworkPolicy,
    NetworkPolicySpec,
    NetworkSet,
    NetworkSetSpec,
    Profile,
    ProfileSpec,
    ResourceKey,
    Rule,
    Tier,
    TierSpec,
    WorkloadEndpoint,
    WorkloadEndpointPort,
    WorkloadEndpointSpec,
)

ME = "me"
Object = tuple[ResourceKey, Any]
ALLOW = [Rule(action="Allow")]
PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp"}


def pod(
    name: str,
    address: str | list[str],
    labels: dict[str, str] | None = None,
    *,
    namespace: str = "default",
    node: str = ME,
    profiles: list[str] | None = None,
    ports: dict[str, tuple[str, int]] | None = None,
    account: str = "",
) -> Object:
    """A workload endpoint; its profile is `kns.<namespace>` unless said otherwise."""
    addresses = [address] if isinstance(address, str) else address
    spec = WorkloadEndpointSpec(
        node=node,
        orchestrator="k8s",
        containerID=name,
        pod=name,
        endpoint="eth0",
        interfaceName=f"cali{name}",
        serviceAccountName=account,
        ipNetworks=[a if "/" in a else f"{a}/{128 if ':' in a else 32}" for a in addresses],
        profiles=[f"kns.{namespace}"] if profiles is None else profiles,
        ports=[
            WorkloadEndpointPort(name=port, protocol=protocol, port=number)
            for port, (protocol, number) in (ports or {}).items()
        ],
    )
    metadata = Metadata(name=name, namespace=namespace, labels=labels or {})
    return pod_key(name, namespace), WorkloadEndpoint(metadata=metadata, spec=spec)


def host(
    name: str,
    interface: str = "",
    labels: dict[str, str] | None = None,
    *,
    node: str = ME,
    addresses: list[str] | None = None,
    profiles: list[str] | None = None,
    ports: dict[str, tuple[str, int]] | None = None,
) -> Object:
    """A host endpoint."""
    spec = HostEndpointSpec(
        node=node,
        interfaceName=interface,
        expectedIPs=addresses or [],
        profiles=profiles or [],
        ports=[
            EndpointPort(name=port, protocol=protocol, port=number)
            for port, (protocol, number) in (ports or {}).items()
        ],
    )
    resource = libcalico.model.HostEndpoint(
        metadata=Metadata(name=name, labels=labels or {}), spec=spec
    )
    return host_key(name), resource


def host_key(name: str) -> ResourceKey:
    return ResourceKey("HostEndpoint", name)


def pod_key(name: str, namespace: str = "default") -> ResourceKey:
    return ResourceKey("WorkloadEndpoint", name, namespace)


def profile(
    name: str,
    labels: dict[str, str] | None = None,
    ingress: list[Rule] | None = None,
    egress: list[Rule] | None = None,
) -> Object:
    """A profile; it allows everything unless said otherwise."""
    spec = ProfileSpec(
        ingress=ALLOW if ingress is None else ingress,
        egress=ALLOW if egress is None else egress,
        labelsToApply=labels or {},
    )
    return ResourceKey("Profile", name), Profile(metadata=Metadata(name=name), spec=spec)


def namespace(name: str, **labels: str) -> Object:
    """A namespace's profile."""
    given = {f"pcns.{label}": value for label, value in labels.items()}
    return profile(f"kns.{name}", {**given, "pcns.projectcalico.org/name": name})


def account(name: str, **labels: str) -> Object:
    """The profile of a service account of namespace `default`."""
    given = {f"pcsa.{label}": value for label, value in labels.items()}
    own = {**given, "pcsa.projectcalico.org/name": name}
    return profile(f"ksa.default.{name}", own, [], [])


def policy(name: str, *, namespace: str = "default", **spec: Any) -> Object:
    key = ResourceKey("NetworkPolicy", name, namespace)
    metadata = Metadata(name=name, namespace=namespace)
    return key, NetworkPolicy(metadata=metadata, spec=NetworkPolicySpec(**spec))


def global_policy(name: str, **spec: Any) -> Object:
    key = ResourceKey("GlobalNetworkPolicy", name)
    return key, GlobalNetworkPolicy(
        metadata=Metadata(name=name), spec=GlobalNetworkPolicySpec(**spec)
    )


def network_set(
    name: str, nets: list[str], labels: dict[str, str], namespace: str = "default"
) -> Object:
    metadata = Metadata(name=name, namespace=namespace, labels=labels)
    key = ResourceKey("NetworkSet", name, namespace)
    return key, NetworkSet(metadata=metadata, spec=NetworkSetSpec(nets=nets))


def global_network_set(name: str, nets: list[str], labels: dict[str, str]) -> Object:
    metadata = Metadata(name=name, labels=labels)
    key = ResourceKey("GlobalNetworkSet", name)
    return key, GlobalNetworkSet(metadata=metadata, spec=NetworkSetSpec(nets=nets))


def tier(name: str, order: float | None = None, action: str | None = None) -> Object:
    spec = TierSpec(order=order, defaultAction=action)
    return ResourceKey("Tier", name), Tier(metadata=Metadata(name=name), spec=spec)


def allow(**fields: Any) -> Rule:
    return rule("Allow", **fields)


def deny(**fields: Any) -> Rule:
    return rule("Deny", **fields)


def rule(action: str, **fields: Any) -> Rule:
    """A rule; `source` and `destination` may be given as mappings."""
    for side in ("source", "destination"):
        if isinstance(fields.get(side), dict):
            fields[side] = EntityRule(**fields[side])
    return Rule(action=action, **fields)


@dataclass
class Told:
    """What a data plane knows after the flushes it got."""

    sets: dict[str, set[str]] = field(default_factory=dict)
    policies: dict[ResourceKey, ResolvedPolicy] = field(default_factory=dict)
    profiles: dict[str, ResolvedPolicy] = field(default_factory=dict)
    endpoints: dict[ResourceKey, EndpointPolicy] = field(default_factory=dict)
    host_endpoints: dict[ResourceKey, HostEndpoint] = field(default_factory=dict)

    def apply(self, changes: PolicyChanges) -> None:
        """Take one flush in the promised order, checking each step."""
        removed = []
        for change in changes.sets:
            if change.removed_whole:
                removed.append(change.set_id)
                continue
            assert not removed, "a removal comes last"
            if change.full is not None:
                assert change.set_id not in self.sets
                self.sets[change.set_id] = set(change.full)
                continue
            assert change.added or change.removed
            members = self.sets[change.set_id]
            assert not change.added & members
            assert change.removed <= members
            assert not change.added & change.removed
            members -= change.removed
            members |= change.added
        for table, changed in (
            (self.policies, changes.policies),
            (self.profiles, changes.profiles),
        ):
            for key, resolved in changed.items():
                if resolved is not None:
                    assert used_sets(resolved) <= self.sets.keys()
                    table[key] = resolved  # type: ignore[index]
        for key, endpoint in changes.endpoints.items():
            if endpoint is None:
                del self.endpoints[key]
            else:
                self.endpoints[key] = endpoint
        for key, one in changes.host_endpoints.items():
            if one is None:
                del self.host_endpoints[key]
            else:
                assert self.host_endpoints.get(key) != one
                self.host_endpoints[key] = one
        for key, resolved in changes.policies.items():
            if resolved is None:
                del self.policies[key]
        for name, resolved in changes.profiles.items():
            if resolved is None:
                del self.profiles[name]
        for set_id in removed:
            del self.sets[set_id]
        self.check()

    def check(self) -> None:
        """Everything that is named exists."""
        for resolved in (*self.policies.values(), *self.profiles.values()):
            assert used_sets(resolved) <= self.sets.keys()
        for endpoint in self.endpoints.values():
            assert endpoint == EndpointPolicy(endpoint.tiers, endpoint.profiles)
        hosts = (one.policy for one in self.host_endpoints.values())
        for endpoint in (*self.endpoints.values(), *hosts):
            assert set(endpoint.profiles) <= self.profiles.keys()
            early = (*endpoint.untracked, *endpoint.pre_dnat)
            assert not any(view.ends_in_deny for view in early)
            assert not any(view.egress for view in endpoint.pre_dnat)
            for view in (*endpoint.tiers, *early, *endpoint.forward):
                assert {*view.ingress, *view.egress} <= self.policies.keys()


def used_sets(resolved: ResolvedPolicy) -> set[str]:
    """The sets that a policy's rules name."""
    return {
        name
        for one in (*resolved.ingress, *resolved.egress)
        for side in (one.source, one.destination)
        for name in (
            *side.sets,
            *side.not_sets,
            *side.named_ports,
            *side.not_named_ports,
            *side.services,
        )
    }


@dataclass(frozen=True)
class Packet:
    """A packet of the test's imagination."""

    source: str
    destination: str
    protocol: int = 6
    port: int = 80
    icmp: tuple[int, int] = (8, 0)


class World:
    """An engine, in sync, and what it told."""

    def __init__(self, *objects: Object) -> None:
        self.engine = PolicyEngine(ME)
        self.told = Told()
        for key, value in objects:
            self.engine.update(key, value)
        self.engine.start()
        self.told.apply(self.engine.flush())

    def put(self, *objects: Object) -> PolicyChanges:
        for key, value in objects:
            self.engine.update(key, value)
        return self._flush()

    def remove(self, *keys: ResourceKey) -> PolicyChanges:
        for key in keys:
            self.engine.update(key, None)
        return self._flush()

    def _flush(self) -> PolicyChanges:
        changes = self.engine.flush()
        self.told.apply(changes)
        return changes

    def into(self, name: str, packet: Packet, namespace: str = "default") -> bool:
        """Whether the pod's ingress lets the packet pass."""
        return self._verdict(pod_key(name, namespace), packet, "ingress")

    def out_of(self, name: str, packet: Packet, namespace: str = "default") -> bool:
        """Whether the pod's egress lets the packet pass."""
        return self._verdict(pod_key(name, namespace), packet, "egress")

    def _verdict(self, key: ResourceKey, packet: Packet, direction: str) -> bool:
        endpoint = self.told.endpoints[key]
        for view in endpoint.tiers:
            names = getattr(view, direction)
            if not names:
                continue
            for name in names:
                verb = self._chain(getattr(self.told.policies[name], direction), packet)
                if verb in (Verb.ALLOW, Verb.DENY):
                    return verb is Verb.ALLOW
                if verb is Verb.PASS:
                    break
            else:
                if view.ends_in_deny:
                    return False
        for name in endpoint.profiles:
            verb = self._chain(getattr(self.told.profiles[name], direction), packet)
            if verb in (Verb.ALLOW, Verb.DENY):
                return verb is Verb.ALLOW
        return False

    def _chain(self, rules: tuple[ResolvedRule, ...], packet: Packet) -> Verb | None:
        for one in rules:
            if one.verb is Verb.ALLOW and one.unenforced:
                continue
            if one.verb is not Verb.LOG and self._matches(one, packet):
                return one.verb
        return None

    def _matches(self, one: ResolvedRule, packet: Packet) -> bool:
        version = ip_address(packet.source).version
        return (
            one.version in (None, version)
            and one.protocol in (None, packet.protocol)
            and one.not_protocol != packet.protocol
            and (one.icmp is None or _icmp(one.icmp, packet))
            and (one.not_icmp is None or not _icmp(one.not_icmp, packet))
            and self._side(one.source, packet, packet.source, 0)
            and self._side(one.destination, packet, packet.destination, packet.port)
        )

    def _side(self, side: EntityMatch, packet: Packet, text: str, port: int) -> bool:
        address = ip_address(text)

        def in_nets(nets: Any) -> bool:
            return any(address.version == n.version and address in n for n in nets)

        def in_set(name: str) -> bool:
            from ipaddress import ip_network

            return in_nets(ip_network(member) for member in self.told.sets[name])

        def in_ports(ranges: Any, names: Any) -> bool:
            member = f"{text},{PROTOCOLS.get(packet.protocol)}:{port}"
            return any(first <= port <= last for first, last in ranges) or any(
                member in self.told.sets[name] for name in names
            )

        return (
            all(in_ports((), (name,)) for name in side.services)
            and (not side.nets or in_nets(side.nets))
            and not in_nets(side.not_nets)
            and all(map(in_set, side.sets))
            and not any(map(in_set, side.not_sets))
            and (not (side.ports or side.named_ports) or in_ports(side.ports, side.named_ports))
            and not in_ports(side.not_ports, side.not_named_ports)
        )


def _icmp(wanted: tuple[int | None, int | None], packet: Packet) -> bool:
    kind, code = wanted
    return kind in (None, packet.icmp[0]) and code in (None, packet.icmp[1])
