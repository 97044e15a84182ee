"""A node's claim on a block: pending, then the block, then confirmed.

Calico's state machine, step by step, so that both implementations may claim from one etcd.
Where Calico writes the block and then confirms, one transaction does both here; the states
that others can see are a subset of Calico's.

Invariants (tests/ipam/test_claims.py):
  IPAM-10  A block is created only while its owner's affinity stands, and used only while the
           affinity is confirmed and the block names the owner. An affinity that was confirmed
           stays so while its deleted block is made again: another node that comes
           meanwhile, or after a crash, must see that the block had an owner (IPAM-33).
  IPAM-14  A block is created only while its pool is as it was when the block was chosen, so
           that no edit of a pool can make two blocks overlap.
  IPAM-33  A block that is gone while another node's confirmed claim on it stands is not claimed:
           pods there may have its addresses, and their node writes the block again.
  IPAM-11  An affinity is removed only after its block is gone or has lost its owner; where
           the owner was faster, its claim stands as before.

Source: docs/reference/data-model.md#block-affinities.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

from ipam.allocator import restoration
from ipam.allocator.stored_claims import (
    key_of,
    owner_of,
    readable,
)
from ipam.allocator.view import View
from ipam.records import blocks, sizes
from ipam.records.errors import BlockExpected, BlockInDoubt, PoolEdited
from ipam.records.naming import rfc3339
from ipam.records.pools import Pool
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    Check,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Block, BlockAffinity
from libcalico.model.keys import AffinityKey, BlockKey, IPNetwork, ResourceKey
from libcalico.model.resources.ipam import CONFIRMED, PENDING

log = logging.getLogger(__name__)

Clock = Callable[[], int]


async def claim(
    store: Datastore,
    view: View,
    host: str,
    cidr: IPNetwork,
    clock: Clock = time.time_ns,
    pool: Pool | None = None,
    *,
    known_claim: bool = False,
) -> bool:
    """Make `cidr` a block of `host`; False if another owner was faster.

    With `known_claim` the host had the block: what all nodes use of it is sought (IPAM-31).
    Raises `BlockOverlaps` where a block of another size lies (IPAM-16), `BlockExpected` where
    another node's block was deleted (IPAM-33), `BlockInDoubt` where what is in use cannot be read
    (IPAM-32) or is another machine's to say (CNI-73), `PoolEdited` if `pool`, where its revision
    is known, is not as it was (IPAM-14), and `CommitConflict` if another writer keeps changing
    the affinity itself.
    """
    affinity_key, block_key = key_of(host, cidr), BlockKey(cidr)
    await sizes.require_room(store, cidr)
    known_claim = known_claim or await _was_ours(store, host, cidr)
    # Before anything is written: it may be refused.
    block = await to_create(store, view, host, cidr, clock(), known_claim)
    affinity = await _confirmed(store, affinity_key) if known_claim else None
    affinity = affinity or await _set_pending(store, affinity_key)
    create: list[Change] = [
        Put(block_key, block, ABSENT),
        Put(affinity_key, BlockAffinity(state=CONFIRMED), affinity.revision, affinity),
    ]
    pool_key = ResourceKey("IPPool", pool.name) if pool and pool.revision else None
    if pool and pool_key:
        create.append(Check(pool_key, pool.revision))
    try:
        await write_block(store, view, create, again=not blocks.is_empty(block))
    except CommitConflict as conflict:
        if pool and pool_key and _edited(conflict, pool_key, pool.revision):
            with suppress(CommitConflict):
                await _withdraw(store, affinity)
            raise PoolEdited(f"pool {pool.name} was changed while a block was claimed") from None
        stored = await readable(store, [block_key])
        if block_key not in stored:
            await _withdraw(store, affinity)
            return False
        existing = stored[block_key]
        if existing is None:
            raise
        return await settle_existing(store, view, host, affinity, existing)
    if blocks.is_empty(block):
        log.info("block claimed", extra={"block": str(cidr), "node": host})
    else:
        restoration.tell(cidr, "the block was", block)
    return True


async def write_block(
    store: Datastore, view: View, changes: Sequence[Change], *, again: bool
) -> None:
    """Commit; the first change is the block's. `again`: it is made anew with addresses in use,
    which the node hears of (`OwnNode.made_again`) also where the outcome is not known.

    Raises `CommitConflict`, DatastoreError.
    """
    try:
        view.wrote(changes[:1], await store.commit(changes))
    except DatastoreUnavailable:
        if again:
            view.own.made_again()
        raise
    if again:
        view.own.made_again()


async def _withdraw(store: Datastore, affinity: Entry) -> None:
    """Take a claim back that was begun; one that stood before stays."""
    if not affinity.value.confirmed:
        await store.commit([Delete(affinity.key, affinity.revision)])


async def _confirmed(store: Datastore, key: AffinityKey) -> Entry | None:
    affinity = await store.get(key)
    return affinity if affinity and affinity.value.confirmed else None


async def _was_ours(store: Datastore, host: str, cidr: IPNetwork) -> bool:
    """Whether the block is gone and this host's confirmed claim stands; raises `BlockExpected` if
    another owner's does.

    A claim is confirmed together with its block or after it, and goes after it: such a block was
    deleted by another writer, and what its owner runs is known to the owner alone.
    """
    async with aclosing(pages_of(store, Selection("BlockAffinity"))) as pages:  # type: ignore[type-var]
        async for page in pages:
            for entry in page.entries:
                if (
                    not isinstance(entry.key, AffinityKey)
                    or entry.key.cidr != cidr
                    or not entry.value.confirmed
                    or await store.get(BlockKey(cidr)) is not None
                ):
                    continue
                if owner_of(entry.key) == blocks.owner_text(host):
                    return True
                raise BlockExpected(
                    f"{cidr} is not claimed: it was deleted under {owner_of(entry.key)}, whose "
                    "claim stands; that node writes it again with what it runs. Delete the "
                    "claim as well if the node is no more",
                    cidr,
                )
    return False


async def to_create(
    store: Datastore, view: View, host: str, cidr: IPNetwork, now: int, known_claim: bool
) -> Block:
    """A new block, with all that is in use of it already (IPAM-31)."""
    fresh = blocks.create(cidr, blocks.owner_text(host), rfc3339(now), now)
    if host.startswith(blocks.VIRTUAL):
        return fresh
    if not known_claim:
        return restoration.filled(fresh, await in_use(store, view, cidr, host))
    if reason := await view.own.foreign():
        # What this machine remembers of the block, and what it does not, is another's.
        raise BlockInDoubt(f"{cidr} is not written again: {reason}", cidr)
    known = view.before(BlockKey(cidr))
    return restoration.put_back(known, fresh, await in_use(store, view, cidr))


async def in_use(
    store: Datastore, view: View, cidr: IPNetwork, host: str = ""
) -> list[restoration.Use]:
    """The addresses of a block that its owner's pods have, stored or only remembered, and others'.

    An endpoint may have been deleted as well: its pod runs on. `host`: of its endpoints alone.
    """
    uses = {use.address: use for use in view.own.remembered(cidr)}
    for use in await restoration.in_use(store, cidr, host):
        # Of two that name a container the stored one counts.
        if use.handle_id or use.address not in uses:
            uses[use.address] = use
    return list(uses.values())


def _edited(conflict: CommitConflict, key: ResourceKey, revision: int) -> bool:
    if key not in conflict.current:
        return False  # another guard did not hold
    entry = conflict.current[key]
    return entry is None or entry.revision != revision


async def _set_pending(store: Datastore, key: AffinityKey) -> Entry:
    # Nearly always there is none: it is created unseen, and read only if it stands already.
    affinity: Entry | None = None
    try:
        return await _put_pending(store, key, None)
    except CommitConflict as conflict:
        affinity = conflict.current.get(key)
        if affinity is not None and affinity.value is None:
            affinity = await store.get(key)
    return await _put_pending(store, key, affinity)


async def _put_pending(store: Datastore, key: AffinityKey, affinity: Entry | None) -> Entry:
    guard = affinity.revision if affinity else ABSENT
    put = Put(key, BlockAffinity(state=PENDING), guard, affinity)
    scratch = View()
    scratch.wrote([put], await store.commit([put]))
    entry = scratch.get(key)
    assert entry is not None
    return entry


async def settle_existing(
    store: Datastore, view: View, host: str, affinity: Entry, existing: Entry
) -> bool:
    """The block exists already: confirm it if it is ours, else take the claim back."""
    block: Block = existing.value
    if block.owner != blocks.owner_text(host):
        await store.commit([Delete(affinity.key, affinity.revision)])
        return False
    # Writing the block again fences writers that still use the state before the claim.
    confirm = [
        Put(existing.key, blocks.written(block, block), existing.revision, existing),
        Put(affinity.key, BlockAffinity(state=CONFIRMED), affinity.revision, affinity),
    ]
    view.wrote(confirm[:1], await store.commit(confirm))
    return True
