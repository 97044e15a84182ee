"""What a source or a destination means: a pod, a host, or an address outside the cluster.

Written as an operator writes it: `namespace/pod`, `pod` (of the namespace asked for), an address,
`node:NAME`, or the name of a host endpoint, which `hep:NAME` says without doubt.

Tested in tests/felix/explain/test_explain.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from felix.calc.policy_model import ANY_INTERFACE
from felix.explain.flow import IPAddress
from felix.explain.world import World
from libcalico.errors import MuslinError
from libcalico.model import ResourceKey


class What(Enum):
    """What an end is."""

    POD = "pod"
    HOST = "host"
    OUTSIDE = "address"


@dataclass(frozen=True, slots=True)
class End:
    """One end of a flow. `endpoint` is what policy judges it by, None where nothing does."""

    what: What
    title: str
    addresses: tuple[IPAddress, ...]
    node: str = ""
    endpoint: ResourceKey | None = None
    note: str = ""

    def address(self, version: int) -> IPAddress | None:
        """Its (first) address of a family."""
        return next((a for a in self.addresses if a.version == version), None)

    def require_address(self, version: int) -> IPAddress:
        """The same. Raises MuslinError where it has none of the family."""
        address = self.address(version)
        if address is None:
            raise MuslinError(f"{self.title} has no IPv{version} address")
        return address


def find(world: World, text: str, namespace: str = "default") -> End:
    """The end that is meant. Raises MuslinError naming what there is not."""
    try:
        address = ip_address(text)
    except ValueError:
        pass
    else:
        return of_address(world, address)
    if text.startswith("node:"):
        return _node(world, text.removeprefix("node:"))
    if text.startswith("hep:"):
        return _host_endpoint(world, text.removeprefix("hep:"))
    if "/" not in text and ResourceKey("HostEndpoint", text) in world.objects:
        return _host_endpoint(world, text)
    title = text if "/" in text else f"{namespace}/{text}"
    keys = world.pods.get(title)
    if not keys:
        others = [t for t in sorted(world.pods) if t.partition("/")[2] == title.partition("/")[2]]
        hint = f"; there is {', '.join(others[:3])}" if others else ""
        raise MuslinError(
            f"{text} is no address, and neither a pod {title} nor a host endpoint {text}"
            f" is stored{hint}"
        )
    key = min(keys)
    note = ""
    if len(keys) > 1:
        note = f"{title} has {len(keys)} interfaces; this is about {key.name}"
    return _pod(world, key, note)


def of_address(world: World, address: IPAddress) -> End:
    """The owner of an address."""
    key = world.owners.get(address)
    if key is not None:
        end = _pod(world, key)
        others = tuple(a for a in end.addresses if a != address)
        return End(end.what, end.title, (address, *others), end.node, key)
    for key, _ in sorted(world.of("HostEndpoint")):
        if address in world.addresses(key):
            end = _host_endpoint(world, key.name)
            return End(end.what, end.title, (address,), end.node, key)
    for node, addresses in sorted(world.nodes.items()):
        if address in addresses:
            end = _node(world, node)
            return End(end.what, end.title, (address,), node, end.endpoint, end.note)
    return End(What.OUTSIDE, str(address), (address,))


def _pod(world: World, key: ResourceKey, note: str = "") -> End:
    spec = world.objects[key].spec
    title = f"{key.namespace}/{spec.pod or spec.workload}"
    return End(What.POD, title, world.addresses(key), spec.node, key, note)


def _host_endpoint(world: World, name: str) -> End:
    key = ResourceKey("HostEndpoint", name)
    if key not in world.objects:
        raise MuslinError(f"there is no host endpoint {name}")
    spec = world.objects[key].spec
    own = world.addresses(key)
    addresses = own or tuple(sorted(world.nodes.get(spec.node, ()), key=lambda a: (a.version, a)))
    if not addresses:
        raise MuslinError(
            f"host endpoint {name}: neither it nor its node {spec.node} has an address;"
            " name an address instead"
        )
    return End(What.HOST, f"host endpoint {name}", addresses, spec.node, key)


def _node(world: World, name: str) -> End:
    if name not in world.nodes:
        raise MuslinError(f"there is no node {name}")
    addresses = tuple(sorted(world.nodes[name], key=lambda a: (a.version, a)))
    endpoint, note = _likely(world, name, addresses)
    return End(What.HOST, f"node {name}", addresses, name, endpoint, note)


def _likely(
    world: World, node: str, addresses: tuple[IPAddress, ...]
) -> tuple[ResourceKey | None, str]:
    """The host endpoint of a node that has these addresses, as far as the datastore says."""
    mine = sorted(key for key, value in world.of("HostEndpoint") if value.spec.node == node)
    for key in mine:
        if set(world.addresses(key)) & set(addresses):
            return key, ""
    named = [k for k in mine if world.objects[k].spec.interfaceName not in ("", ANY_INTERFACE)]
    every = [k for k in mine if world.objects[k].spec.interfaceName == ANY_INTERFACE]
    if named:
        names = ", ".join(key.name for key in named)
        return (every or named)[0], (
            f"which interface has this address only the node knows: it has the host endpoints"
            f" {names}; name one, or ask with --live there"
        )
    return (every[0] if every else None), ""
