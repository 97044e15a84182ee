"""What the datastore has of the attachments that this node remembers.

Tested in tests/cni/test_restore.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from ipaddress import ip_network

import msgspec

from cni.node.daemon_context import DaemonContext
from cni.node.records import Record
from cni.pods.endpoint import is_of
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from ipam.records.pools import containing
from libcalico.datastore.capabilities import Refusing
from libcalico.datastore.interface import Entry
from libcalico.errors import InvalidValue
from libcalico.model.keys import BlockKey, Key

log = logging.getLogger(__name__)


class StoredAttachments:
    """Reads endpoint, handle and blocks of records. `unread` says what cannot be read, and why."""

    def __init__(self, context: DaemonContext) -> None:
        self._context, self._records = context, context.records
        # On Kubernetes each object costs a request, and the endpoint is the Pod: blocks are few.
        self.native = isinstance(context.store, Refusing)
        self.unread: Mapping[Key, str] = {}

    async def missing(self, records: Sequence[Record], *, handles: bool) -> list[Record]:
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
        keys += [record.attachment.handle_key] if record.addresses else []
        return any(key in entries and entries[key] is None for key in keys)

    def _keys_of(self, record: Record, handles: bool) -> set[Key]:
        """The keys that are compared of one record."""
        keys: set[Key] = {*self._blocks_of(record)}
        if handles:
            keys.add(record.attachment.handle_key)
        if not self.native:
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
        for key in unread.keys() - self.unread.keys():
            log.warning("its pods cannot be compared with the datastore: %s", unread[key])
        others = {key: why for key, why in self.unread.items() if key not in asked}
        self.unread = {**others, **unread}

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

    async def read_all_of(self, record: Record) -> dict[Key, Entry | None]:
        """Read everything of one attachment, blocks of other sizes too."""
        handle = record.attachment.handle_key
        entries = await self._read([record.key, handle])
        entry = entries[handle]
        blocks_by_handle = set(handles.block_keys(entry.value)) if entry else set()
        return entries | await self._read(self._blocks_of(record) | blocks_by_handle)


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
