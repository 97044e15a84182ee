"""The stored objects that questions are about, and a calculation that sees just enough of them.

A felix calculates the lists of its own node's endpoints. A question concerns one or two
endpoints of any nodes, so `calculate` makes an engine for which only these are local: it follows
the policies that select them, and the sets those name, and takes everybody else as a member of
sets alone.

Tested in tests/felix/explain/test_explain.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Any

from msgspec.structs import replace

from felix.calc.endpoints import from_resource
from felix.calc.labels import Labels, NamedPort, named_ports
from felix.calc.nodes import facts_of as node_facts
from felix.calc.policy import KINDS, PolicyEngine
from felix.calc.policy.facts import labels_to_apply
from felix.calc.pools import Pool, pool_of
from felix.calc.sets.items import read_network, read_networks
from felix.config.parameters import Config
from felix.config.resolve import resolve
from felix.explain.flow import IPAddress
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey

READ = tuple(dict.fromkeys((*KINDS, "FelixConfiguration", "IPPool", "Node")))
"""The kinds that a world is made of."""
NOWHERE = ""


@dataclass
class World:
    """Stored objects by key; `unreadable` are values that could not be decoded."""

    objects: Mapping[ResourceKey, Any]
    unreadable: tuple[str, ...] = field(default=())

    def of(self, kind: str) -> Iterable[tuple[ResourceKey, Any]]:
        """The objects of a kind."""
        return self._by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> dict[str, list[tuple[ResourceKey, Any]]]:
        by_kind: dict[str, list[tuple[ResourceKey, Any]]] = {}
        for key, value in self.objects.items():
            by_kind.setdefault(key.kind, []).append((key, value))
        return by_kind

    @cached_property
    def pods(self) -> dict[str, list[ResourceKey]]:
        """Workload endpoints by namespace/pod (or /workload)."""
        pods: dict[str, list[ResourceKey]] = {}
        for key, value in self.of("WorkloadEndpoint"):
            name = value.spec.pod or value.spec.workload
            pods.setdefault(f"{key.namespace}/{name}", []).append(key)
        return pods

    @cached_property
    def owners(self) -> dict[IPAddress, ResourceKey]:
        """Workload endpoints by address."""
        owners: dict[IPAddress, ResourceKey] = {}
        for key, value in self.of("WorkloadEndpoint"):
            for network in read_networks(value.spec.ipNetworks)[0]:
                if network.prefixlen == network.max_prefixlen:
                    owners.setdefault(network.network_address, key)
        return owners

    @cached_property
    def nodes(self) -> dict[str, frozenset[IPAddress]]:
        """Addresses by node, tunnels' among them."""
        return {key.name: _addresses_of(value) for key, value in self.of("Node")}

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that can be read."""
        pools = []
        for key, value in self.of("IPPool"):
            try:
                pools.append(pool_of(key.name, value))
            except InvalidValue:
                pass
        return tuple(pools)

    def config(self, node: str) -> Config:
        """Felix's parameters on a node, as far as the datastore says."""
        stored = {
            key.name: {
                "spec": value.spec.set_fields(),
                "annotations": dict(value.metadata.annotations),
            }
            for key, value in self.of("FelixConfiguration")
        }
        return resolve(node, environ={}, file_text="", stored=stored).config

    def addresses(self, key: ResourceKey) -> tuple[IPAddress, ...]:
        """The addresses of an endpoint, as it is stored."""
        spec = self.objects[key].spec
        if key.kind == "WorkloadEndpoint":
            networks, _ = read_networks(spec.ipNetworks)
            return tuple(n.network_address for n in networks)
        addresses = []
        for text in spec.expectedIPs:
            try:
                addresses.append(ip_address(text))
            except ValueError:
                pass
        return tuple(addresses)

    def with_inherited(self, own: Labels, profiles: Iterable[str]) -> dict[str, str]:
        """Labels of an endpoint and those that its profiles hand down; the first of a name wins."""
        labels = dict(own)
        for name in profiles:
            profile = self.objects.get(ResourceKey("Profile", name))
            if profile is not None:
                for label, text in labels_to_apply(profile.spec.labelsToApply).items():
                    labels.setdefault(label, text)
        return labels

    def ports(self, key: ResourceKey | None) -> tuple[NamedPort, ...]:
        """The ports that an endpoint gives names to."""
        return () if key is None else named_ports(self.objects[key].spec.ports)

    def replaced(self, changes: Mapping[ResourceKey, Any]) -> World:
        """The world with some objects changed or (None) gone."""
        objects = {**self.objects, **changes}
        return World({k: v for k, v in objects.items() if v is not None}, self.unreadable)


@dataclass(frozen=True, slots=True)
class Calculation:
    """An engine in which some endpoints are local, and why others of them are not served."""

    engine: PolicyEngine
    refused: Mapping[ResourceKey, str]


def calculate(
    world: World, endpoints: Collection[ResourceKey], node: str = NOWHERE, *, staged: bool = False
) -> Calculation:
    """The calculation with these workload endpoints, and the host endpoints of `node`.

    With `staged`, staged policies are read too; they are in force nowhere.
    """
    engine = PolicyEngine(node)
    refused: dict[ResourceKey, str] = {}
    kinds = [kind for kind in KINDS if staged or not kind.startswith("Staged")]
    for kind in kinds:
        for key, value in world.of(kind):
            if key in endpoints and key.kind == "WorkloadEndpoint":
                try:
                    engine.put_local(key, from_resource(key, value))
                    continue
                except InvalidValue as error:
                    # As felix has it: absent on its node, known to the others.
                    refused[key] = str(error)
            engine.update(key, _elsewhere(value, node) if key.kind == "WorkloadEndpoint" else value)
    engine.start()
    engine.flush()
    return Calculation(engine, refused)


def _elsewhere(value: Any, node: str) -> Any:
    """The endpoint as one of another node: what counts of it for sets does not differ."""
    if value.spec.node != node:
        return value
    return replace(value, spec=replace(value.spec, node=f"not {node}"))


def _addresses_of(node: Any) -> frozenset[IPAddress]:
    result = set(node_facts(node.metadata.name, node).addresses)
    bgp = node.spec.bgp
    texts = [a.address for a in node.spec.addresses or ()]
    if bgp is not None:
        texts += [bgp.ipv4IPIPTunnelAddr]
    texts += [node.spec.ipv4VXLANTunnelAddr, node.spec.ipv6VXLANTunnelAddr]
    for text in filter(None, texts):
        try:
            result.add(read_network(text).network_address)
        except ValueError:
            pass
    return frozenset(result)
