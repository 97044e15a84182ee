"""A new pool must not contain addresses that are in use outside of it already.

A pool that covers the nodes' own network cuts nodes off; one that covers the service range
swallows services; two pools over one range hand out an address twice. The datastore knows
enough to say so before the pool exists: addresses and masks of the Nodes, service ranges of
the BGPConfigurations, the other pools and their blocks. A node adds the routes of its kernel
when it chooses the default pool. An error names three networks that are free.

Invariants:
  POOL-1  No two pools of different block sizes overlap, and no pool holds a block of another
          size than its own; nothing overrides that.
  POOL-2  A network offered as free overlaps nothing that is known.
What may overlap on purpose: a disabled pool gives out nothing (it marks networks that are not
to be translated), and a LoadBalancer pool often is a part of the nodes' network.

Source: docs/reference/data-model.md#ippool (client rules), field survey PAIN-5 and PAIN-6.
Tested in tests/ipam/test_overlap.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv6Network, ip_interface, ip_network

from ipam.records.pools import DEFAULT_BLOCK_SIZE, Pool, usable
from ipam.records.snapshot import tunnel_texts
from libcalico import pools
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import InvalidValue
from libcalico.model.keys import BlockKey, IPNetwork
from libcalico.model.resources.node import Node
from libcalico.model.resources.pool import IPPool

CANDIDATES = 3
LOAD_BALANCER = "LoadBalancer"
PRIVATE = tuple(
    ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
USUAL_RESIDENTS = tuple(
    ip_network(text) for text in ("10.96.0.0/12", "10.43.0.0/16", "172.17.0.0/16", "192.168.0.0/23")
)
"""Where kubeadm and k3s put services, Docker its bridge, and homes their router."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A network in use: `what` names its user as an error message does."""

    cidr: IPNetwork
    what: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The networks in use. `hosts`: networks, addresses and routes of nodes."""

    pools: tuple[Pool, ...] = ()
    blocks: tuple[IPNetwork, ...] = ()
    hosts: tuple[Taken, ...] = ()
    services: tuple[Taken, ...] = ()
    advertised: tuple[Taken, ...] = field(default=())

    def all(self) -> Iterator[IPNetwork]:
        """Every network that a free one must not overlap."""
        yield from (pool.cidr for pool in self.pools)
        yield from self.blocks
        for taken in (*self.hosts, *self.services, *self.advertised):
            yield taken.cidr


async def read_facts(store: Datastore, routes: Iterable[Taken] = ()) -> Facts:
    """The networks of the datastore and the caller's `routes`. Raises DatastoreError."""
    stored = (await store.list(Selection("IPPool"))).entries
    blocks = (await store.list(Selection("Block"))).entries
    nodes = (await store.list(Selection("Node"))).entries
    settings = (await store.list(Selection("BGPConfiguration"))).entries
    networks = tuple(entry.key.cidr for entry in blocks if isinstance(entry.key, BlockKey))
    hosts = [taken for entry in nodes for taken in node_networks(entry.value, networks)]
    return Facts(
        pools=tuple(usable(stored)),
        blocks=networks,
        hosts=(*hosts, *routes),
        services=tuple(_ranges(settings, "serviceClusterIPs", "the service range")),
        advertised=(
            *_ranges(settings, "serviceExternalIPs", "the external service addresses"),
            *_ranges(settings, "serviceLoadBalancerIPs", "the load-balancer addresses"),
        ),
    )


def node_networks(node: Node, blocks: Sequence[IPNetwork] = ()) -> list[Taken]:
    """The networks of a Node: its addresses with their masks, its interfaces, its tunnels.

    A tunnel address out of an IPAM block is IPAM's own business.
    """
    name, spec = node.metadata.name, node.spec
    texts = [spec.bgp.ipv4Address, spec.bgp.ipv6Address] if spec.bgp else []
    texts += [address.address for address in spec.addresses]
    texts += [text for interface in spec.interfaces for text in interface.addresses]
    networks: dict[IPNetwork, Taken] = {}
    for text in texts:
        # An address of a Node may be a host name; that says nothing about networks.
        with suppress(ValueError):
            interface = ip_interface(text)
            if not interface.ip.is_link_local and not interface.ip.is_loopback:
                network = interface.network
                networks.setdefault(
                    network, Taken(network, f"the network {network} of Node({name})")
                )
    for text in tunnel_texts(node):
        with suppress(ValueError):
            address = ip_network(text.partition("/")[0])
            if not any(_overlap(address, block) for block in blocks):
                networks.setdefault(address, Taken(address, f"tunnel {text} of Node({name})"))
    return list(networks.values())


def problems(pool: IPPool, facts: Facts) -> list[str]:
    """The foreign networks that a pool overlaps, each in a few words. Pure."""
    network = pool.spec.network
    overlaps = [
        f"IPPool({other.name}) of {other.cidr}"
        for other in facts.pools
        if other.name != pool.metadata.name and _overlap(other.cidr, network)
    ]
    if pool.spec.disabled:
        return overlaps
    taken = list(facts.services)
    if LOAD_BALANCER not in pool.spec.allowedUses:
        taken = [*facts.hosts, *taken, *facts.advertised]
    return overlaps + [one.what for one in taken if _overlap(one.cidr, network)]


def candidates(network: IPNetwork, facts: Facts, count: int = CANDIDATES) -> list[IPNetwork]:
    """Free networks as large as `network`, at most `count`; spread over the private ranges."""
    busy = [net for net in facts.all() if net.version == network.version]
    if network.version == 6:
        return _free_v6(network, busy, count)
    walks = [_free_v4(net, network.prefixlen, busy, USUAL_RESIDENTS) for net in PRIVATE]
    walks += [_free_v4(net, network.prefixlen, busy, ()) for net in PRIVATE]
    networks: dict[IPNetwork, None] = {}
    # One of each range first: a site that cannot use 10.0.0.0/8 finds another.
    for _ in range(count):
        for walk in walks:
            for free in walk:
                if free not in networks:
                    networks[free] = None
                    break
            if len(networks) == count:
                return list(networks)
    return list(networks)


def _free_v4(
    within: IPNetwork, length: int, busy: Sequence[IPNetwork], avoid: Sequence[IPNetwork]
) -> Iterator[IPNetwork]:
    if length < within.prefixlen:
        return
    blocked = [net for net in (*busy, *avoid) if _overlap(net, within)]
    width = 1 << (32 - length)
    start, end = int(within.network_address), int(within.broadcast_address)
    while start + width - 1 <= end:
        candidate = ip_network((start, length))
        hit = [net for net in blocked if _overlap(net, candidate)]
        if not hit:
            yield candidate
            start += width
            continue
        # Behind the last of what is in the way, at the next multiple of the width: `start` is one.
        behind = max(int(net.broadcast_address) for net in hit) + 1
        start = -(-behind // width) * width


def _free_v6(network: IPNetwork, busy: Sequence[IPNetwork], count: int) -> list[IPNetwork]:
    """Unique local networks (RFC 4193); the same question gets the same answer."""
    networks: list[IPNetwork] = []
    for turn in range(1000):
        seed = blake2b(f"{network} {turn}".encode(), digest_size=5).digest()
        free = IPv6Network((b"\xfd" + seed + bytes(10), max(network.prefixlen, 48)))
        if network.prefixlen < 48:
            free = free.supernet(new_prefix=max(network.prefixlen, 8))
        if not any(_overlap(free, net) for net in (*busy, *networks)):
            networks.append(free)
        if len(networks) == count:
            break
    return networks


def check(
    pool: IPPool, facts: Facts, allow_overlap: bool = False, override: str = "--allow-overlap"
) -> None:
    """Refuse a pool that may not be created beside what is known. Raises InvalidValue.

    With `allow_overlap` only POOL-1 is kept; `override` is how the operator says so.
    """
    overlaps = problems(pool, facts)
    if overlaps and not allow_overlap:
        free = ", ".join(str(net) for net in candidates(pool.spec.network, facts))
        raise InvalidValue(
            "spec.cidr",
            pool.spec.cidr,
            f"overlaps {_some(overlaps)}; free are {free or 'no networks of this size'}"
            f" ({override} stores it all the same)",
            f"IPPool({pool.metadata.name})",
        )
    others = facts.pools
    if allow_overlap:
        size = pool.spec.blockSize or DEFAULT_BLOCK_SIZE[pool.spec.network.version]
        others = tuple(other for other in facts.pools if other.block_size != size)
    pools.check_create(pool, ((other.name, other.cidr) for other in others), facts.blocks)


async def check_pool(
    store: Datastore, new: IPPool, old: IPPool | None = None, allow_overlap: bool = False
) -> None:
    """What a writer asks before it stores a pool: a new one, or one that becomes enabled.

    Raises InvalidValue.
    """
    if old is None:
        check(new, await read_facts(store), allow_overlap)
    elif old.spec.disabled and not new.spec.disabled and not allow_overlap:
        check(new, await read_facts(store))


def _some(texts: Sequence[str], shown: int = 3) -> str:
    rest = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + rest


def _ranges(settings: Iterable[Entry], name: str, what: str) -> Iterator[Taken]:
    for entry in settings:
        for one in getattr(entry.value.spec, name, None) or []:
            with suppress(ValueError):
                cidr = ip_network(one.cidr, strict=False)
                yield Taken(cidr, f"{what} {cidr} of BGPConfiguration({entry.value.metadata.name})")


def _overlap(one: IPNetwork, other: IPNetwork) -> bool:
    return one.version == other.version and one.overlaps(other)
