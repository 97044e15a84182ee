"""Splitting a pool into equal smaller ones, without touching one address.

Blocks and allocations stay where they are: a child is never smaller than a block, so every
block lies in exactly one child. The datastore is locked meanwhile, so that no node claims a
block between two pools. Nothing is written unless the whole split is possible; who is
interrupted runs it again.

Source: docs/reference/data-model.md#calicoctl-ipam. Tested in tests/ipam/test_split.py and
tests/calicoctl/test_ipam.py.
"""

from __future__ import annotations

from msgspec.structs import replace

from ipam.records.pools import DEFAULT_BLOCK_SIZE
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
)
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata, stamp
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.pool import IPPool

NAME_LIMIT = 253
PER_COMMIT = 64


def plan(pool: IPPool, number: int) -> list[IPPool]:
    """The pools that a pool is split into; raises InvalidValue when it cannot be."""
    subject = f"IPPool({pool.metadata.name})"
    if number < 2 or number & (number - 1):
        raise InvalidValue("NUMBER", number, "must be a power of 2, at least 2", subject)
    network = pool.spec.network
    size = pool.spec.blockSize or DEFAULT_BLOCK_SIZE[network.version]
    length = network.prefixlen + number.bit_length() - 1
    if length > size:
        rule = (
            f"{pool.spec.cidr} holds only {1 << max(0, size - network.prefixlen)} blocks of /{size}"
        )
        raise InvalidValue("NUMBER", number, rule, subject)
    given = pool.metadata
    children = []
    for index, cidr in enumerate(network.subnets(new_prefix=length)):
        suffix = f"-{index}"
        name = f"split-{given.name}"[: NAME_LIMIT - len(suffix)] + suffix
        metadata = Metadata(name=name, labels=given.labels, annotations=given.annotations)
        children.append(replace(pool, metadata=metadata, spec=replace(pool.spec, cidr=str(cidr))))
    return children


async def split(store: Datastore, entry: Entry, number: int) -> list[IPPool]:
    """Replace a stored pool by `number` smaller ones; returns them.

    Raises InvalidValue when it cannot be split and `MuslinError` when others change it.
    """
    children = plan(entry.value, number)
    creations: list[Change] = []
    for child in children:
        key = ResourceKey("IPPool", child.metadata.name)
        stored = await store.get(key)
        if stored is None:
            creations.append(Put(key, stamp(child), ABSENT))
        elif stored.value.spec != child.spec:
            raise MuslinError(f"{key} exists already and is another pool: {stored.value.spec.cidr}")
    try:
        while len(creations) > PER_COMMIT:
            await store.commit(creations[:PER_COMMIT])
            creations = creations[PER_COMMIT:]
        await store.commit([*creations, Delete(entry.key, entry.revision)])
    except CommitConflict as conflict:
        raise MuslinError(f"{entry.key} was not split: {conflict}; try again") from None
    return children
