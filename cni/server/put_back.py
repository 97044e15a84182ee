"""One attachment put back into the datastore, by the node that has its pod.

The address comes back under the same handle, and the endpoint as it was. Nothing that is there is
changed (CNI-103). Tested in tests/cni/test_restore.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

import msgspec

from cni.node.daemon_context import DaemonContext
from cni.node.records import Record
from cni.pods.endpoint import is_of, recorded_addresses
from cni.request.attachment import INTERFACE
from cni.server.stored_attachments import StoredAttachments, unallocated
from cni.socket.container_locks import Acquire
from cni.verbs.recorded import kernel_marks
from ipam.allocator.adoption import adopt
from ipam.allocator.requests import Allocate, Companion
from ipam.records.blocks import IPAddress
from ipam.records.errors import AddressInUse
from ipam.records.naming import pod_attributes
from libcalico.datastore.interface import ABSENT, Change, CommitConflict, Entry, Put
from libcalico.model import WorkloadEndpoint
from libcalico.model.keys import BlockKey, Key
from libcalico.process.counters import Counter

log = logging.getLogger(__name__)

TRIES = 3
RESTORED = Counter("calico_cni_restored", "Attachments put back into the datastore")


class PutBack:
    """Puts back what is missing of an attachment, under its container's lock."""

    def __init__(
        self, context: DaemonContext, container_lock: Acquire, stored: StoredAttachments
    ) -> None:
        self._context, self._container_lock, self._stored = context, container_lock, stored
        self._records = context.records

    async def put_back(self, record: Record) -> None:
        """Put back all that is missing of one attachment. Raises MuslinError, TimeoutError."""
        context, attachment = self._context, record.attachment
        async with (
            self._container_lock(attachment.container_id),
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
        entries = await self._stored.read_all_of(record)
        entry = entries[record.key]
        if entry is None and self._stored.native and record.endpoint is not None:
            # Kubernetes has no such Pod any more; its DEL shall find what its block has of it.
            return await self._adopt(record, entries)
        if entry is not None and not is_of(entry, record.attachment):
            return False
        adopted = await self._adopt(record, entries)
        if adopted:
            entries = await self._stored.read_all_of(record)
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
        if not by_block:
            return False
        handle_id, attributes = record.attachment.handle_id, attributes_of(record)
        return await adopt(self._context.store, handle_id, attributes, by_block)


def _endpoint(record: Record) -> Put:
    """The endpoint, made anew: what the datastore gave to the old one is given again."""
    assert record.endpoint is not None
    meta = record.endpoint.metadata
    fresh: WorkloadEndpoint = msgspec.structs.replace(
        record.endpoint, metadata=msgspec.structs.replace(meta, resourceVersion="")
    )
    return Put(record.key, fresh, ABSENT)


def attributes_of(record: Record) -> dict[str, str]:
    """The attributes of an allocation that a record's attachment has."""
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
        attributes=attributes_of(record),
        fixed=tuple(addresses),
        use="",
        restores=True,
        namespace=attachment.namespace if attachment.pod else "",
        companion=Companion(record.key, change, addresses_of) if record.endpoint else None,
    )
