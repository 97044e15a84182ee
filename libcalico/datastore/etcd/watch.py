"""One watch stream of etcd over several selections, as batches of events.

Every selection is a watch of its own on the stream, all starting behind the same revision.
Responses that etcd had to fragment are put together again before anything is delivered, so
the changes of one revision arrive together (DS-3). A revision that is compacted, or that
this etcd has never reached (a store restored from a backup), raises `Compacted`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.connection import Connection, error_of
from libcalico.datastore.etcd.entries import entry_of
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.interface import Batch, Compacted, Event, Selection
from libcalico.errors import DatastoreUnavailable

_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


async def watch(
    connection: Connection, selections: Sequence[Selection], revision: int
) -> AsyncIterator[Batch]:
    """Batches of events after `revision`. Raises Compacted or DatastoreUnavailable.

    The first batch is empty: it says that the watch stands.
    """
    link, call = await connection.open_watch()
    try:
        stream = _Stream(selections, revision)
        async with asyncio.timeout(connection.timeout):
            for request in stream.requests():
                await call.write(request)
            early = []
            while stream.waiting:
                early += stream.take(await _read(call))
        yield Batch([], revision)
        for batch in early:
            yield batch
        while True:
            for batch in stream.take(await _read(call)):
                yield batch
    except TimeoutError:
        connection.forget(link)
        raise DatastoreUnavailable(
            f"etcd at {link.endpoint} did not begin a watch within {connection.timeout:g} s"
        ) from None
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as problem:
        connection.forget(link)
        if isinstance(problem, grpc.aio.AioRpcError) and problem.code() not in _GONE:
            raise error_of(problem) from None
        raise DatastoreUnavailable(f"the watch on etcd at {link.endpoint} broke off") from None
    except DatastoreUnavailable:
        connection.logout()
        raise
    finally:
        call.cancel()


async def _read(call: Any) -> Any:
    response = await call.read()
    if response is grpc.aio.EOF:
        raise DatastoreUnavailable("etcd ended the watch")
    return response


class _Stream:
    """What has been received so far. Pure: responses in, batches out."""

    def __init__(self, selections: Sequence[Selection], revision: int) -> None:
        self._selections = selections
        self._start = revision
        self._positions = dict.fromkeys(range(1, len(selections) + 1), revision)
        self._fragments: dict[int, list[Any]] = {}
        self.waiting = set(self._positions)

    def requests(self) -> list[Any]:
        """The requests that create the watches; their ids count from 1."""
        made = []
        for number, selection in enumerate(self._selections, 1):
            first, end = keys.range_of(selection)
            made.append(
                pb.WatchRequest(
                    create_request=pb.WatchCreateRequest(
                        key=first,
                        range_end=end,
                        start_revision=self._start + 1,
                        progress_notify=True,
                        prev_kv=True,
                        watch_id=number,
                        fragment=True,
                    )
                )
            )
        return made

    def take(self, response: Any) -> list[Batch]:
        """The batches that a response completes: none or one."""
        number = response.watch_id
        if response.compact_revision:
            raise Compacted(f"etcd has compacted revision {self._start + 1}")
        if response.canceled:
            raise DatastoreUnavailable(f"etcd ended the watch: {response.cancel_reason}")
        if response.created:
            if response.header.revision < self._start:
                raise Compacted(
                    f"etcd is at revision {response.header.revision}, behind {self._start}: "
                    "the store was replaced"
                )
            self.waiting.discard(number)
            return []
        if number not in self._positions:
            return []
        if not response.events and not response.fragment and number not in self._fragments:
            self._positions[number] = max(self._positions[number], response.header.revision)
            return [Batch([], min(self._positions.values()))]
        events = self._fragments.setdefault(number, [])
        events.extend(response.events)
        if response.fragment:
            return []
        del self._fragments[number]
        selection = self._selections[number - 1]
        found = [event for raw in events if (event := event_of(selection, raw)) is not None]
        if events:
            self._positions[number] = events[-1].kv.mod_revision
        return [Batch(found, min(self._positions.values()))]


def event_of(selection: Selection, raw: Any) -> Event | None:
    """Our event for etcd's; None for a key that is not of the selection."""
    key = keys.key_of_path(raw.kv.key.decode(errors="replace"))
    if key is None or not keys.selects(selection, key):
        return None
    revision = raw.kv.mod_revision
    if raw.type == pb.Event.DELETE:
        return Event(key, None, revision)
    entry, broken = entry_of(key, raw.kv.value, revision)
    return Event(key, entry, revision, broken=broken)
