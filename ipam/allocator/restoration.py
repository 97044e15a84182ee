"""A node restores what was deleted of it while it runs.

A BlockAffinity that is deleted while its block stands makes all pods of the block unreachable
from other nodes: they believe claims. A block that is deleted forgets who has its addresses: made
anew and empty it would give 10.65.1.3 to a second pod while the first one runs.

Invariants (tests/ipam/test_restoration.py):
  IPAM-30  A claim that is gone while its block names the node is written again, before the node
           gives out an address.
  IPAM-32  What cannot be read has the addresses that its text holds; a block of which this cannot
           be said is not made.
  IPAM-31  A block is never created without the addresses of it that endpoints and tunnels of its
           owner have, nor without those that its owner remembers of what runs there; where the
           owner's claim stood already, also those of all other nodes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import msgspec

from ipam.records import blocks
from ipam.records.block_editor import BlockEditor
from ipam.records.blocks import IPAddress, parse_address
from ipam.records.errors import BlockInDoubt
from ipam.records.snapshot import tunnel_texts
from ipam.records.tunnel_kinds import TUNNELS
from libcalico import names
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import InvalidValue
from libcalico.model import Block, Node, WorkloadEndpoint, codec
from libcalico.model.keys import HandleKey, IPNetwork, ResourceKey

log = logging.getLogger(__name__)

SLICE = 100
_WORDS = (re.compile(r"\d+(?:\.\d+){3}"), re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f.:]+"))
"""What may be an address, by family."""


@dataclass(frozen=True, slots=True)
class Use:
    """An address that an object names: as it is to stand in its block."""

    address: IPAddress
    handle_id: str
    attributes: Mapping[str, str]


async def in_use(store: Datastore, cidr: IPNetwork, host: str = "") -> list[Use]:
    """The addresses of a block that endpoints and tunnels have: of all nodes, or of one.

    Handles name their container at the end, so most are found again; an address whose handle is
    gone too is in use without one. What cannot be decoded has every address that its text holds;
    raises `BlockInDoubt` where such a text holds none, and a handle has addresses of the block
    that nothing else explains.
    """
    prefix = names.workload_endpoint_prefix(host) if host else ""
    endpoints = await _read(store, Selection("WorkloadEndpoint", name_prefix=prefix, raw=True))
    nodes = await _read(store, Selection("Node", host=host, raw=True))
    having = [(one, inside_block) for one in endpoints if (inside_block := one.inside(cidr))]
    doubtful = [one for one in (*endpoints, *nodes) if one.silent]
    handles = await _handles(store, cidr) if having or doubtful else {}
    uses = [use for node in nodes for use in node.tunnels(cidr)]
    uses += [one.use(address, handles) for one, inside_block in having for address in inside_block]
    if doubtful:
        known = Counter(use.handle_id for use in uses)
        lost = [name for name, count in handles.items() if count > known[name]]
        if lost:
            raise BlockInDoubt(
                f"{cidr} is not made a block: handle {lost[0]} has addresses of it, and who "
                f"has them cannot be read: {'; '.join(one.broken for one in doubtful)}",
                cidr,
            )
    return uses


@dataclass(frozen=True, slots=True)
class _Object:
    """An endpoint or a node; `value` is None where `broken` says why it cannot be decoded."""

    key: ResourceKey | str
    value: Any
    text: str = ""
    broken: str = ""

    @property
    def silent(self) -> bool:
        """Whether its addresses are not known."""
        return bool(self.broken) and not any(_addresses(self.text))

    def inside(self, cidr: IPNetwork) -> list[IPAddress]:
        """The addresses of a block that an endpoint has."""
        return _inside(cidr, [self.text] if self.value is None else self.value.spec.ipNetworks)

    def use(self, address: IPAddress, handles: Iterable[str]) -> Use:
        """How an endpoint has an address."""
        if self.value is not None:
            return _of_endpoint(address, self.value, handles)
        named = {one: names.containers_of(one) for one in handles}
        container = (one for one in named if any(f'"{each}"' in self.text for each in named[one]))
        attributes = {"node": "", "namespace": ""}
        if isinstance(self.key, ResourceKey):
            attributes["namespace"] = self.key.namespace
            with suppress(InvalidValue):
                attributes["node"] = names.parse(self.key.name).node
        return Use(address, next(container, ""), {k: v for k, v in attributes.items() if v})

    def tunnels(self, cidr: IPNetwork) -> list[Use]:
        """The addresses of a block that are a node's tunnels'."""
        if self.value is not None:
            return _tunnels(self.value, cidr)
        name = self.key.name if isinstance(self.key, ResourceKey) else ""
        attributes = {"node": name} if name else {}
        return [Use(address, "", attributes) for address in _inside(cidr, [self.text])]


async def _read(store: Datastore, selection: Selection) -> list[_Object]:
    listing = await store.list(selection)
    objects = [_Object(path, None, "", reason) for path, reason in listing.broken]
    for number, entry in enumerate(listing.entries):
        if number % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        assert isinstance(entry.key, ResourceKey)
        text = entry.raw.decode(errors="replace")
        try:
            objects.append(_Object(entry.key, codec.decode_value(entry.key, entry.raw), text))
        except (InvalidValue, ValueError, RecursionError) as error:
            log.warning("what cannot be read has the addresses in its text: %s", error)
            objects.append(_Object(entry.key, None, text, str(error)))
    return objects


async def _handles(store: Datastore, cidr: IPNetwork) -> dict[str, int]:
    """How many addresses of a block each handle has."""
    counts = {}
    for entry in (await store.list(Selection("Handle"))).entries:
        count = (entry.value.block or {}).get(str(cidr), 0)
        if isinstance(entry.key, HandleKey) and count:
            counts[entry.key.handle_id] = count
    return counts


def _addresses(text: str) -> Iterator[IPAddress]:
    """Every address that a text holds."""
    for word in (word for words in _WORDS for word in words.findall(text)):
        with suppress(ValueError):
            yield parse_address(word)


def _inside(cidr: IPNetwork, texts: Sequence[str]) -> list[IPAddress]:
    """The addresses of a block in some texts, each once."""
    addresses = dict.fromkeys(address for text in texts for address in _addresses(text))
    return [one for one in addresses if one.version == cidr.version and one in cidr]


def _tunnels(node: Node, cidr: IPNetwork) -> list[Use]:
    here = set(_inside(cidr, tunnel_texts(node)))
    name = node.metadata.name
    return [
        Use(ip_address(text), tunnel.handle_id(name), tunnel.attributes(name))
        for tunnel in TUNNELS
        for text in [tunnel.recorded(node)]
        if here.intersection(_inside(cidr, [text]))
    ]


def _of_endpoint(address: IPAddress, endpoint: WorkloadEndpoint, handles: Iterable[str]) -> Use:
    spec = endpoint.spec
    container = spec.containerID
    handle = next((one for one in handles if container in names.containers_of(one)), "")
    attributes = {"node": spec.node, "pod": spec.pod, "namespace": endpoint.metadata.namespace}
    return Use(address, handle, {name: text for name, text in attributes.items() if text})


def filled(block: Block, uses: Sequence[Use]) -> Block:
    """The block with these addresses in use, each once."""
    edit = BlockEditor(block)
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
