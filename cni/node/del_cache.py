"""What ADDs of this process committed, so that their DELs need not read it again.

A cached entry is only a proposal. The guards of the DEL's transaction compare revisions; when the
handle or the endpoint has changed since, the transaction fails and the datastore is read. A lost
entry costs one round trip. Tested in tests/cni/test_delete.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cni.request.attachment import Attachment
from ipam.allocator.requests import Granted
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Entry
from libcalico.model.keys import Key

LIMIT = 1000


@dataclass(frozen=True, slots=True)
class CachedAttachment:
    """One attachment's addresses, and its handle and endpoint as they were stored."""

    addresses: frozenset[IPAddress]
    entries: Mapping[Key, Entry | None]


class DelCache:
    """At most `LIMIT` entries; the oldest go first."""

    def __init__(self) -> None:
        self._kept: dict[Attachment, CachedAttachment] = {}

    def keep(self, attachment: Attachment, granted: Granted) -> None:
        """Cache what was granted, unless the handle is shared with other interfaces."""
        self._kept.pop(attachment, None)
        handle = granted.entries.get(attachment.handle_key)
        if handle is None or granted.entries.get(attachment.endpoint_key) is None:
            return
        if sum((handle.value.block or {}).values()) != len(granted.addresses):
            return
        self._kept[attachment] = CachedAttachment(frozenset(granted.addresses), granted.entries)
        if len(self._kept) > LIMIT:
            del self._kept[next(iter(self._kept))]

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def pop(self, attachment: Attachment) -> CachedAttachment | None:
        """Remove and return the entry of an attachment."""
        return self._kept.pop(attachment, None)
