"""A node collects what its own dead containers left: look twice, then release by sequence.

`ipam.collector.leak_evidence` says what is dead. This is the walk around it: look, wait, look
again, and for each suspect that is still the same hold its container's lock (so that no call of
the container runs), look a third time, and release it in one transaction with handle and endpoint.
A new owner that comes meanwhile is unharmed: the release names handle, sequence number and the
endpoint's revision.

Invariants (tests/ipam/test_collector.py, tests/ipam/model/test_model.py):
  IPAM-24  Block, handle and endpoint of a dead container go in one transaction, or nothing.
  IPAM-25  An address is collected only under the handle and sequence number that were seen
           dead twice; if one of them changed, the whole suspect stays.
  IPAM-26  A machine that is not the node collects nothing of it, at none of the looks.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from ipam.allocator.committer import settle
from ipam.allocator.settings import get_config
from ipam.allocator.view import View
from ipam.collector.leak_evidence import (
    Judgement,
    LeakEvidence,
    Listed,
    Suspect,
    confirmed,
    judge,
    widowed,
)
from ipam.collector.release_plan import plan_release
from ipam.records import blocks
from ipam.records.block_editor import handle_of, release_stamp
from ipam.records.blocks import IPAddress
from ipam.records.endpoints import sorted_out
from ipam.records.pools import usable
from libcalico import names
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.model.keys import BlockKey, HandleKey, Key

GAP_SECONDS = 10.0

Observe = Callable[[], Awaitable[LeakEvidence]]
ContainerLock = Callable[[str], AbstractAsyncContextManager[None]]
Foreign = Callable[[], Awaitable[str]]
Flush = Callable[[Sequence[IPAddress]], Awaitable[None]]


async def _own() -> str:
    return ""


async def _no_flush(_addresses: Sequence[IPAddress]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Collected:
    """One dead container's addresses, released."""

    suspect: Suspect
    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of one sweep; `kept` by handle says why the rest is in use."""

    collected: tuple[Collected, ...] = ()
    suspects: int = 0
    kept: Mapping[str, str] = field(default_factory=dict)
    widowed: tuple[tuple[Key, IPAddress], ...] = ()
    complete: bool = True
    foreign: str = ""
    """Why this machine is not the node, and nothing was looked at."""


class Collector:
    """One node's collector.

    `observe` tells what the node sees now; `container_lock(container)` keeps calls of that
    container out while it is held; `flush(addresses)` forgets their flows before they can be
    reused; `foreign` tells why this machine is not the node, empty while it is (IPAM-26).
    """

    def __init__(
        self,
        store: Datastore,
        node: str,
        observe: Observe,
        *,
        container_lock: ContainerLock = lambda _container: nullcontext(),
        flush: Flush = _no_flush,
        foreign: Foreign = _own,
        gap: float = GAP_SECONDS,
    ) -> None:
        self._store, self._node, self._observe = store, node, observe
        self._container_lock, self._flush, self._gap = container_lock, flush, gap
        self._foreign = foreign

    async def sweep(self, listed: Listed | None = None) -> Sweep:
        """Look twice and release what is dead; takes `gap` seconds if anything is suspect.

        `listed` is the runtime's list of CNI GC. Raises `DatastoreError`; what was released
        until then stays released, and the next sweep does the rest.
        """
        if why := await self._foreign():
            return Sweep(complete=False, foreign=why)
        first, entries, endpoints, complete = await self._look(listed)
        pools = usable((await self._store.list(Selection("IPPool"))).entries)
        networks = [pool.cidr for pool in pools]
        lost = tuple(widowed(self._node, entries, endpoints, networks))
        if not first.dead:
            return Sweep(kept=first.kept, widowed=lost, complete=complete)
        await asyncio.sleep(self._gap)
        if why := await self._foreign():
            return Sweep(complete=False, foreign=why)
        second, *_ = await self._look(listed)
        collected = []
        for suspect in confirmed(first, second):
            if freed := await self._release(suspect, listed):
                collected.append(Collected(suspect, freed))
        return Sweep(tuple(collected), len(first.dead), second.kept, lost, complete)

    async def _look(
        self, listed: Listed | None
    ) -> tuple[Judgement, list[Entry], list[Entry], bool]:
        # The datastore first: an ADD that comes between the two makes its interface seen, and
        # one that comes later is not in the listing.
        endpoints = (
            await self._store.list(
                Selection(
                    "WorkloadEndpoint", name_prefix=names.workload_endpoint_prefix(self._node)
                )
            )
        ).entries
        listing = await self._store.list(Selection("Block"))
        entries = await concerning(self._node, listing.entries, endpoints)
        evidence = replace(await self._observe(), listed=listed)
        complete = evidence.interfaces is not None and not (
            evidence.sandboxes_configured and evidence.sandboxes is None
        )
        return judge(self._node, entries, endpoints, evidence), entries, endpoints, complete

    async def _release(self, suspect: Suspect, listed: Listed | None) -> tuple[IPAddress, ...]:
        async with self._container_lock(suspect.container_id):
            view = View()
            await self._read(view, suspect)
            entries = [e for k in view if isinstance(k, BlockKey) and (e := view.get(k))]
            endpoints = [e for k in suspect.endpoints if (e := view.get(k))]
            if await self._foreign():
                return ()
            evidence = replace(await self._observe(), listed=listed)
            # The lock is ours: that it is "busy" now means that a call waits for it.
            evidence = replace(evidence, busy=evidence.busy - {suspect.container_id})
            now = judge(self._node, entries, endpoints, evidence).dead.get(suspect.handle_id)
            if (
                now is None
                or now.allocations != suspect.allocations
                or now.endpoints != suspect.endpoints
            ):
                return ()
            await self._flush(
                sorted((allocation.address for allocation in suspect.allocations), key=str)
            )
            cooldown = (await get_config(self._store)).ipCooldownSeconds
            stamp = release_stamp(time.time_ns(), cooldown)
            plan = partial(plan_release, suspect=suspect, released_at=stamp)
            freed = await settle(self._store, view, plan)
        return tuple(freed)

    async def _read(self, view: View, suspect: Suspect) -> None:
        keys = {BlockKey(allocation.block) for allocation in suspect.allocations}
        all_keys: set[Key] = {*keys, *suspect.endpoints, HandleKey(suspect.handle_id)}
        view.learn(await self._store.get_many(sorted(all_keys, key=str)))


async def concerning(
    node: str, entries: Sequence[Entry], endpoints: Sequence[Entry]
) -> list[Entry]:
    """The blocks that matter to a node: what it holds, and where its endpoints' addresses lie.

    A cluster has thousands of blocks, and judging them all would hold up the daemon's calls for
    seconds; this looks at each for some microseconds and lets others run in between.
    """
    numbers: dict[int, list[int]] = {4: [], 6: []}
    for endpoint in endpoints:
        for address in sorted_out(endpoint.value.spec.ipNetworks)[0]:
            numbers[address.version].append(int(address))
    for known in numbers.values():
        known.sort()
    mine: set[str] = set()
    async for entry in _gently(entries):
        for attribute in entry.value.attributes or ():
            if (attribute.secondary or {}).get("node") == node:
                mine.add(handle_of(attribute))
    concerned: list[Entry] = []
    async for entry in _gently(entries):
        assert isinstance(entry.key, BlockKey)
        first, known = int(entry.key.cidr.network_address), numbers[entry.key.cidr.version]
        place = bisect_left(known, first)
        inside = place < len(known) and known[place] < first + blocks.size(entry.key.cidr)
        if inside or any(handle_of(a) in mine for a in entry.value.attributes or ()):
            concerned.append(entry)
    return concerned


async def _gently(entries: Sequence[Entry]) -> AsyncIterator[Entry]:
    for number, entry in enumerate(entries):
        if number % 256 == 255:
            await asyncio.sleep(0)
        yield entry
