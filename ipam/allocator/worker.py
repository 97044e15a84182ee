"""Serve one group of requests after another for one owner of blocks.

Plan against the blocks at hand and commit; when no block at hand has a free address, look
again, claim a block, or borrow. The worker knows no queue: `ipam.allocator.service` feeds it for a
node, `ipam.admin.library` for a single call.

Tested in tests/ipam/test_service.py, tests/ipam/test_library.py and tests/ipam/test_model.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network

from ipam.allocator import (
    affinities,
    claim_loading,
    claim_release,
    claim_repair,
    claims,
    facts,
    planner,
    stored_claims,
)
from ipam.allocator.committer import ATTEMPTS, settle
from ipam.allocator.facts import Facts, read_facts
from ipam.allocator.pending_requests import PendingRequest
from ipam.allocator.planner import Sources
from ipam.allocator.requests import (
    Allocate,
    Answer,
    Granted,
    Refused,
    Release,
    Request,
    Short,
    Unclaimed,
)
from ipam.allocator.settings import get_config
from ipam.allocator.view import View
from ipam.records import blocks, pool_choice, pools
from ipam.records.blocks import IPAddress
from ipam.records.errors import (
    BlockLimit,
    BlockOverlaps,
    Contention,
    IPAMError,
    PoolEdited,
    PoolsExhausted,
)
from ipam.records.pools import Pool
from libcalico.datastore.interface import CommitConflict, Datastore, Entry
from libcalico.model import IPAMConfig
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork, Key
from libcalico.model.resources.ipam import DEFAULT_IPAM_CONFIG

BORROW_SECONDS = 30.0


class Worker:
    """The blocks of one owner (`host`, a node's name or `blocks.LOAD_BALANCER`), and their use."""

    def __init__(
        self,
        store: Datastore,
        host: str,
        clock: affinities.Clock = time.time_ns,
        view: View | None = None,
    ) -> None:
        self._store, self._host, self._clock = store, host, clock
        self._view = view or View()
        self._affine: list[IPNetwork] | None = None
        self._borrowable: list[IPNetwork] = []
        self._borrowed_at = 0.0
        self._config: IPAMConfig = DEFAULT_IPAM_CONFIG
        self._facts = Facts((), {})
        self.transactions = 0
        self.served = 0

    def forget(self) -> None:
        """Believe nothing any more."""
        self._view.clear()
        self._affine = None

    def learn(self, entries: Mapping[Key, Entry | None]) -> None:
        """Store entries that the caller has read, until `tidy`."""
        self._view.learn(entries)

    def tidy(self) -> None:
        """Keep the blocks, and forget the handles and companions of the last group."""
        own = {BlockKey(cidr) for cidr in (self._affine or [])}
        own |= {BlockKey(cidr) for cidr in self._borrowable}
        self._view.forget([key for key in self._view if key not in own])

    async def load(self, known: Facts) -> None:
        """Read this owner's blocks; empty ones whose pool does not select the node go."""
        self._facts = known
        loaded = await claim_loading.load(
            self._store, self._view, self._host, known.pools, self._clock
        )
        self._affine = [cidr for cidr in loaded if self._view.sound(BlockKey(cidr))]
        self._config = known.config or await get_config(self._store)
        await self._shed()

    async def restore(self, cidr: IPNetwork) -> bool:
        """A claim is said to be gone: write it again if the block is ours; whether it was."""
        state = await claim_repair.restore(self._store, self._view, self._host, cidr, self._clock)
        if self._affine is not None:
            rest = {one for one in self._affine if one != cidr}
            ours = state is not claim_repair.State.NOT_OURS
            self._affine = sorted(rest | {cidr} if ours else rest, key=str)
        return state is claim_repair.State.RESTORED

    async def serve(self, group: list[PendingRequest], known: Facts | None) -> None:
        """Bring every ticket of the group to its end; what it raises concerns all of them."""
        for ticket in group:
            ticket.started = True
        given = known is not None
        self._facts = known or await read_facts(self._store, self._host)
        looked = False
        if self._affine is None and any(isinstance(t.request, Allocate) for t in group):
            await self.load(self._facts)
            looked = True
        await self._follow_settings()
        labels = await self._labels(group)
        reloaded = not given
        rounds = 0
        while group:
            rounds += 1
            if rounds > ATTEMPTS:
                raise Contention(f"gave up after {ATTEMPTS} rounds: others take every free block")
            usable, refused = self._usable_pools(group, labels)
            if refused and not reloaded:
                # A pool may have been made a moment ago: look once more before refusing.
                reloaded = True
                self._facts = await read_facts(self._store, self._host)
                continue
            waiting = await self._commit(group, [usable[id(t)] for t in group])
            waiting = _without_refused(waiting, refused)
            group = [ticket for ticket, _ in waiting]
            before = len(self._affine or ()), len(group)
            try:
                await self._claim_fixed(waiting)
            except PoolEdited:
                self._facts = await read_facts(self._store, self._host)
                continue
            group = [ticket for ticket in group if not ticket.done.done()]
            short = [(t, answer) for t, answer in waiting if isinstance(answer, Short)]
            for family in sorted({answer.family for _, answer in short if answer.family}):
                lacking = [(t, answer) for t, answer in short if answer.family == family]
                if not looked:
                    looked = True
                    await self.load(self._facts)
                    break
                group = await self._more_for(lacking, group, family, usable)
            if (len(self._affine or ()), len(group)) != before:
                rounds = 0
        if self._affine is not None:
            await self._shed()

    def _usable_pools(
        self, group: Sequence[PendingRequest], labels: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[dict[int, list[Pool]], dict[int, IPAMError]]:
        """The pools that serve each request, and why none does. Both by the ticket's id.

        One that no pool serves is planned all the same: its attachment may have its addresses.
        """
        usable: dict[int, list[Pool]] = {}
        refused: dict[int, IPAMError] = {}
        for ticket in group:
            try:
                usable[id(ticket)] = self._pools_for(ticket.request, labels)
            except IPAMError as error:
                usable[id(ticket)] = []
                refused[id(ticket)] = error
        return usable, refused

    async def _follow_settings(self) -> None:
        if time.monotonic() - self._borrowed_at > BORROW_SECONDS:
            self._borrowable = []
        if self._facts.config is not None:
            self._config = self._facts.config
        elif self._borrowable:
            # Who borrows must know whether that is still allowed.
            self._config = await get_config(self._store)

    async def _labels(
        self, group: Sequence[PendingRequest]
    ) -> Mapping[str, Mapping[str, str] | None]:
        if not any(pool_choice.selects_by_namespace(pool) for pool in self._facts.pools):
            return {}
        namespaces = {
            ticket.request.namespace
            for ticket in group
            if isinstance(ticket.request, Allocate)
            and ticket.request.namespace
            and ticket.request.namespace_labels is None
        }
        return await facts.namespace_labels(self._store, namespaces)

    def _pools_for(
        self, request: Request, labels: Mapping[str, Mapping[str, str] | None]
    ) -> list[Pool]:
        if not isinstance(request, Allocate):
            return []
        if request.fixed:
            known, anyway = self._facts.pools, request.restores
            return [
                pool_choice.serving(known, a, request.use, disabled=anyway) for a in request.fixed
            ]
        chosen: list[Pool] = []
        for family in request.families:
            namespace = request.namespace_labels
            chosen += pool_choice.select(
                self._facts.pools,
                family,
                node_labels=self._facts.node_labels,
                requested=request.requested.get(family, ()),
                use=request.use,
                namespace_labels=labels.get(request.namespace) if namespace is None else namespace,
            )
        return chosen

    async def _commit(
        self, group: list[PendingRequest], usable: list[list[Pool]]
    ) -> list[tuple[PendingRequest, Answer]]:
        requests = [ticket.request for ticket in group]
        for request in requests:
            if isinstance(request, Release):
                known = request.known.items()
                self._view.learn({k: e for k, e in known if k not in self._view})
        sources = Sources(
            self._host,
            self._affine or [],
            self._borrowable,
            self._config.strict_affinity,
            self._facts.reserved,
            self._clock(),
            self._config.ipCooldownSeconds,
        )

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
        waiting: list[tuple[PendingRequest, Answer]] = []
        doubtful: list[IPAddress] = []
        for ticket, answer in zip(group, answers, strict=True):
            match answer:
                case Granted():
                    self.served += 1
                    ticket.grant(replace(answer, entries=self._after(ticket.request)))
                case Refused() if fixed := _first_refusal(ticket):
                    doubtful += fixed
                    waiting.append((ticket, Short(0)))
                case Refused(error):
                    ticket.fail(error)
                case _:
                    waiting.append((ticket, answer))
        if doubtful:
            await self._read_again(doubtful)
        return waiting

    async def _read_again(self, addresses: Sequence[IPAddress]) -> None:
        """Read the blocks of fixed addresses: no guard proves a refusal, which writes nothing.

        Another node may have given back what a block at hand still says is in use.
        """
        keys = set()
        for address in addresses:
            pool = pools.containing(self._facts.pools, ip_network(address))
            if pool is not None:
                size = pool.block_size
                keys.add(BlockKey(ip_network(f"{address}/{size}", strict=False)))
        self._view.learn(await self._store.get_many(sorted(keys, key=str)))

    def _after(self, request: Request) -> dict[Key, Entry | None]:
        """The handle and the companion's object of a request as the view has them."""
        keys: list[Key] = [HandleKey(request.handle_id)]
        if request.companion:
            keys.append(request.companion.key)
        return {key: self._view.get(key) for key in keys if key in self._view}

    async def _claim_fixed(self, waiting: Sequence[tuple[PendingRequest, Answer]]) -> None:
        """Claim the blocks of fixed addresses that have no owner; the next round assigns."""
        for cidr in {answer.cidr for _, answer in waiting if isinstance(answer, Unclaimed)}:
            self._view.forget([BlockKey(cidr)])
            try:
                mine = await affinities.claim(
                    self._store, self._view, self._host, cidr, self._clock,
                    pools.containing(self._facts.pools, cidr),
                )  # fmt: skip
            except CommitConflict:
                continue
            except BlockOverlaps as error:
                for ticket, answer in waiting:
                    if isinstance(answer, Unclaimed) and answer.cidr == cidr:
                        ticket.fail(error)
                continue
            if mine and self._affine is not None:
                self._affine = sorted({*self._affine, cidr}, key=str)

    async def _more_for(
        self,
        lacking: Sequence[tuple[PendingRequest, Short]],
        group: list[PendingRequest],
        family: int,
        usable: Mapping[int, list[Pool]],
    ) -> list[PendingRequest]:
        """Find more blocks for each set of pools that ran dry; fail the requests that get none."""
        by_pools: dict[tuple[str, ...], list[tuple[PendingRequest, Short]]] = {}
        for ticket, answer in lacking:
            chosen = [pool for pool in usable[id(ticket)] if pool.family == family]
            by_pools.setdefault(tuple(pool.name for pool in chosen), []).append((ticket, answer))
        for members in by_pools.values():
            tickets = [ticket for ticket, _ in members]
            chosen = [pool for pool in usable[id(tickets[0])] if pool.family == family]
            asked = [t.request for t in tickets if isinstance(t.request, Allocate)]
            caps = [request.max_blocks for request in asked]
            least = min(1 if r.partial else r.count_of(family) for r in asked)
            missing = sum(answer.missing for _, answer in members)
            try:
                await self._more(chosen, missing, max(caps, default=0), least)
            except PoolEdited:
                self._facts = await read_facts(self._store, self._host)
            except IPAMError as error:
                for ticket in tickets:
                    ticket.fail(error)
                group = [ticket for ticket in group if ticket not in tickets]
        return group

    async def _more(
        self, chosen: Sequence[Pool], missing: int, max_blocks: int, least: int
    ) -> None:
        self._config = self._facts.config or await get_config(self._store)
        free = 0
        while free < missing:
            affine = self._affine or []
            block_count = sum(1 for cidr in affine if pools.containing(chosen, cidr))
            try:
                cidr = await claims.claim_one(
                    self._store, self._view, self._host, chosen, block_count, self._config,
                    self._clock, self._facts.reserved, max_blocks,
                )  # fmt: skip
            except IPAMError as error:
                if free:
                    return
                if isinstance(error, BlockLimit) or not isinstance(error, PoolsExhausted):
                    raise
                await self._borrow(chosen, least, error)
                return
            self._affine = sorted({*affine, cidr}, key=str)
            free += blocks.free_count(self._view.value(BlockKey(cidr)))

    async def _borrow(self, chosen: Sequence[Pool], least: int, error: PoolsExhausted) -> None:
        """Look for blocks of others, enough for the request that wants the `least` addresses."""
        if self._config.strict_affinity:
            raise PoolsExhausted(f"{error}; strict affinity forbids borrowing") from error
        now, cooldown = self._clock(), self._config.ipCooldownSeconds
        reserved = self._facts.reserved
        borrowed = await claims.borrowable(
            self._store, self._view, self._host, chosen, reserved, now, cooldown, self._affine or ()
        )
        own = [cidr for cidr in self._affine or () if pools.containing(chosen, cidr)]
        free = sum(
            claims.free_addresses(self._view.value(BlockKey(cidr)), cidr, reserved, now, cooldown)
            for cidr in (*own, *borrowed)
        )
        if free < least:
            few = f"{free} are free, and {least} are wanted" if free else "all are in use"
            raise PoolsExhausted(
                f"no free address in pools {pools.names(chosen)}: {few}"
            ) from error
        others = [c for c in self._borrowable if not pools.containing(chosen, c)]
        self._borrowable = others + borrowed
        self._borrowed_at = time.monotonic()

    async def _shed(self) -> None:
        """Give up empty blocks of pools that do not select this node, or are gone (4.4, 4.7)."""
        if self._host.startswith(blocks.VIRTUAL):
            return
        labels = self._facts.node_labels
        for cidr in list(self._affine or ()):
            entry = self._view.get(BlockKey(cidr))
            if entry is None or not blocks.is_empty(entry.value):
                continue
            pool = pools.containing(self._facts.pools, cidr)
            if pool is not None and pool_choice.selects_node(pool, labels):
                continue
            affinity = await self._store.get(stored_claims.key_of(self._host, cidr))
            try:
                if affinity is not None:
                    await claim_release.release(self._store, affinity, entry)
            except CommitConflict:
                continue
            self._affine = [other for other in self._affine or () if other != cidr]
            self._view.forget([BlockKey(cidr)])


def _first_refusal(ticket: PendingRequest) -> tuple[IPAddress, ...]:
    """The fixed addresses of a request that is refused for the first time."""
    if ticket.doubted or not isinstance(ticket.request, Allocate):
        return ()
    ticket.doubted = True
    return ticket.request.fixed


def _without_refused(
    waiting: Sequence[tuple[PendingRequest, Answer]], refused: Mapping[int, IPAMError]
) -> list[tuple[PendingRequest, Answer]]:
    """Fail the requests that no pool serves and that held nothing yet; the others."""
    left = []
    for ticket, answer in waiting:
        error = refused.get(id(ticket))
        # Short(0): it did not fit beside the others of its group.
        if error is not None and (ticket.doubted or answer != Short(0)):
            ticket.fail(error)
        else:
            left.append((ticket, answer))
    return left
