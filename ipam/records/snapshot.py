"""Everything that says who has which address, read together: what `ipam.admin.check` judges.

A snapshot is several listings, one after the other, so on a living cluster an address may be
given out between two of them. Endpoints and nodes are read before and after the blocks: an
address counts as in use if either reading names it, so that a change on the way cannot look
like a leak. What remains in doubt, a second snapshot settles (`ipam.admin.check.confirmed`).

Source: docs/reference/data-model.md#ipam-keys, #calicoctl-ipam. Tested in
tests/calicoctl/test_ipam.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ipam.records.blocks import IPAddress
from ipam.records.endpoints import sorted_out
from ipam.records.pools import Pool, reserved_networks
from ipam.records.pools import sorted_out as sorted_out_pools
from libcalico.datastore.interface import Datastore, Entry, Listing, Selection
from libcalico.model import Block, BlockAffinity, Handle, IPAMConfig, Node, WorkloadEndpoint
from libcalico.model.keys import AffinityKey, HandleKey, IPAMConfigKey, IPNetwork
from libcalico.model.kinds import KINDS
from libcalico.model.resources.ipam import DEFAULT_IPAM_CONFIG


@dataclass(frozen=True, slots=True)
class User:
    """The user of an address: `Workload(ns/name)` or `Node(name)`.

    `pod` is `namespace/pod` where the endpoint names one.
    """

    name: str
    node: str = ""
    pod: str = ""
    tunnel: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Plain values, no entries: a test may write one down.

    `services` are the addresses of load-balancer services, or None where they could not be listed:
    then no address of such a service is called unused. `unreadable` holds (key, reason).
    """

    blocks: tuple[Block, ...] = ()
    affinities: Mapping[AffinityKey, BlockAffinity] = field(default_factory=dict)
    handles: Mapping[str, Handle] = field(default_factory=dict)
    handle_revisions: Mapping[str, int] = field(default_factory=dict)
    users: Mapping[IPAddress, tuple[User, ...]] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    pools: tuple[Pool, ...] = ()
    reservations: tuple[IPNetwork, ...] = ()
    services: frozenset[IPAddress] | None = None
    config: IPAMConfig = DEFAULT_IPAM_CONFIG
    unreadable: tuple[tuple[str, str], ...] = ()


async def read(store: Datastore) -> Snapshot:
    """Read a snapshot; values that cannot be decoded are named in it. Raises DatastoreError."""
    before = await _users(store)
    pools = await store.list(Selection("IPPool"))
    reservations = await _reservations(store)
    config = await store.get(IPAMConfigKey())
    affinities = await store.list(Selection("BlockAffinity"))
    handles = await store.list(Selection("Handle"))
    blocks = await store.list(Selection("Block"))
    after = await _users(store)
    listings = (pools, reservations, affinities, handles, blocks)
    unreadable = [pair for listing in listings for pair in listing.broken]
    usable, unusable = sorted_out_pools(pools.entries)
    users: dict[IPAddress, dict[User, None]] = {}
    for by_address in (before[0], after[0]):
        for address, known in by_address.items():
            users.setdefault(address, {}).update(dict.fromkeys(known))
    return Snapshot(
        blocks=tuple(entry.value for entry in blocks.entries),
        affinities={
            entry.key: entry.value
            for entry in affinities.entries
            if isinstance(entry.key, AffinityKey)
        },
        handles={_id(entry): entry.value for entry in handles.entries},
        handle_revisions={_id(entry): entry.revision for entry in handles.entries},
        users={address: tuple(known) for address, known in users.items()},
        nodes=before[1] | after[1],
        pools=tuple(usable),
        reservations=tuple(reserved_networks(entry.value for entry in reservations.entries)),
        config=config.value if config else DEFAULT_IPAM_CONFIG,
        unreadable=tuple(dict.fromkeys([*unreadable, *unusable, *before[2], *after[2]])),
    )


Users = tuple[dict[IPAddress, list[User]], frozenset[str], list[tuple[str, str]]]


async def _users(store: Datastore) -> Users:
    endpoints = await store.list(Selection("WorkloadEndpoint"))
    nodes = await store.list(Selection("Node"))
    by_address: dict[IPAddress, list[User]] = {}
    unusable: list[tuple[str, str]] = []
    for entry in endpoints.entries:
        addresses, wrong = sorted_out(entry.value.spec.ipNetworks)
        unusable += [(str(entry.key), f"spec.ipNetworks: {text!r} is no address") for text in wrong]
        for address in addresses:
            by_address.setdefault(address, []).append(endpoint_user(entry.value))
    for entry in nodes.entries:
        # A Node whose address cannot be read uses none; another check reports it.
        for address in sorted_out(tunnel_texts(entry.value))[0]:
            name = entry.value.metadata.name
            by_address.setdefault(address, []).append(User(f"Node({name})", name, tunnel=True))
    names = frozenset(entry.value.metadata.name for entry in nodes.entries)
    unreadable = [*endpoints.broken, *nodes.broken, *unusable]
    return by_address, names, unreadable


def endpoint_user(endpoint: WorkloadEndpoint) -> User:
    """An endpoint as the user of its addresses."""
    meta, spec = endpoint.metadata, endpoint.spec
    pod = f"{meta.namespace}/{spec.pod}" if spec.pod else ""
    return User(f"Workload({meta.namespace}/{meta.name})", spec.node, pod)


def tunnel_texts(node: Node) -> list[str]:
    """The tunnel addresses that a node records, of both families; empty ones left out."""
    spec = node.spec
    texts = [spec.ipv4VXLANTunnelAddr, spec.ipv6VXLANTunnelAddr]
    if spec.wireguard:
        texts += [spec.wireguard.interfaceIPv4Address, spec.wireguard.interfaceIPv6Address]
    if spec.bgp:
        texts.append(spec.bgp.ipv4IPIPTunnelAddr)
    return [text for text in texts if text]


async def _reservations(store: Datastore) -> Listing:
    if "IPReservation" not in KINDS:
        return Listing([], 0, [])
    return await store.list(Selection("IPReservation"))


def _id(entry: Entry) -> str:
    assert isinstance(entry.key, HandleKey)
    return entry.key.handle_id
