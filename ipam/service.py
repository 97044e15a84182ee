"""The allocator of one node: requests of one instant share one transaction.

Requests queue; one worker takes all that wait (at most 40), plans them against the view of
this node's blocks and commits them together, while the next ones gather. With a warm block
an ADD so costs one round trip, and a burst costs a few. When no block at hand has a free
address the worker looks again, claims a block, or borrows.

A caller hears the address as soon as it is planned (`Ticket.tentative`), so that it can wire
the pod while the datastore writes; only `Ticket.done` says that the address is its own. After
a lost race the two may differ.

Invariants: IPAM-5 (one transaction), IPAM-7 (guards), and
  IPAM-12  When the datastore does not answer, the outcome of a request is unknown and the
           caller is told so (`DatastoreUnavailable`): it must release the handle later.
  IPAM-13  An object that nobody can read (a pool's selector, a handle, an endpoint) fails the
           requests that need it, and no other.

Tested in tests/ipam/test_service.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ipam import affinities, blocks, claims, planner, pools
from ipam.blocks import IPAddress
from ipam.committer import ATTEMPTS, settle
from ipam.errors import BlockLimit, Contention, IPAMError, NoPool, PoolsExhausted
from ipam.planner import Sources
from ipam.pools import Pool
from ipam.requests import Allocate, Answer, Granted, Refused, Release, Request, Short
from ipam.view import View
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork, Key, ResourceKey

log = logging.getLogger(__name__)

BORROW_SECONDS = 30.0
STOPPING = "the allocator is stopping, try again later"


@dataclass(frozen=True, slots=True)
class Facts:
    """What pool selection needs: all pools and this node's labels."""

    pools: Sequence[Pool]
    node_labels: Mapping[str, str]


async def read_facts(store: Datastore, host: str) -> Facts:
    """The facts, straight from the datastore."""
    listing = await store.list(Selection("IPPool"))
    node = await store.get(ResourceKey("Node", host))
    return Facts(
        pools=[pools.from_resource(entry.value) for entry in listing.entries],
        node_labels=dict(node.value.metadata.labels) if node else {},
    )


class Ticket:
    """One request under way."""

    def __init__(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        self.tentative: asyncio.Future[tuple[IPAddress, ...]] = loop.create_future()
        self.done: asyncio.Future[Granted] = loop.create_future()
        self.started = False
        self.alone = False

    def abandon(self) -> None:
        """Nobody waits any more: do not begin it. What has begun goes on."""
        self.done.cancel()
        self.tentative.cancel()

    def propose(self, addresses: tuple[IPAddress, ...]) -> None:
        if not self.tentative.done():
            self.tentative.set_result(addresses)

    def grant(self, answer: Granted) -> None:
        self.propose(answer.addresses)
        if not self.done.done():
            self.done.set_result(answer)

    def fail(self, error: BaseException) -> None:
        for future in (self.tentative, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller may wait for one of the two only


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
        self._view = View()
        self._affine: list[IPNetwork] | None = None
        self._borrowable: list[IPNetwork] = []
        self._borrowed_at = 0.0
        self._strict = False
        self._queue: list[Ticket] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self.transactions = 0
        self.served = 0

    def submit(self, request: Request) -> Ticket:
        """Queue a request for `run`; after its end every request fails."""
        ticket = Ticket(request)
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
        """Read this node's blocks, so that the first request finds them at hand."""
        facts = await read_facts(self._store, self._host)
        await self._load(facts.pools)

    async def run(self) -> None:
        """Serve until cancelled."""
        self._stopped = False
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    count = 1 if self._queue[0].alone else planner.MAX_REQUESTS
                    group = self._queue[:count]
                    del self._queue[:count]
                    await self._serve_or_fail([t for t in group if not t.done.done()])
        finally:
            self._stopped = True
            for ticket in self._queue:
                ticket.fail(DatastoreUnavailable(STOPPING))
            self._queue.clear()

    async def _serve_or_fail(self, group: list[Ticket]) -> None:
        try:
            await self._serve(group)
        except asyncio.CancelledError:
            for ticket in group:
                ticket.fail(DatastoreUnavailable(STOPPING))
            raise
        except Exception as error:
            # Whatever it is, it belongs to the callers; the worker lives on with a fresh view.
            self._view.clear()
            self._affine = None
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
            own = {BlockKey(cidr) for cidr in (self._affine or [])}
            own |= {BlockKey(cidr) for cidr in self._borrowable}
            self._view.forget([key for key in self._view if key not in own])

    async def _serve(self, group: list[Ticket]) -> None:
        for ticket in group:
            ticket.started = True
        facts = self._current_facts() or await read_facts(self._store, self._host)
        looked = False
        if self._affine is None and any(isinstance(t.request, Allocate) for t in group):
            await self._load(facts.pools)
            looked = True
        if time.monotonic() - self._borrowed_at > BORROW_SECONDS:
            self._borrowable = []
        if self._borrowable:
            # Who borrows must know whether that is still allowed.
            self._strict = (await claims.read_config(self._store)).strict_affinity
        reloaded = False
        rounds = 0
        while group:
            rounds += 1
            if rounds > ATTEMPTS:
                raise Contention(f"gave up after {ATTEMPTS} rounds: others take every free block")
            usable: dict[int, list[Pool]] = {}
            ready: list[Ticket] = []
            for ticket in group:
                try:
                    usable[id(ticket)] = self._pools_for(ticket.request, facts)
                    ready.append(ticket)
                except NoPool as error:
                    if reloaded:
                        ticket.fail(error)
            if len(ready) < len(group) and not reloaded:
                # A pool may have been made a moment ago: look once more before refusing.
                reloaded = True
                facts = await read_facts(self._store, self._host)
                continue
            short = await self._commit(ready, [usable[id(t)] for t in ready])
            group = [ticket for ticket, family in short]
            for family in sorted({family for _, family in short if family}):
                waiting = [ticket for ticket, lacks in short if lacks == family]
                if not looked:
                    looked = True
                    await self._load(facts.pools)
                    break
                group = await self._more_for(waiting, group, family, usable)

    async def _commit(
        self, group: list[Ticket], usable: list[list[Pool]]
    ) -> list[tuple[Ticket, int]]:
        requests = [ticket.request for ticket in group]
        for request in requests:
            if isinstance(request, Release):
                known = request.known.items()
                self._view.learn({k: e for k, e in known if k not in self._view})
        sources = Sources(self._host, self._affine or [], self._borrowable, self._strict)

        def announce(answers: list[Answer]) -> None:
            for ticket, answer in zip(group, answers, strict=True):
                if isinstance(answer, Granted):
                    ticket.propose(answer.addresses)

        answers = await settle(
            self._store,
            self._view,
            lambda view: planner.plan(view, requests, usable, sources),
            announce,
        )
        self.transactions += 1
        short: list[tuple[Ticket, int]] = []
        for ticket, answer in zip(group, answers, strict=True):
            match answer:
                case Granted():
                    self.served += 1
                    ticket.grant(replace(answer, entries=self._after(ticket.request)))
                case Refused(error):
                    ticket.fail(error)
                case Short(family):
                    short.append((ticket, family))
        return short

    def _after(self, request: Request) -> dict[Key, Entry | None]:
        """The handle and the companion's object of a request as the view has them."""
        keys: list[Key] = [HandleKey(request.handle_id)]
        if request.companion:
            keys.append(request.companion.key)
        return {key: self._view.get(key) for key in keys if key in self._view}

    async def _more_for(
        self,
        waiting: list[Ticket],
        group: list[Ticket],
        family: int,
        usable: Mapping[int, list[Pool]],
    ) -> list[Ticket]:
        """Find one more block for each set of pools that ran dry; fails whom nothing helps."""
        by_pools: dict[tuple[str, ...], list[Ticket]] = {}
        for ticket in waiting:
            chosen = [pool for pool in usable[id(ticket)] if pool.family == family]
            by_pools.setdefault(tuple(pool.name for pool in chosen), []).append(ticket)
        for tickets in by_pools.values():
            chosen = [pool for pool in usable[id(tickets[0])] if pool.family == family]
            try:
                await self._more(chosen)
            except IPAMError as error:
                for ticket in tickets:
                    ticket.fail(error)
                group = [ticket for ticket in group if ticket not in tickets]
        return group

    async def _more(self, chosen: Sequence[Pool]) -> None:
        config = await claims.read_config(self._store)
        self._strict = config.strict_affinity
        affine = self._affine or []
        held = sum(1 for cidr in affine if pools.containing(chosen, cidr))
        try:
            cidr = await claims.claim_one(
                self._store, self._view, self._host, chosen, held, config, self._clock
            )
            self._affine = sorted({*affine, cidr}, key=str)
        except BlockLimit:
            raise
        except PoolsExhausted as error:
            if self._strict:
                raise PoolsExhausted(f"{error}; strict affinity forbids borrowing") from error
            borrowed = await claims.borrowable(self._store, self._view, self._host, chosen)
            if not borrowed:
                raise PoolsExhausted(
                    f"no free address in pools {pools.names(chosen)}: all are in use"
                ) from error
            others = [c for c in self._borrowable if not pools.containing(chosen, c)]
            self._borrowable = others + borrowed
            self._borrowed_at = time.monotonic()

    async def _load(self, known: Sequence[Pool]) -> None:
        loaded = await affinities.load(self._store, self._view, self._host, known, self._clock)
        self._affine = [
            cidr for cidr in loaded if not blocks.problem(self._view.value(BlockKey(cidr)))
        ]
        self._strict = (await claims.read_config(self._store)).strict_affinity

    def _pools_for(self, request: Request, facts: Facts) -> list[Pool]:
        if not isinstance(request, Allocate):
            return []
        chosen: list[Pool] = []
        for family in request.families:
            chosen += pools.select(
                facts.pools,
                family,
                node_labels=facts.node_labels,
                requested=request.requested.get(family, ()),
                use=request.use,
            )
        return chosen
