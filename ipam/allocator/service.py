"""The allocator of one node: requests of one instant share one transaction.

Requests queue; the worker takes all that wait (at most 40) and serves them together, while the
next ones gather. With a warm block an ADD so costs one round trip, and a burst costs a few.

Claims that are deleted are written again between two groups (`claim_lost`, IPAM-30).

Invariants: IPAM-5 (one transaction), IPAM-7 (guards), and
  IPAM-12  When the datastore does not answer, the outcome of a request is unknown and the
           caller is told so (`DatastoreUnavailable`): it must release the handle later.
  IPAM-13  An object that cannot be read (a pool's selector, a handle, an endpoint) fails the
           requests that need it, and no other.

Tested in tests/ipam/test_service.py and tests/ipam/test_service_requests.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ipam.allocator import claim_repair, planner
from ipam.allocator.facts import Facts, read_facts
from ipam.allocator.pending_requests import PendingRequest
from ipam.allocator.requests import Allocate, Granted, Request
from ipam.allocator.view import OwnNode, View, at_home
from ipam.allocator.worker import Worker
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreFull, DatastoreUnavailable, InvalidValue, MuslinError
from libcalico.model.keys import IPNetwork, ResourceKey
from libcalico.process.backoff import Backoff

log = logging.getLogger(__name__)

__all__ = ["Facts", "NodeAllocator", "PendingRequest", "read_facts"]

RETRY_SECONDS, SELDOM_SECONDS = 2.0, 15.0
"""Until a claim is tried again that could not be written: at first, and at most."""
STOPPING = "the allocator is stopping, try again later"
REPLACED = "the datastore was put back to an earlier state: try again"


class NodeAllocator:
    """Serves one node. `facts()` gives the current facts cheaply (from a watch, say)."""

    def __init__(
        self,
        store: Datastore,
        host: str,
        facts: Callable[[], Facts | None] = lambda: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._host, self._clock = store, host, clock
        self._current_facts = facts
        self.own = OwnNode(foreign=at_home)
        """What this node remembers (IPAM-31), and who hears of a block that is made again."""
        self._worker = self._new_worker()
        self._turn = asyncio.Lock()
        """One writer at a time: two that complete one claim would each take the other's back."""
        self._trouble = ""
        self._again = Backoff(RETRY_SECONDS, SELDOM_SECONDS)
        self._queue: list[PendingRequest] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self._lost: set[IPNetwork] = set()
        self._replaced = False
        self.restored = 0
        """Claims and blocks that were deleted, and written again."""

    def _new_worker(self) -> Worker:
        """One that believes nothing yet."""
        return Worker(self._store, self._host, self._clock, View(self.own))

    @property
    def transactions(self) -> int:
        """How many commits have been made for requests."""
        return self._worker.transactions

    @property
    def served(self) -> int:
        """How many requests were granted."""
        return self._worker.served

    @property
    def prompt(self) -> bool:
        """Whether a commit leaves in the turn of the loop in which it is made."""
        return bool(getattr(self._store, "prompt", False))

    def submit(self, request: Request) -> PendingRequest:
        """Queue a request for `run`; after its end every request fails."""
        ticket = PendingRequest(request)
        if self._stopped:
            ticket.fail(DatastoreUnavailable(STOPPING))
            return ticket
        self._queue.append(ticket)
        self._wake.set()
        return ticket

    async def perform(self, request: Request) -> Granted:
        """Queue a request and wait for its end."""
        return await self.submit(request).done

    async def warm(self) -> None:
        """Read this node's blocks, so that the first request finds them at hand.

        Not while the datastore is locked: half-made claims would be settled by that.
        """
        if not await self._locked():
            async with self._turn:
                await self._worker.load(await read_facts(self._store, self._host))

    async def allocate_apart(self, request: Allocate, known: Facts | None) -> None:
        """Serve one request from the datastore's present content, not from this node's view of it.

        Raises IPAMError, DatastoreError.
        """
        ticket = PendingRequest(request)
        async with self._turn:
            worker = self._new_worker()
            await worker.serve([ticket], known or await read_facts(self._store, self._host))
        ticket.done.result()

    async def _locked(self) -> bool:
        info = await self._store.get(ResourceKey("ClusterInformation", "default"))
        return info is not None and info.value.spec.datastoreReady is False

    def claim_lost(self, cidr: IPNetwork) -> None:
        """This node's claim on a block was deleted: it is examined before the next group."""
        self._lost.add(cidr)
        self._wake.set()

    def store_replaced(self) -> None:
        """The store was replaced: what was read counts no more, at any revision."""
        self._replaced = True
        self._wake.set()

    async def find_lost_claims(self) -> None:
        """Look once for blocks of this node whose claims went while nothing watched them."""
        for cidr in await claim_repair.unclaimed(self._store, self._host):
            self.claim_lost(cidr)

    async def _restore(self) -> None:
        """Write every lost claim again that can be; the others are tried again later."""
        failed: dict[IPNetwork, str] = {}
        try:
            if await self._locked():
                raise DatastoreUnavailable("the datastore is locked")
            for cidr in sorted(self._lost, key=str):
                # Before it is written: a deletion that comes meanwhile is heard.
                self._lost.discard(cidr)
                try:
                    async with self._turn:
                        self.restored += await self._worker.restore(cidr)
                except (DatastoreUnavailable, DatastoreFull):
                    self._lost.add(cidr)
                    raise
                except MuslinError as error:
                    failed[cidr] = str(error)
        except MuslinError as error:
            # It is so for all that are left, and requests wait.
            failed |= dict.fromkeys(self._lost, str(error))
            self._lost.clear()
        trouble = "; ".join(dict.fromkeys(failed.values()))
        if trouble and trouble != self._trouble:
            log.warning("deleted claims are not written again yet: %s", trouble)
        self._trouble = trouble
        if not failed:
            self._again.reset()
            return
        loop, delay = asyncio.get_running_loop(), self._again.next()
        for cidr in failed:
            loop.call_later(delay, self.claim_lost, cidr)

    async def run(self) -> None:
        """Serve until cancelled."""
        self._stopped = False
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue or self._lost or self._replaced:
                    if self._replaced:
                        self._replaced = False
                        self._worker.forget()
                        # They came when the other store was believed, and fit that one alone.
                        _fail(self._queue, REPLACED)
                        self._queue.clear()
                        continue
                    if self._lost:
                        await self._restore()
                        continue
                    count = 1 if self._queue[0].alone else planner.MAX_REQUESTS
                    group = self._queue[:count]
                    del self._queue[:count]
                    await self._serve(group)
        finally:
            self._stopped = True
            _fail(self._queue, STOPPING)
            self._queue.clear()

    async def _serve(self, group: list[PendingRequest]) -> None:
        try:
            async with self._turn:
                if self._replaced:
                    _fail(group, REPLACED)
                    return
                # Only now: what its caller gave up while it waited must not begin.
                group = [ticket for ticket in group if not ticket.done.done()]
                await self._worker.serve(group, self._current_facts())
        except asyncio.CancelledError:
            _fail(group, STOPPING)
            raise
        except Exception as error:  # noqa: BLE001 - handed to the callers
            # Every error belongs to the callers; the worker lives on with a fresh view.
            self._worker.forget()
            waiting = [ticket for ticket in group if not ticket.done.done()]
            if isinstance(error, InvalidValue) and len(waiting) > 1:
                # One of them met an object that cannot be read: each by itself (IPAM-13).
                for ticket in waiting:
                    ticket.alone = True
                self._queue[:0] = waiting
                return
            for ticket in waiting:
                ticket.fail(error)
        finally:
            self._worker.tidy()


def _fail(tickets: Sequence[PendingRequest], why: str) -> None:
    for ticket in tickets:
        ticket.fail(DatastoreUnavailable(why))
