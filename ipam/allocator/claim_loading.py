"""The claims of a node at its start: half-made ones are completed or removed.

Tested in tests/ipam/test_claims.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from ipam.allocator.affinities import Clock, claim, in_use, settle_existing
from ipam.allocator.claim_release import release
from ipam.allocator.stored_claims import (
    claimed_network,
    claims_of,
    readable,
)
from ipam.allocator.view import View
from ipam.records import blocks
from ipam.records.errors import BlockInDoubt, BlockOverlaps, PoolEdited
from ipam.records.pools import Pool, containing
from libcalico.datastore.interface import (
    CommitConflict,
    Datastore,
    Delete,
    Entry,
)
from libcalico.model.keys import BlockKey, IPNetwork
from libcalico.model.resources.ipam import PENDING_DELETION

log = logging.getLogger(__name__)


async def load(
    store: Datastore, view: View, host: str, pools: Sequence[Pool], clock: Clock = time.time_ns
) -> list[IPNetwork]:
    """The confirmed blocks of a node, their entries learned; half-made claims are settled.

    A claim without a block is completed where its pool is enabled, else removed; a claim
    on another's block is removed.
    """
    affinities = await claims_of(store, host)
    stored = await readable(store, [BlockKey(claimed_network(entry)) for entry in affinities])
    confirmed: list[IPNetwork] = []
    for affinity in affinities:
        cidr = claimed_network(affinity)
        if BlockKey(cidr) not in stored:
            continue
        entry = stored[BlockKey(cidr)]
        if entry and affinity.value.confirmed and entry.value.owner == blocks.owner_text(host):
            usable = True
            view.learn({entry.key: entry})
        else:
            usable = await _recover(store, view, host, affinity, entry, pools, clock)
        if usable:
            confirmed.append(cidr)
            if reason := blocks.problem(view.value(BlockKey(cidr))):
                log.error(
                    "block is inconsistent, not used", extra={"block": str(cidr), "reason": reason}
                )
    return sorted(confirmed, key=str)


async def _recover(
    store: Datastore,
    view: View,
    host: str,
    affinity: Entry,
    entry: Entry | None,
    pools: Sequence[Pool],
    clock: Clock,
) -> bool:
    cidr = claimed_network(affinity)
    pool = containing(pools, cidr)
    try:
        if (
            entry is None
            and (pool is None or pool.disabled or cidr.prefixlen != pool.block_size)
            and not await in_use(store, view, cidr)
        ):
            # A claim from before the pool was remade would overlap the blocks of today.
            await store.commit([Delete(affinity.key, affinity.revision)])
            return False
        if entry is None:
            stood = affinity.value.confirmed
            return await claim(store, view, host, cidr, clock, pool, known_claim=stood)
        if affinity.value.state == PENDING_DELETION and (pool is None or pool.disabled):
            await release(store, affinity, entry)
            return False
        return await settle_existing(store, view, host, affinity, entry)
    except BlockInDoubt as error:
        log.error("claim is not settled: %s", error, extra={"block": str(cidr), "node": host})
        return False
    except BlockOverlaps as error:
        log.error("claim is given up: %s", error, extra={"block": str(cidr), "node": host})
        with suppress(CommitConflict):
            await store.commit([Delete(affinity.key, affinity.revision)])
        return False
    except (CommitConflict, PoolEdited):
        # Another writer settles it, or its pool; the next load sees the result.
        return False
