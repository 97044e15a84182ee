"""Claims on blocks that are of no use: of nodes that are gone, or empty for the grace period.

A node that is gone gives up all its claims once it holds no address. A node with other blocks gives
up one that has been empty for the grace period. Tested in tests/controllers/test_collection.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from controllers.addresses.leaks import GAP, ClusterView, Judgement
from controllers.nodes.node_existence import NodeExistence
from ipam.allocator import claim_release, stored_claims
from ipam.allocator.hosts import release_host_affinities
from ipam.records import blocks
from ipam.records.errors import IPAMError
from libcalico.datastore.interface import CommitConflict, Datastore, Entry, Selection
from libcalico.model.keys import AffinityKey, BlockKey

log = logging.getLogger(__name__)


class ClaimCollection:
    """Gives claims up, a look at a time. With a `grace` of 0 only those of nodes that are gone."""

    def __init__(self, store: Datastore, presence: NodeExistence, grace: float) -> None:
        self._store, self._presence, self._grace = store, presence, grace
        self._empty: dict[tuple[BlockKey, int], float] = {}
        self._gone: dict[str, float] = {}

    @property
    def gone(self) -> Collection[str]:
        """The nodes that seemed gone at the last look, and have claims."""
        return self._gone.keys()

    async def look(
        self, block_entries: list[Entry], judgement: Judgement, cluster: ClusterView, now: float
    ) -> bool:
        """One look; whether a node that is gone waits for its second."""
        owned: dict[str, list[Entry]] = {}
        for entry in block_entries:
            if owner := blocks.owner_host(entry.value):
                owned.setdefault(owner, []).append(entry)
        claims = (await self._store.list(Selection("BlockAffinity"))).entries
        hosts = {
            one.key.host
            for one in claims
            if isinstance(one.key, AffinityKey) and one.key.kind == "host"
        }
        gone = {host for host in hosts | owned.keys() if cluster.is_gone(host)}
        self._gone = {host: self._gone.get(host, now) for host in gone}
        for host in sorted(gone - judgement.tenants):
            if now - self._gone[host] >= GAP:
                await self._give_up(host)
        await self._give_up_empty(owned, gone, now)
        return bool(gone - judgement.tenants)

    async def _give_up(self, host: str) -> None:
        if not await self._presence.gone_for_good(host):
            return
        try:
            await release_host_affinities(self._store, host, must_be_empty=True)
        except IPAMError as error:
            log.info("claims of a node that is gone stay: %s", error, extra={"node": host})
            return
        self._gone.pop(host, None)

    async def _give_up_empty(
        self, owned: dict[str, list[Entry]], gone: set[str], now: float
    ) -> None:
        if not self._grace:
            return
        before, self._empty = self._empty, {}
        for host, entries in owned.items():
            left = len(entries)
            for entry in entries:
                if host in gone or not blocks.is_empty(entry.value):
                    continue
                assert isinstance(entry.key, BlockKey)
                mark = entry.key, entry.value.sequenceNumber
                since = self._empty[mark] = before.get(mark, now)
                if left > 1 and now - since > self._grace:
                    left -= await self._give_up_block(host, entry)

    async def _give_up_block(self, host: str, entry: Entry) -> bool:
        assert isinstance(entry.key, BlockKey)
        claim = await self._store.get(stored_claims.key_of(host, entry.key.cidr))
        if claim is None:
            return False
        try:
            return await claim_release.release(self._store, claim, entry)
        except CommitConflict:
            return False
