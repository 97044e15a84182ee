"""The datastore interface on etcd v3.

Guards become compares of the modification revision; ABSENT compares the version with 0. A
commit is one transaction, so DS-1 is etcd's. Lists are paged at one revision, and decoded in
slices with the event loop's other work between them (`./run bench datastore`).

ETCD-3: no slice of a list or of a watch holds the event loop for long.

ETCD-4: no answer of a store that was put back to an earlier state is taken for one of the store
before: the first answer from there tells `when_replaced`, and a read or refused commit raises
`Replaced`, so nothing is written by what was known of the other one. All watches through a proxy
begin anew with that answer, for the proxy keeps them as if nothing had happened.

Tested against a real etcd in tests/libcalico/test_etcd_store.py.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import built_in
from libcalico.datastore.capabilities import Readable, whole_listing
from libcalico.datastore.etcd import keys, leases, listing
from libcalico.datastore.etcd import watch as watching
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.entries import decode
from libcalico.datastore.etcd.link import Call, Link
from libcalico.datastore.etcd.listing import A, Q
from libcalico.datastore.etcd.operations import (
    MAX_OPERATIONS,
    named_keys,
    range_op,
    too_large,
    transaction_of,
)
from libcalico.datastore.etcd.position import Position, foreign, replaced
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.proxy.proxies import Route
from libcalico.datastore.etcd.proxy.reading import Reader
from libcalico.datastore.interface import (
    Batch,
    Change,
    CommitConflict,
    Compacted,
    Entry,
    Listing,
    Put,
    Replaced,
    Rows,
    Selection,
)
from libcalico.errors import (
    DatastoreFull,
    InvalidValue,
    PermissionDenied,
    ValueTooLarge,
)
from libcalico.model.keys import Key

log = logging.getLogger(__name__)

_NEVER = 2**62
"""A revision that nothing was ever written at."""


class EtcdDatastore:
    """`interface.Datastore` on etcd. `gather`: seconds that events may wait after a quiet time.

    `node`: the name by which long reads choose one of the configuration's proxies.
    """

    def __init__(self, config: DatastoreConfig, gather: float = 0.0, node: str = "") -> None:
        self._connection = Connection(config, gather)
        self._reader: Reader | None = None
        if config.proxies and config.username and config.password:
            log.warning("no etcd proxy is used where a login is needed (docs/datastores.md)")
        elif config.proxies:
            self._reader = Reader(config, Route(node, config.proxies), self, gather)
        self.full = ""
        self._seen = Position()
        self.when_replaced: Callable[[], None] = lambda: None

    @property
    def reader(self) -> Readable:
        """What a process that follows the store lists and watches by (`capabilities.Divided`)."""
        return self._reader or self

    @property
    def detour(self) -> str:
        """Why no proxy is used though some are named (`capabilities.Divided`)."""
        return self._reader.way.bypass if self._reader else ""

    @property
    def prompt(self) -> bool:
        """Whether a guarded commit is sent before its caller waits for anything."""
        return self._connection.prompt

    async def get(self, key: Key) -> Entry | None:
        """The object, or None. Raises InvalidValue when its bytes cannot be understood."""
        return (await self.get_many([key]))[key]

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects at one revision."""
        entries: dict[Key, Entry | None] = dict.fromkeys(keys)
        stored = [key for key in entries if key != built_in.KEY]
        revision = 0
        for start in range(0, len(stored), MAX_OPERATIONS):
            part = stored[start : start + MAX_OPERATIONS]
            request = pb.TxnRequest(success=[range_op(key, revision) for key in part])
            answer = await self._read(lambda link: link.txn, request, part)
            revision = revision or answer.header.revision
            entries.update(_entries(part, answer.responses))
        if built_in.KEY in entries:
            entries[built_in.KEY] = built_in.entry()
        return entries

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision, ordered by key."""
        return await whole_listing(self, selection)

    def pages(self, selection: Selection, revision: int = 0) -> AsyncIterator[Listing]:
        """The pages of a listing, all at one revision: `revision`, or the present one."""
        return listing.pages(self._read, selection, revision)

    def rows(self, selection: Selection) -> AsyncIterator[Rows]:
        """The resources of a selection as they are stored, some at a time; none is decoded."""
        return listing.rows(self._read, selection)

    async def commit(self, changes: Sequence[Change]) -> int:
        """Apply all or nothing; returns the new revision.

        Raises CommitConflict when a guard does not hold, DatastoreError for what etcd
        refuses, DatastoreUnavailable. When the answer to a write is lost the last one says
        so: the changes may or may not have been applied, and a reader of the guarded
        objects can tell.
        """
        transaction = transaction_of(changes)
        try:
            granted = [await self._grant(put, ttl) for put, ttl in transaction.leased]
            before = self._seen
            guarded = len(transaction.guarded) == len(changes)
            answer = await self._connection.write(transaction.request(), guarded=guarded)
        except DatastoreFull as problem:
            self.full = str(problem)
            raise
        except PermissionDenied as problem:
            raise PermissionDenied(
                f"{problem}: {named_keys(change.key for change in changes)}"
            ) from None
        except ValueTooLarge as problem:
            raise too_large(transaction.operations, problem) from None
        if any(isinstance(change, Put) for change in changes):
            self.full = ""
        if not answer.succeeded:
            await leases.revoke(self._connection, granted)
            self.compare(before, answer.header)
            raise CommitConflict(_entries(transaction.guarded, answer.responses, tolerant=True))
        self._follows(before, answer.header)
        return answer.header.revision

    async def require_room(self, key: Key) -> None:
        """Raises DatastoreError unless a write of `key` would be taken now; nothing is written.

        etcd looks at the size of a transaction before its guards (server/etcdserver/apply), and
        this one's never holds.
        """
        path = keys.path_of(key).encode()
        never = pb.Compare(key=path, target=pb.Compare.MOD, mod_revision=_NEVER)
        put = pb.RequestOp(request_put=pb.PutRequest(key=path, value=b"{}"))
        try:
            await self._connection.write(
                pb.TxnRequest(compare=[never], success=[put]), guarded=True
            )
        except DatastoreFull as problem:
            self.full = str(problem)
            raise
        except PermissionDenied as problem:
            raise PermissionDenied(f"{problem}: {named_keys([key])}") from None
        self.full = ""

    async def grant(self, ttl: int) -> int:
        """`capabilities.Leasing`."""
        return await leases.grant(self._connection, ttl)

    async def keep_alive(self, lease: int) -> bool:
        """`capabilities.Leasing`."""
        return await leases.keep_alive(self._connection, lease)

    async def seconds_left(self, key: Key) -> int:
        """`capabilities.Leasing`."""
        return await leases.seconds_left(self._connection, keys.path_of(key))

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`; raises `Compacted` or `DatastoreUnavailable`.

        Events of one key are in order, and those of one selection; changes of one commit in
        two selections arrive in two batches.
        """
        return watching.watch(self._connection, selections, revision)

    def hold(self) -> None:
        """`capabilities.Deferring`: hold events back for a moment (`etcd.stream`)."""
        (self._reader or self._connection).hold()

    async def compact(self, revision: int) -> None:
        """Forget the history before a revision; what is forgotten already is no error.

        Raises DatastoreError. A watch from before ends in `Compacted`, and its owner lists anew.
        """
        try:
            request = pb.CompactionRequest(revision=revision)
            await self._connection.read(lambda link: link.compact, request)
        except Compacted:
            return

    async def close(self) -> None:
        """Close the channels."""
        if self._reader is not None:
            await self._reader.close()
        await self._connection.close()

    # -- what a reader through proxies asks (`reading.Cluster`) -----------------------------------

    def newest(self) -> Position:
        """The highest revision that was seen, and its history."""
        return self._seen

    async def present(self) -> pb.ResponseHeader:
        """Where the cluster is, by etcd itself."""
        return await watching.present(self._connection)

    async def _read(
        self, call: Callable[[Link], Call[Q, A]], request: Q, what: Sequence[Key | Selection]
    ) -> A:
        before = self._seen
        try:
            answer = await self._connection.read(call, request)
        except PermissionDenied as problem:
            raise PermissionDenied(f"{problem}: {named_keys(what)}") from None
        self.compare(before, answer.header)
        return answer

    def compare(self, before: int, header: pb.ResponseHeader) -> None:
        """Raise Replaced for an answer of another history than that of an answer before (ETCD-4).

        `before` is the position when the request was made: answers may overtake each other.
        """
        if not self._follows(before, header):
            raise Replaced(replaced(before, header))

    def _follows(self, before: int, header: pb.ResponseHeader) -> bool:
        """Note a header; returns whether it is of the history of an answer before."""
        here = Position.of(header.revision, header)
        if not (before and foreign(before, header)):
            self._seen = self._seen.newer(here)
            return True
        is_news, self._seen = foreign(self._seen, header), here
        self.when_replaced()
        if is_news and self._reader is not None:
            self._reader.way.leave()
        return False

    async def _grant(self, put: pb.RequestOp, ttl: int) -> int:
        """Grant a put a lease of its own."""
        put.request_put.lease = lease = await self.grant(ttl)
        return lease


def _entry(key: Key, kv: pb.KeyValue) -> Entry:
    return decode(key, kv.value, kv.mod_revision)


def _entries(
    keys: Sequence[Key], responses: Iterable[pb.ResponseOp], tolerant: bool = False
) -> dict[Key, Entry | None]:
    entries: dict[Key, Entry | None] = {}
    for key, response in zip(keys, responses, strict=True):
        kvs = response.response_range.kvs
        try:
            entries[key] = _entry(key, kvs[0]) if kvs else None
        except InvalidValue:
            if not tolerant:
                raise
            entries[key] = Entry(key, None, kvs[0].mod_revision, kvs[0].value)
    return entries
