"""Listings of etcd: pages at one revision, decoded in slices (ETCD-3), or as rows of bytes.

Tested in tests/libcalico/test_etcd_store.py and test_syncer_sinks.py there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, TypeVar

from libcalico.datastore import built_in
from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.entries import collect
from libcalico.datastore.etcd.link import Call, Link
from libcalico.datastore.etcd.operations import MAX_OPERATIONS
from libcalico.datastore.etcd.position import Position
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.ranges import Parts
from libcalico.datastore.interface import Listing, Rows, Selection
from libcalico.model.keys import Key
from libcalico.process import tasks

PAGE = 2000
"""Keys in one page."""
SLICE, ROWS = 100, 100
"""So many are decoded, or handed over as they are, before the loop's other work has its turn:
the request for the next page is some of it, and should leave early."""


class Answer(Protocol):
    """An answer of etcd's. Its header says at which revision, and of which cluster."""

    @property
    def header(self) -> pb.ResponseHeader:
        """The member's view of the cluster."""


Q = TypeVar("Q")
A = TypeVar("A", bound=Answer)


class Read(Protocol):
    """A call on etcd for some objects, of which errors speak."""

    def __call__(
        self, call: Callable[[Link], Call[Q, A]], request: Q, what: Sequence[Key | Selection], /
    ) -> Awaitable[A]:
        """Make the call. Raises DatastoreError."""


async def pages(read: Read, selection: Selection, revision: int) -> AsyncGenerator[Listing, None]:
    """The pages of a listing, all at one revision: `revision`, or the present one."""
    async with aclosing(_answers(read, selection, revision)) as answers:
        async for kvs, at, last in answers:
            page = Listing([], at, [])
            for start in range(0, len(kvs), SLICE):
                for kv in kvs[start : start + SLICE]:
                    collect(selection, kv.key, kv.value, kv.mod_revision, page)
                await asyncio.sleep(0)
            if last and built_in.is_selected(selection):
                page.entries.append(built_in.entry())
            yield page


async def rows(read: Read, selection: Selection) -> AsyncGenerator[Rows, None]:
    """The resources of a selection as they are stored, some at a time; none is decoded."""
    name_of = keys.row_names(selection)
    async with aclosing(_answers(read, selection, 0)) as answers:
        async for kvs, at, _ in answers:
            for start in range(0, len(kvs) or 1, ROWS):
                yield (
                    [
                        (name, kv.value, kv.mod_revision)
                        for kv in kvs[start : start + ROWS]
                        if (name := name_of(kv.key))
                    ],
                    at,
                )
                await asyncio.sleep(0)


async def _answers(
    read: Read, selection: Selection, revision: int
) -> AsyncGenerator[tuple[Sequence[pb.KeyValue], int, bool], None]:
    """The keys of a selection in pages, each with the revision, and whether it is the last."""
    parts = Parts(*keys.range_of(selection), PAGE)
    chosen = keys.scattered(selection)

    async def fetch() -> pb.RangeResponse:
        first, end = parts.span
        request = pb.RangeRequest(
            key=first, range_end=end, limit=PAGE, revision=revision, keys_only=bool(chosen)
        )
        return await read(lambda link: link.range, request, [selection])

    ahead: asyncio.Task[pb.RangeResponse] | None = None
    answer: pb.RangeResponse | None = await fetch()
    assert answer is not None
    revision = revision or Position.of(answer.header.revision, answer.header)
    try:
        while answer is not None:
            kvs: Sequence[pb.KeyValue] = answer.kvs
            more = parts.answer(_Keys(kvs), answer.count, more=answer.more)
            # etcd gathers the next page while this one is decoded and consumed.
            ahead = tasks.start(fetch(), "next page") if more else None
            if chosen:
                chosen_keys = [key for kv in kvs if chosen(key := kv.key)]
                kvs = await _values(read, chosen_keys, revision, selection)
            if kvs or not more:
                yield kvs, revision, not more
            del kvs
            answer = await ahead if ahead is not None else None
    finally:
        if ahead is not None:
            ahead.cancel()
            await tasks.ended([ahead])


async def _values(
    read: Read, keys: Sequence[bytes], revision: int, selection: Selection
) -> Sequence[pb.KeyValue]:
    """The values of these keys at a revision."""
    pairs = []
    for start in range(0, len(keys), MAX_OPERATIONS):
        ranges = [
            pb.RequestOp(request_range=pb.RangeRequest(key=key, revision=revision))
            for key in keys[start : start + MAX_OPERATIONS]
        ]
        request = pb.TxnRequest(success=ranges)
        answer = await read(lambda link: link.txn, request, [selection])
        pairs += [kv for one in answer.responses for kv in one.response_range.kvs]
    return pairs


class _Keys:
    """The keys of an answer, few of which are asked for."""

    def __init__(self, kvs: Sequence[pb.KeyValue]) -> None:
        self._kvs = kvs

    def __len__(self) -> int:
        return len(self._kvs)

    def __getitem__(self, at: int) -> bytes:
        return self._kvs[at].key
