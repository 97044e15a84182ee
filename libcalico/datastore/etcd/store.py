"""The datastore interface on etcd v3.

Guards become compares of the modification revision; ABSENT compares the version with 0. A
commit is one transaction, so DS-1 is etcd's. Lists are paged at one revision.

Tested against a real etcd in tests/libcalico/test_etcd_store.py.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd import watch as watching
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.entries import decode, entry_of
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.interface import (
    ABSENT,
    Batch,
    Change,
    Check,
    CommitConflict,
    Compacted,
    Delete,
    Entry,
    Listing,
    Put,
    Selection,
)
from libcalico.errors import DatastoreError, InvalidValue
from libcalico.model import codec
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.meta import stamp
from libcalico.model.profile import DEFAULT_ALLOW, default_allow

PAGE = 1000
MAX_OPERATIONS = 128
LIST_ATTEMPTS = 3

_BUILT_IN = ResourceKey("Profile", DEFAULT_ALLOW)


class EtcdDatastore:
    """`interface.Datastore` on etcd."""

    def __init__(self, config: DatastoreConfig) -> None:
        self._connection = Connection(config)

    async def get(self, key: Key) -> Entry | None:
        """The object, or None. Raises InvalidValue when its bytes cannot be understood."""
        return (await self.get_many([key]))[key]

    async def get_many(self, wanted: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects at one revision."""
        found: dict[Key, Entry | None] = dict.fromkeys(wanted)
        stored = [key for key in found if key != _BUILT_IN]
        revision = 0
        for start in range(0, len(stored), MAX_OPERATIONS):
            part = stored[start : start + MAX_OPERATIONS]
            request = pb.TxnRequest(success=[_range_op(key, revision) for key in part])
            answer = await self._connection.read(lambda link: link.txn, request)
            revision = revision or answer.header.revision
            found.update(_entries(part, answer.responses))
        if _BUILT_IN in found:
            found[_BUILT_IN] = _built_in()
        return found

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision, ordered by key."""
        for attempt in range(LIST_ATTEMPTS):
            try:
                return await self._list(selection)
            except Compacted:
                # Compacted between two pages: begin again at a younger revision.
                if attempt == LIST_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def commit(self, changes: Sequence[Change]) -> int:
        """Apply all or nothing; returns the new revision.

        Raises CommitConflict when a guard does not hold, DatastoreError for what etcd
        refuses, DatastoreUnavailable. When the answer to a write is lost the last one says
        so: the changes may or may not have been applied, and a reader of the guarded
        objects can tell.
        """
        compares, operations, guarded = [], [], []
        seen: set[Key] = set()
        for change in changes:
            if change.key in seen:
                raise DatastoreError(f"{change.key} appears twice in one commit")
            seen.add(change.key)
            _refuse_built_in(change)
            if change.guard is not None:
                compares.append(_compare(change.key, change.guard))
                guarded.append(change.key)
            operation = _operation(change)
            if operation is not None:
                operations.append(operation)
        if max(len(compares), len(operations)) > MAX_OPERATIONS:
            raise DatastoreError(
                f"a commit of {len(operations)} changes and {len(compares)} guards is too "
                f"large: etcd takes {MAX_OPERATIONS} of each"
            )
        request = pb.TxnRequest(
            compare=compares, success=operations, failure=[_range_op(key, 0) for key in guarded]
        )
        answer = await self._connection.write(lambda link: link.txn, request)
        if not answer.succeeded:
            raise CommitConflict(_entries(guarded, answer.responses, tolerant=True))
        return int(answer.header.revision)

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`; raises `Compacted` or `DatastoreUnavailable`.

        Events of one key are in order, and those of one selection; changes of one commit in
        two selections arrive in two batches.
        """
        return watching.watch(self._connection, selections, revision)

    async def close(self) -> None:
        """Close the channels."""
        await self._connection.close()

    async def _list(self, selection: Selection) -> Listing:
        first, end = keys.range_of(selection)
        entries: list[Entry] = []
        broken: list[tuple[str, str]] = []
        revision = 0
        while True:
            request = pb.RangeRequest(key=first, range_end=end, limit=PAGE, revision=revision)
            answer = await self._connection.read(lambda link: link.range, request)
            revision = revision or answer.header.revision
            with _collector_paused():
                for kv in answer.kvs:
                    _collect(selection, kv, entries, broken)
            if not answer.more:
                break
            first = answer.kvs[-1].key + b"\0"
        if selection.family == "Profile" and DEFAULT_ALLOW.startswith(selection.name_prefix):
            entries.append(_built_in())
        return Listing(entries, revision, broken)


def _collect(
    selection: Selection, kv: Any, entries: list[Entry], broken: list[tuple[str, str]]
) -> None:
    path = kv.key.decode(errors="replace")
    key = keys.key_of_path(path)
    if key is None or not keys.selects(selection, key):
        return
    entry, reason = entry_of(key, kv.value, kv.mod_revision)
    if reason:
        broken.append((path, reason))
    if entry is not None:
        entries.append(entry)


def _entry(key: Key, kv: Any) -> Entry:
    return decode(key, kv.value, kv.mod_revision)


def _entries(
    wanted: Sequence[Key], responses: Sequence[Any], tolerant: bool = False
) -> dict[Key, Entry | None]:
    found: dict[Key, Entry | None] = {}
    for key, response in zip(wanted, responses, strict=True):
        kvs = response.response_range.kvs
        try:
            found[key] = _entry(key, kvs[0]) if kvs else None
        except InvalidValue:
            if not tolerant:
                raise
            found[key] = Entry(key, None, kvs[0].mod_revision, kvs[0].value)
    return found


def _built_in() -> Entry:
    value = default_allow()
    return Entry(_BUILT_IN, value, 1, codec.encode_value(_BUILT_IN, value))


def _refuse_built_in(change: Change) -> None:
    if change.key != _BUILT_IN or isinstance(change, Check):
        return
    if isinstance(change, Put) and change.guard == ABSENT:
        raise CommitConflict({_BUILT_IN: _built_in()})
    raise DatastoreError(f"{_BUILT_IN} is built in: it cannot be changed or deleted")


def _range_op(key: Key, revision: int) -> Any:
    return pb.RequestOp(
        request_range=pb.RangeRequest(key=keys.path_of(key).encode(), revision=revision)
    )


def _compare(key: Key, guard: int) -> Any:
    path = keys.path_of(key).encode()
    if guard == ABSENT:
        return pb.Compare(key=path, target=pb.Compare.VERSION, version=0)
    return pb.Compare(key=path, target=pb.Compare.MOD, mod_revision=guard)


def _operation(change: Change) -> Any:
    path = keys.path_of(change.key).encode()
    match change:
        case Put(key, value, _, base):
            if isinstance(key, ResourceKey):
                value = stamp(_named(key, value))
            raw = codec.encode_value(key, value, base.raw if base else None)
            return pb.RequestOp(request_put=pb.PutRequest(key=path, value=raw))
        case Delete():
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=path))
        case Check():
            return None


def _named(key: ResourceKey, value: Any) -> Any:
    """Refuse a resource under another's key: the name in it must be the key's."""
    metadata = value.metadata
    if metadata.name != key.name or (key.namespace and metadata.namespace != key.namespace):
        raise InvalidValue(
            "metadata.name", f"{metadata.namespace}/{metadata.name}", "must be its key's", str(key)
        )
    if value.kind != key.kind:
        value = msgspec.structs.replace(value, kind=key.kind)
    return value


@contextmanager
def _collector_paused() -> Iterator[None]:
    # The cyclic collector costs more than the parser when thousands of objects are made.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
