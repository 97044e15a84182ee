"""Write a node's claim again after it was deleted.

Tested in tests/ipam/test_restoration.py.
"""

from __future__ import annotations

import time
from enum import Enum

from ipam.allocator import affinities, restoration, stored_claims
from ipam.allocator.view import View
from ipam.records import blocks, sizes
from ipam.records.errors import Contention
from libcalico.datastore.capabilities import entries_of
from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Put, Selection
from libcalico.model import BlockAffinity
from libcalico.model.keys import BlockKey, IPNetwork
from libcalico.model.resources.ipam import CONFIRMED

_ATTEMPTS = 10


class State(Enum):
    """The result for a claim that was reported as gone."""

    NOT_OURS = "the block is gone or has another owner"
    STANDS = "the claim is there"
    RESTORED = "it was written again"


async def restore(
    store: Datastore, view: View, host: str, cidr: IPNetwork, clock: affinities.Clock = time.time_ns
) -> State:
    """Write a claim again that is gone while its block is ours (IPAM-30).

    Where the block is gone as well, both are written if anything of it is in use: an empty block
    is given up together with its claim. Where another node was faster the block lacks the pods that
    run here: the node hears of it (`OwnNode.made_again`). Raises IPAMError, DatastoreError.
    """
    claim_key, block_key = stored_claims.key_of(host, cidr), BlockKey(cidr)
    for _ in range(_ATTEMPTS):
        stored = await store.get_many([claim_key, block_key])
        entry = stored[block_key]
        ours = entry is not None and entry.value.owner == blocks.owner_text(host)
        if entry is not None and not ours:
            view.learn({block_key: entry})
            if entry.value.owner and view.own.remembered(cidr):
                # Made anew by another node, which knows nothing of the pods here.
                view.own.made_again()
            return State.NOT_OURS
        if stored[claim_key] is not None:
            # Half-made claims, and those without a block, are `claim_loading.load`'s.
            return State.STANDS
        if entry is not None:
            # Writing the block again fences a release of the claim that is under way.
            block, guard = blocks.written(entry.value, entry.value), entry.revision
        else:
            # What is only remembered does not count: who removes a node takes everything of it,
            # and is not to meet a block that comes back in the middle. The node hears of it.
            if not await restoration.in_use(store, cidr):
                if view.own.remembered(cidr):
                    view.own.all_gone()
                return State.NOT_OURS
            await sizes.require_room(store, cidr)
            block, guard = (
                await affinities.to_create(store, view, host, cidr, clock(), True),
                ABSENT,
            )
        changes = [
            Put(block_key, block, guard, entry),
            Put(claim_key, BlockAffinity(state=CONFIRMED), ABSENT),
        ]
        try:
            await affinities.write_block(store, view, changes, again=entry is None)
        except CommitConflict:
            continue
        restoration.tell(cidr, "the claim was" if entry else "block and claim were", block)
        return State.RESTORED
    raise Contention(f"gave up writing the claim on {cidr} again: others keep changing its block")


async def unclaimed(store: Datastore, host: str) -> list[IPNetwork]:
    """The blocks that name the host, and that it has no claim on. Reads all blocks, by pages."""
    claimed = {
        stored_claims.claimed_network(one) for one in await stored_claims.claims_of(store, host)
    }
    return [
        entry.key.cidr
        async for entry in entries_of(store, Selection("Block"))
        if isinstance(entry.key, BlockKey)
        and entry.value.owner == blocks.owner_text(host)
        and entry.key.cidr not in claimed
    ]
