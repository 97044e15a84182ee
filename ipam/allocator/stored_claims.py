"""The claims that the datastore holds, and the blocks that they are about.

Tested in tests/ipam/test_claims.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ipaddress import ip_network

from ipam.records import blocks
from libcalico.datastore.interface import (
    Datastore,
    Entry,
    Selection,
)
from libcalico.errors import InvalidValue
from libcalico.model.keys import AffinityKey, BlockKey, IPNetwork

log = logging.getLogger(__name__)


async def readable(store: Datastore, keys: Sequence[BlockKey]) -> dict[BlockKey, Entry | None]:
    """The stored entries of these keys, without the blocks that cannot be read.

    Those are neither free nor usable; each is logged, and the others serve (IPAM-13).
    """
    try:
        stored = await store.get_many(keys)
        return {key: stored[key] for key in keys}
    except InvalidValue:
        pass
    read: dict[BlockKey, Entry | None] = {}
    for key in keys:
        try:
            read[key] = await store.get(key)
        except InvalidValue as error:
            log.error("block cannot be read, not used: %s", error, extra={"block": str(key.cidr)})
    return read


async def claims_of(store: Datastore, host: str) -> list[Entry]:
    """The stored claims of an owner, in any state."""
    virtual = host.startswith(blocks.VIRTUAL)
    listing = await store.list(Selection("BlockAffinity", host="" if virtual else host))
    return [
        entry
        for entry in listing.entries
        if isinstance(entry.key, AffinityKey) and owner_of(entry.key) == blocks.owner_text(host)
    ]


def claimed_network(affinity: Entry) -> IPNetwork:
    """The block that a stored claim is about."""
    assert isinstance(affinity.key, AffinityKey)
    return affinity.key.cidr


def owner_of(key: AffinityKey) -> str:
    """The owner's text in the block that this claim is about."""
    return f"{key.kind}:{key.host}"


def key_of(host: str, cidr: IPNetwork) -> AffinityKey:
    """The key of an owner's claim on a block."""
    kind, _, name = blocks.owner_text(host).partition(":")
    return AffinityKey(name, cidr, kind)


def affinity_key(entry: Entry) -> AffinityKey | None:
    """The key of the claim that a block's owner must hold, or None without such an owner."""
    owner = entry.value.owner
    kind, _, name = (owner or "").partition(":")
    return AffinityKey(name, ip_network(entry.value.cidr), kind) if name else None
