"""What somebody deletes under a living node is put back by the node that owns it.

A BlockAffinity that is deleted while its block stands makes all pods of the block unreachable
from other nodes: they believe claims. A block that is deleted forgets who has its addresses: made
anew and empty it would give 10.65.1.3 to a second pod while the first one runs.

Invariants (tests/ipam/test_restoration.py):
  IPAM-30  A claim that is gone while its block names the node is written again, before the node
           gives out an address.
  IPAM-31  A block is never created without the addresses of it that endpoints and tunnels of its
           owner have; where the owner's claim stood already, those of all nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import msgspec

from ipam import blocks
from ipam.blocks import IPAddress, parse_address
from ipam.edit import Edit
from ipam.snapshot import tunnel_texts
from ipam.tunnel_kinds import TUNNELS
from libcalico import names
from libcalico.datastore.interface import Datastore, Selection
from libcalico.model import Block, Node, WorkloadEndpoint
from libcalico.model.keys import HandleKey, IPNetwork, ResourceKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Use:
    """An address that an object names: as it is to stand in its block."""

    address: IPAddress
    handle_id: str
    attributes: Mapping[str, str]


async def in_use(store: Datastore, cidr: IPNetwork, host: str = "") -> list[Use]:
    """The addresses of a block that endpoints and tunnels have: of all nodes, or of one.

    Handles name their container at the end, so most are found again; an address whose handle is
    gone too is in use without one.
    """
    prefix = names.workload_endpoint_prefix(host) if host else ""
    listing = await store.list(Selection("WorkloadEndpoint", name_prefix=prefix))
    endpoints = {
        address: entry.value
        for entry in listing.entries
        for address in _inside(cidr, entry.value.spec.ipNetworks)
    }
    tunnels = [use for node in await _nodes(store, host) for use in _tunnels(node, cidr)]
    if not endpoints:
        return tunnels
    handles = [
        entry.key.handle_id
        for entry in (await store.list(Selection("Handle"))).entries
        if isinstance(entry.key, HandleKey) and str(cidr) in (entry.value.block or {})
    ]
    return tunnels + [_of_endpoint(address, one, handles) for address, one in endpoints.items()]


async def _nodes(store: Datastore, host: str) -> list[Node]:
    if not host:
        return [entry.value for entry in (await store.list(Selection("Node"))).entries]
    entry = await store.get(ResourceKey("Node", host))
    return [entry.value] if entry else []


def _inside(cidr: IPNetwork, texts: Sequence[str]) -> list[IPAddress]:
    found = []
    for text in texts:
        try:
            address = parse_address(text)
        except ValueError:
            continue
        if address.version == cidr.version and address in cidr:
            found.append(address)
    return found


def _tunnels(node: Node, cidr: IPNetwork) -> list[Use]:
    here = set(_inside(cidr, tunnel_texts(node)))
    name = node.metadata.name
    return [
        Use(ip_address(text), tunnel.handle_id(name), tunnel.attributes(name))
        for tunnel in TUNNELS
        for text in [tunnel.recorded(node)]
        if here.intersection(_inside(cidr, [text]))
    ]


def _of_endpoint(address: IPAddress, endpoint: WorkloadEndpoint, handles: Sequence[str]) -> Use:
    spec = endpoint.spec
    container = spec.containerID
    handle = next((one for one in handles if one.rpartition(".")[2] == container), "")
    attributes = {"node": spec.node, "pod": spec.pod, "namespace": endpoint.metadata.namespace}
    return Use(address, handle, {name: text for name, text in attributes.items() if text})


def filled(block: Block, uses: Sequence[Use]) -> Block:
    """The block with these addresses in use, each once."""
    edit = Edit(block)
    for use in uses:
        ordinal = blocks.ordinal_of(block, use.address)
        if edit.is_free(ordinal):
            edit.give([ordinal], use.handle_id or None, use.attributes)
    return edit.result()


def put_back(known: Block | None, fresh: Block, uses: Sequence[Use]) -> Block:
    """The block to be created where one was deleted: as it was known, and with what is in use.

    An address that was released meanwhile is in use again: it leaks, and the collector finds it.
    """
    if known is None or known.owner != fresh.owner or blocks.problem(known):
        return filled(fresh, uses)
    later = max(known.sequenceNumber + 1, fresh.sequenceNumber)
    return filled(msgspec.structs.replace(known, sequenceNumber=later), uses)


def tell(cidr: IPNetwork, what: str, block: Block) -> None:
    """One line for the operator: what was deleted, and that it is back."""
    log.warning(
        "%s deleted while addresses of the block are in use: written again",
        what,
        extra={"block": str(cidr), "in_use": blocks.used_count(block)},
    )
