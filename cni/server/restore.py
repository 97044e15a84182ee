"""The pods of this node that run have their endpoint and addresses in the datastore.

An operator may delete there what a running pod has: with its Node, its block, its handle, or its
endpoint by name. Then felix takes its rules away, and its address is free for another. So what is
remembered of each attachment (`cni.node.records`), and whose link still stands here with its mark,
is compared with the datastore: at start, when the Node was missing, when an address was given out
twice, when the datastore was put back to an earlier state, and every `AUDIT` seconds. What is
missing is put back by the node that has the pod: address under the same handle, and the endpoint as
it was. What another one holds by now cannot be; that is a condition, and the pod has to be started
again.

On the Kubernetes datastore the endpoint is the Pod: without one nothing is put back.

Invariants (tests/cni/test_restore.py):
  CNI-102  Only an attachment whose link stands with its mark is put back, in its container's turn.
  CNI-103  Nothing that is there is changed: neither another container's endpoint nor another
           handle's address. An object that cannot be read keeps its own pods out, and no others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from functools import partial
from ipaddress import ip_network

import msgspec
from prometheus_client import Counter, Gauge

from cni.node.daemon_context import DaemonContext
from cni.node.own_machine import why_foreign
from cni.node.records import Record
from cni.pods.endpoint import is_of, recorded_addresses
from cni.request.attachment import INTERFACE
from cni.verbs.recorded import kernel_marks, learn
from ipam.allocator.adoption import plan_adopt
from ipam.allocator.committer import settle
from ipam.allocator.requests import Allocate, Companion
from ipam.allocator.restoration import Use
from ipam.allocator.view import View
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from ipam.records.errors import AddressInUse
from ipam.records.naming import pod_attributes
from ipam.records.pools import containing
from libcalico.datastore.interface import ABSENT, Change, CommitConflict, Entry, Put, Refusing
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import WorkloadEndpoint
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork, Key
from libcalico.process.backoff import Backoff
from linux.errors import KernelError

log = logging.getLogger(__name__)

AUDIT = 300.0
"""Seconds between two comparisons, up to a fifth less so that nodes do not ask together. One reads
two objects of each pod: at 1,000 nodes of 110 pods that is some 800 reads a second."""
AGAIN, SELDOM = 5.0, 60.0
"""Seconds until what could not be put back is tried again, that alone: at first, and at most."""
TRIES = 3
RESTORED = Counter("calico_cni_restored", "Attachments put back into the datastore")
LOST = Gauge("calico_cni_attachments_lost", "Running attachments that cannot be put back")

Turn = Callable[[str], AbstractAsyncContextManager[None]]


class Restorer:
    """`run` keeps comparing. `lost` names what cannot be put back, and why."""

    def __init__(self, context: DaemonContext, turn: Turn, *, audit: float = AUDIT) -> None:
        self._context, self._turn, self._audit = context, turn, audit
        self._records = context.records
        # On Kubernetes each object costs a request, and the endpoint is the Pod: blocks are few.
        self._native = isinstance(context.store, Refusing)
        self._handles_too = not self._native
        """Whether the next comparison reads handles: where a block is made anew they may be gone
        as well, and a DEL would leave what no handle names."""
        self.lost: dict[str, str] = {}
        self._lost: list[Record] = []
        self._trouble = ""
        self.gap = 0.0
        """Seconds from the last comparison to the next."""
        self._unread: Mapping[Key, str] = {}
        self.looked = 0
        context.cluster.node_came = self._records.comparison_due.set
        own = context.allocator.own
        own.remembered, own.made_again = self.remembered, self.compare_soon
        own.foreign = partial(why_foreign, context, runtime=True)

    def remembered(self, cidr: IPNetwork) -> list[Use]:
        """The addresses of a block that attachments standing on this node have.

        For a block that is made anew where its endpoints were deleted as well.
        """
        records = [
            (record, address)
            for record in self._records.all()
            for address in record.addresses
            if address.version == cidr.version and address in cidr
        ]
        if not records:
            return []
        try:
            marks = kernel_marks()
        except (KernelError, OSError) as error:
            log.warning("whether attachments still stand is not known, so they do: %s", error)
            standing = records
        else:
            standing = [one for one in records if one[0].stands(marks)]
        return [
            Use(address, record.attachment.handle_id, _attributes(record))
            for record, address in standing
        ]

    def compare_soon(self) -> None:
        """Compare soon, handles too: a block was made anew, and handles of its pods may be gone."""
        self._handles_too = True
        self._records.comparison_due.set()

    async def run(self) -> None:
        """Compare, and put back what is missing, until cancelled."""
        await self._context.cluster.wait_in_sync()
        again = Backoff(AGAIN, SELDOM)
        loop, known, due = asyncio.get_running_loop(), False, 0.0
        while True:
            whole = self._records.comparison_due.is_set() or loop.time() >= due
            self._records.comparison_due.clear()
            left = True
            try:
                if not known:
                    await learn(self._context)
                    known = True
                if whole:
                    due = 0.0  # until it was possible
                    if await self.look():
                        due = loop.time() + self._audit * random.uniform(0.8, 1.0)
                else:
                    await self.look_again()
                left, self._trouble = bool(self._lost) or not due, ""
            except (MuslinError, KernelError, OSError, TimeoutError) as error:
                self._complain(str(error) or "no answer in time")
            if left:
                self.gap = again.next()
            else:
                again.reset()
                self.gap = max(0.0, due - loop.time())
            try:
                async with asyncio.timeout(self.gap):
                    await self._records.comparison_due.wait()
            except TimeoutError:
                pass

    def _complain(self, why: str) -> None:
        if why != self._trouble:
            log.warning("pods of this node cannot be compared with the datastore: %s", why)
        self._trouble = why

    async def look(self) -> bool:
        """Compare once, and put back what is missing; False where that is not possible now.

        Raises MuslinError, KernelError, OSError.
        """
        if not await self._possible():
            return False
        # What a block that is made anew from here on asks for is the next comparison's.
        handles, self._handles_too = self._handles_too, not self._native
        whole = False
        try:
            whole = await self._look(self._records.all(), handles=handles)
        finally:
            self._handles_too |= handles and not whole
        return True

    async def look_again(self) -> None:
        """Compare only the attachments that could not be put back the last time."""
        if await self._possible():
            still = [one for one in self._lost if one in self._records.all()]
            await self._look(still, handles=True)

    async def _possible(self) -> bool:
        """Whether the datastore is not locked, and this machine is known to be the node."""
        context = self._context
        if context.cluster.locked or not context.cluster.has_node(context.node):
            return False
        if not self._records.all():
            return True
        return not await why_foreign(context, runtime=True, unknown=False)

    async def _look(self, records: list[Record], *, handles: bool) -> bool:
        """Compare these records; whether all were compared, and nothing is missing any more."""
        if not records:
            self._lost = []
            self._tell({})
            return True
        # In this order: what is remembered by now had its link before.
        marks = await self._context.in_thread(kernel_marks)
        for record in records:
            if not record.stands(marks):
                # Without its turn, which the collector would take for a call of the container.
                self._records.drop_this(record)
        standing = [one for one in records if one.stands(marks)]
        missing = await self._missing(standing, handles=handles)
        lost: dict[str, str] = {}
        self._lost = []
        for record in missing:
            try:
                await self._put_back(record)
            except (MuslinError, TimeoutError) as error:
                lost[str(record.attachment)] = str(error) or "no answer in time"
                self._lost.append(record)
        self._tell(lost)
        self.looked += 1
        return not lost and not self._unread

    def _tell(self, lost: dict[str, str]) -> None:
        for name, why in lost.items():
            if name not in self.lost:
                log.error("%s runs and cannot be put back into the datastore: %s", name, why)
        self.lost = lost
        LOST.set(len(lost))

    # -- what is there -------------------------------------------------------------------------

    async def _missing(self, records: Sequence[Record], *, handles: bool) -> list[Record]:
        """The records that lack something; the others' endpoints are remembered as they are now."""
        if not records:
            return []
        compared_keys = {key for one in records for key in self._keys_of(one, handles)}
        entries, unread = await self._readable(compared_keys)
        self._tell_unread(compared_keys, unread)
        missing = []
        for record in records:
            if unread and not unread.keys().isdisjoint(self._keys_of(record, handles)):
                continue  # what it lacks cannot be said; the others' records can
            entry = entries.get(record.key)
            if entry is not None and not is_of(entry, record.attachment):
                continue  # a newer container's: its ADD is under way, or its record comes
            if self._lacks(record, entries) or unallocated(record, entries):
                missing.append(record)
            elif entry is not None and record.endpoint not in (None, entry.value):
                fresh = msgspec.structs.replace(record, endpoint=entry.value)
                self._records.remember(fresh)
        return missing

    def _lacks(self, record: Record, entries: Mapping[Key, Entry | None]) -> bool:
        """Whether what was read of endpoint and handle is missing."""
        keys: list[Key] = [record.key] if record.endpoint is not None else []
        keys += [_handle(record)] if record.addresses else []
        return any(key in entries and entries[key] is None for key in keys)

    def _keys_of(self, record: Record, handles: bool) -> set[Key]:
        """The keys that are compared of one record."""
        keys: set[Key] = {*self._blocks_of(record)}
        if handles:
            keys.add(_handle(record))
        if not self._native:
            keys.add(record.key)
        return keys

    async def _readable(
        self, keys: Iterable[Key]
    ) -> tuple[dict[Key, Entry | None], dict[Key, str]]:
        """The stored entries, and why the rest cannot be read."""
        listed = list(keys)
        try:
            return await self._read(listed), {}
        except InvalidValue:
            pass
        entries, unread = dict[Key, Entry | None](), dict[Key, str]()
        for key in listed:
            try:
                entries[key] = await self._context.store.get(key)
            except InvalidValue as error:
                unread[key] = str(error)
        return entries, unread

    def _tell_unread(self, asked: Set[Key], unread: Mapping[Key, str]) -> None:
        for key in unread.keys() - self._unread.keys():
            log.warning("its pods cannot be compared with the datastore: %s", unread[key])
        others = {key: why for key, why in self._unread.items() if key not in asked}
        self._unread = {**others, **unread}

    async def _read(self, keys: Iterable[Key]) -> dict[Key, Entry | None]:
        return dict(await self._context.store.get_many(sorted(keys, key=str)))

    def _blocks_of(self, record: Record) -> set[BlockKey]:
        """The blocks of the addresses, by the present pools."""
        facts = self._context.cluster.facts(self._context.node)
        keys = set()
        for address in record.addresses:
            pool = containing(facts.pools if facts else (), ip_network(address))
            if pool is not None:
                keys.add(BlockKey(ip_network(f"{address}/{pool.block_size}", strict=False)))
        return keys

    async def _read_all_of(self, record: Record) -> dict[Key, Entry | None]:
        """Read everything of one attachment, blocks of other sizes too."""
        handle = _handle(record)
        entries = await self._read([record.key, handle])
        entry = entries[handle]
        blocks_by_handle = set(handles.block_keys(entry.value)) if entry else set()
        return entries | await self._read(self._blocks_of(record) | blocks_by_handle)

    # -- putting back --------------------------------------------------------------------------

    async def _put_back(self, record: Record) -> None:
        """Put back all that is missing of one attachment. Raises MuslinError, TimeoutError."""
        context, attachment = self._context, record.attachment
        async with (
            self._turn(attachment.container_id),
            asyncio.timeout(context.settings.release_seconds),
        ):
            if record not in self._records.all():
                return
            if not record.stands(await context.in_thread(kernel_marks)):
                return
            changed = False
            for left in reversed(range(TRIES)):
                try:
                    changed = await self._put_back_once(record) or changed
                    break
                except (AddressInUse, CommitConflict):
                    # The block may be back since it was read (ipam.allocator.restoration).
                    if not left:
                        raise
            if not changed:
                return
        RESTORED.inc()
        log.warning(
            "%s runs and was missing from the datastore: put back",
            attachment,
            extra={
                "container": attachment.container_id,
                "addresses": ",".join(map(str, record.addresses)),
            },
        )

    async def _put_back_once(self, record: Record) -> bool:
        """Put back what is missing now; whether something was changed."""
        context = self._context
        entries = await self._read_all_of(record)
        entry = entries[record.key]
        if entry is None and self._native and record.endpoint is not None:
            # Kubernetes has no such Pod any more; its DEL shall find what its block has of it.
            return await self._adopt(record, entries)
        if entry is not None and not is_of(entry, record.attachment):
            return False
        adopted = await self._adopt(record, entries)
        if adopted:
            entries = await self._read_all_of(record)
        if unallocated_addresses := unallocated(record, entries):
            # Nothing that is remembered of blocks counts: they may be gone, and others now.
            known = context.cluster.facts(context.node)
            allocation = _allocation(record, unallocated_addresses)
            await context.allocator.allocate_apart(allocation, known)
        elif entry is None and record.endpoint is not None:
            await context.store.commit([_endpoint(record)])
        else:
            return adopted
        return True

    async def _adopt(self, record: Record, entries: Mapping[Key, Entry | None]) -> bool:
        """Adopt allocations that no handle names, with the handle; whether something changed."""
        by_block: dict[BlockKey, list[IPAddress]] = {}
        for key, entry in entries.items():
            if isinstance(key, BlockKey) and entry is not None:
                inside = [a for a in record.addresses if a.version == key.cidr.version]
                by_block[key] = [a for a in inside if a in key.cidr]
        plan = partial(
            plan_adopt,
            handle_id=record.attachment.handle_id,
            attributes=_attributes(record),
            by_block=by_block,
        )
        return await settle(self._context.store, View(), plan) if by_block else False


def unallocated(record: Record, entries: Mapping[Key, Entry | None]) -> list[IPAddress]:
    """The addresses of a record that no block gives to its handle. Pure."""
    handle = record.attachment.handle_id
    allocated = {
        one.address
        for key, entry in entries.items()
        if isinstance(key, BlockKey) and entry is not None
        for one in blocks.allocations(entry.value)
        if one.handle_id == handle
    }
    return [address for address in record.addresses if address not in allocated]


def _endpoint(record: Record) -> Put:
    """The endpoint, made anew: what the datastore gave to the old one is given again."""
    assert record.endpoint is not None
    meta = record.endpoint.metadata
    fresh: WorkloadEndpoint = msgspec.structs.replace(
        record.endpoint, metadata=msgspec.structs.replace(meta, resourceVersion="")
    )
    return Put(record.key, fresh, ABSENT)


def _handle(record: Record) -> HandleKey:
    return HandleKey(record.attachment.handle_id)


def _attributes(record: Record) -> dict[str, str]:
    one = record.attachment
    attributes = pod_attributes(one.node, one.namespace, one.pod, time.time_ns())
    # Another main plugin's: its DEL asks whose interface has the address.
    return (
        attributes
        if record.endpoint
        else dict(sorted({**attributes, INTERFACE: one.ifname}.items()))
    )


def _allocation(record: Record, addresses: Sequence[IPAddress]) -> Allocate:
    attachment = record.attachment

    def change(current: Entry | None, _addresses: Sequence[IPAddress]) -> Change | None:
        return _endpoint(record) if current is None else None

    def addresses_of(current: Entry | None) -> Sequence[IPAddress]:
        return recorded_addresses(current, attachment)

    return Allocate(
        handle_id=attachment.handle_id,
        attributes=_attributes(record),
        fixed=tuple(addresses),
        use="",
        restores=True,
        namespace=attachment.namespace if attachment.pod else "",
        companion=Companion(record.key, change, addresses_of) if record.endpoint else None,
    )
