"""Addresses that leaked come back: look, wait, look again, ask the API, release by sequence.

`controllers.addresses.leaks` says what is unused. A handle goes in one transaction with the
endpoints that name it, under the sequence numbers that were seen, after the API was asked once more
for the pod. Then claims: those of nodes that are gone and hold nothing, and those on blocks that a
node with others has left empty for the grace period.

Invariants (tests/controllers/test_collection.py):
  LEAK-4  Nothing is judged while pods or nodes are not followed, or the datastore is not ready.
  LEAK-5  Nothing of a node is taken back because the node is gone before store and API, asked for
          that very node, say so; one that cannot be read is not gone. Then as LEAK-6 says.
  LEAK-7  That a pod has another address proves nothing if only the last question says so, or if an
          endpoint on a living node names the container: that is the pod's newest one.
Source: docs/reference/data-model.md#collection-of-leaked-addresses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from ipaddress import IPv4Address, IPv6Address

from controllers.addresses.claim_collection import ClaimCollection
from controllers.addresses.counts import Counts, Pair, count, pool_of
from controllers.addresses.leaks import (
    ANOTHER,
    GAP,
    Candidate,
    ClusterView,
    Watchlist,
    judge,
    unused,
)
from controllers.addresses.orphan_handles import OrphanHandles
from controllers.addresses.pod_table import PodTable, view_of
from controllers.addresses.pods import Pods
from controllers.mirror.objects import PODS
from controllers.nodes.node_existence import NodeExistence
from controllers.nodes.node_view import NodeView, kubernetes_name
from ipam.admin.usage import reservations
from ipam.allocator.committer import settle
from ipam.allocator.cooling import sweep_cooled
from ipam.allocator.settings import get_config
from ipam.allocator.view import View
from ipam.collector.leak_evidence import Suspect
from ipam.collector.release_plan import plan_release
from ipam.records.block_editor import release_stamp
from ipam.records.pools import usable
from libcalico.clusterinfo import KEY as CLUSTER
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import CommitConflict, Datastore, Entry, Selection
from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError, ObjectNotFound
from libcalico.names import containers_of, split_handle
from libcalico.process.waiting import set_within

log = logging.getLogger(__name__)

IPAddress = IPv4Address | IPv6Address
GRACE = 900.0
WITHOUT_GRACE = 300.0
"""Seconds between two looks where the grace period is 0: then only nodes that are gone count."""


class Collection:
    """Looks while `run` runs. `look_soon` when a node was removed. `view` must run beside it.

    `released`: how many addresses came back so far, by pool and node.
    """

    def __init__(
        self,
        view: NodeView,
        client: Client,
        store: Datastore,
        *,
        grace: float = GRACE,
        clock: Callable[[], float] = time.monotonic,
        handles: bool = False,
        pods: Pods | None = None,
        presence: NodeExistence | None = None,
    ) -> None:
        """`handles`: the store has no transactions, so handles may be left without addresses.

        `pods`, if given, must run beside it.
        """
        self._view, self._client, self._store = view, client, store
        self._clock = clock
        self._source, self._follows = pods or Pods(client), pods is None
        self._pods = PodTable(self._source)
        self._grace = grace
        self._watchlist = Watchlist(grace)
        self._presence = presence or NodeExistence(store, client)
        self._claims = ClaimCollection(store, self._presence, grace)
        self._handles = OrphanHandles(grace or WITHOUT_GRACE) if handles else None
        self._all_read = False
        self._soon = asyncio.Event()
        self.counts = Counts()
        self.released: Counter[Pair] = Counter()
        self.looks = 0

    @property
    def candidates(self) -> int:
        """How many handles look unused."""
        return len(self._watchlist)

    @property
    def nodes_held(self) -> int:
        """How many nodes seem gone, and keep what they hold (LEAK-6)."""
        return len(self._presence.waiting)

    def look_soon(self, _node: str = "") -> None:
        """Look now, not at the next turn."""
        self._soon.set()

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._follows:
                group.create_task(self._source.run())
            group.create_task(self._looks())

    async def _looks(self) -> None:
        await self._view.until_ready()
        period = self._grace / 2 if self._grace else WITHOUT_GRACE
        while True:
            wait = period
            self._soon.clear()
            if not self._source.reflector.has_listed:
                wait = min(period, 1.0)
            else:
                try:
                    if await self.look():
                        wait = min(period, GAP + 1)
                except (MuslinError, CommitConflict) as error:
                    log.warning("addresses are not collected: %s", error)
                    wait = min(period, 30.0)
                except ValueError as error:
                    # A stored object that no check has seen: the other controllers go on.
                    log.exception("addresses are not collected: %s", error)
                    wait = min(period, 30.0)
            await set_within(self._soon, wait)

    @property
    def blind(self) -> str:
        """Why nothing can be judged now, or empty (LEAK-4)."""
        for reflector in (self._source.reflector, self._view.reflector):
            if not reflector.connected or reflector.broken:
                return reflector.error or "some of its objects cannot be read"
        return ""

    async def look(self) -> bool:
        """One look; whether something waits for its second. Raises MuslinError."""
        information = await self._store.get(CLUSTER)
        if self.blind or (information and information.value.spec.datastoreReady is False):
            return False
        block_entries = await self._blocks()
        # After the blocks: a pod that got its address in between is known, or has none yet.
        await asyncio.sleep(0)
        cluster = ClusterView(
            self._pods.known,
            {name: kubernetes_name(node) for name, node in self._view.nodes.items()},
            frozenset(self._view.kubernetes),
        )
        now = self._clock()
        pools = usable((await self._store.list(Selection("IPPool"))).entries)
        judgement = judge((entry.value for entry in block_entries), cluster)
        for candidate in self._watchlist.observe(judgement.unused.values(), now):
            for address in await self._release(candidate, cluster):
                self.released[pool_of(address, pools), candidate.node] += 1
        unused_now = judgement.unused.values()
        reserved = await reservations(self._store)
        self.counts = count((entry.value for entry in block_entries), pools, unused_now, reserved)
        waiting = await self._claims.look(block_entries, judgement, cluster, now)
        if self._handles is not None and self._all_read and self._handles.is_due(now):
            await self._handles.look(self._store, (entry.value for entry in block_entries), now)
        await sweep_cooled(self._store)
        holding = {one.node for one in judgement.unused.values()}
        self._presence.forget_others(holding | {*self._claims.gone} | self._view.nodes.keys())
        self.looks += 1
        return waiting or any(one.node_gone for one in judgement.unused.values())

    async def _blocks(self) -> list[Entry]:
        block_entries: list[Entry] = []
        self._all_read = True
        async with aclosing(pages_of(self._store, Selection("Block"))) as pages:  # type: ignore[type-var]
            async for page in pages:
                block_entries += page.entries
                self._all_read = self._all_read and not page.broken
        return block_entries

    async def _release(self, candidate: Candidate, cluster: ClusterView) -> Sequence[IPAddress]:
        """Release what is still unused; the addresses that came back."""
        reason = await self._last_word(candidate, cluster)
        if not reason:
            return ()
        endpoints = await self._endpoints(candidate)
        if reason == ANOTHER and endpoints and not candidate.node_gone:
            return ()  # LEAK-7
        suspect = Suspect(
            candidate.handle_id,
            split_handle(candidate.handle_id)[1],
            candidate.allocations,
            {entry.key: entry.revision for entry in endpoints},
            candidate.reason,
        )
        cooldown = (await get_config(self._store)).ipCooldownSeconds
        stamp = release_stamp(time.time_ns(), cooldown)
        plan = partial(plan_release, suspect=suspect, released_at=stamp)
        freed = await settle(self._store, View(), plan)
        if freed:
            log.info(
                "released: %s",
                candidate.reason,
                extra={"addresses": ", ".join(map(str, freed)), "handle": candidate.handle_id},
            )
        return freed

    async def _last_word(self, candidate: Candidate, cluster: ClusterView) -> str:
        """Why it is unused as store and API say now; empty if it may be in use."""
        if candidate.node_gone and not await self._presence.gone_for_good(candidate.node):
            return ""
        if candidate.pod is None:
            return candidate.reason
        namespace, name = candidate.pod
        try:
            pod = view_of(await self._client.get(PODS, name, namespace))
        except ObjectNotFound:
            return candidate.reason
        except KubernetesError:
            return ""
        reasons = [
            unused(str(one.address), candidate.node, pod, cluster) for one in candidate.allocations
        ]
        if "" in reasons or (ANOTHER in reasons and candidate.reason != ANOTHER):
            return ""  # LEAK-7
        return ANOTHER if ANOTHER in reasons else reasons[0]

    async def _endpoints(self, candidate: Candidate) -> list[Entry]:
        """The endpoints of the same container that name one of the addresses."""
        if candidate.pod is None:
            return []
        containers = containers_of(candidate.handle_id)
        addresses = {str(one.address) for one in candidate.allocations}
        listing = await self._store.list(Selection("WorkloadEndpoint", namespace=candidate.pod[0]))
        return [
            entry
            for entry in listing.entries
            if entry.value.spec.containerID in containers
            and addresses & {text.partition("/")[0] for text in entry.value.spec.ipNetworks}
        ]
