"""Blocks without owner, read once at the start, if any endpoint may be in one.

`calicoctl delete ippool` gives up the claims on blocks that are in use; their pods run on. Only the
blocks themselves say where that was. They are not watched: from the start on felix sees each claim
that goes (`felix.calc.sets.claimed_blocks`). Where pods have addresses that no IPAM of ours gave
out, this costs one listing at each start.

Tested in tests/felix/store/test_ownerless_blocks.py.
"""

from __future__ import annotations

import asyncio
import logging

from felix.calc.sets.claimed_blocks import ClaimedBlocks, IPNetwork
from libcalico.datastore.capabilities import entries_of
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import DatastoreError
from libcalico.model import BlockKey

PATIENCE = 10.0
"""Seconds for the whole listing."""

log = logging.getLogger(__name__)


async def start_blocks(blocks: ClaimedBlocks, store: Datastore | None) -> None:
    """Have the addresses judged from now on. `store` None: there are no blocks without owner."""
    used = blocks.survey()
    if store is None or not blocks.homeless(used):
        blocks.start(addresses=used)
        return
    left: list[IPNetwork] = []
    try:
        async with asyncio.timeout(PATIENCE):
            left = await ownerless(store)
    except (DatastoreError, TimeoutError) as error:
        log.warning("blocks without owner cannot be read, and have no routes: %s", error)
    # Endpoints may have come meanwhile.
    blocks.start(left)


async def ownerless(store: Datastore) -> list[IPNetwork]:
    """The blocks without owner. Raises `DatastoreError`."""
    return [
        entry.key.cidr
        async for entry in entries_of(store, Selection("Block"))
        if isinstance(entry.key, BlockKey) and not entry.value.owner and not entry.value.deleted
    ]
