"""One watch stream of etcd over several selections, as batches of events.

Every selection is a watch of its own on the stream, all telling what came after the same revision.
Each is asked for from that very revision on, which is left out again: etcd before 3.5.16
forgets the deletions of the revision it compacts at, and says nothing to a watch that begins there
(etcd issue 18089). One that begins a revision earlier is told that its beginning is gone.
Of a response that etcd had to fragment, what is complete is delivered at once and the revision
at its end with the next, so the changes of one revision arrive together (DS-3). A revision
that is compacted, or of another history than this etcd's (a store restored from a backup,
libcalico.datastore.etcd.position), raises `Compacted`; a member that only lags behind the others
does not.

A stream goes over a connection of our own (stream.py). If anything is unusual while it begins, the
watch begins again through gRPC, which knows errors, logins and other endpoints.
Tested in tests/libcalico/test_syncer_model.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.failures import UNREADABLE, error_of, gone
from libcalico.datastore.etcd.link import Link
from libcalico.datastore.etcd.message_stream import Broken, Stream
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.watch_responses import Responses, Share, event_of
from libcalico.datastore.interface import Batch, Event, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.process import tasks

log = logging.getLogger(__name__)

SLICE = 100
SILENCE = 1500.0
"""Seconds without an event or a word of progress after which a proxy's watch is taken for dead.
etcd sends one within 22 minutes at most (every 10 minutes, unless events came meanwhile)."""


class Silent(DatastoreUnavailable):
    """A watch through a proxy told nothing for `SILENCE`, though etcd would have."""


async def watch(
    connection: Connection, selections: Sequence[Selection], revision: int
) -> AsyncGenerator[Batch, None]:
    """Batches of events after `revision`. Raises Compacted or DatastoreUnavailable.

    The first batch is empty: it says that the watch stands.
    """
    start = asyncio.get_running_loop().time()
    known = connection.proxied
    if known:
        Responses(selections, revision).require_near(await present(connection))
    begun = await _short(connection, selections, revision)
    unasked: grpc.aio.StreamStreamCall | None = None
    call: grpc.aio.StreamStreamCall | Stream
    if begun is not None:
        link, call, stream, early = begun
    else:
        link, unasked = await connection.open_watch()
        call, stream, early = unasked, Responses(selections, revision), []
    try:
        if unasked is not None:
            async with asyncio.timeout_at(start + connection.timeout):
                for request in stream.requests():
                    await unasked.write(request)
                early = await _standing(unasked, stream)
        if stream.proxied and not known:
            connection.found_proxy(link, through_grpc=unasked is not None)
            stream.require_near(await present(connection))
        await _agree(connection, stream)
        yield Batch([], stream.position(revision))
        for share in early:
            async for batch in _decoded(share):
                yield batch
        while True:
            shares = stream.add_response(await _following(connection, link, call, stream))
            await _agree(connection, stream)
            for share in shares:
                async for batch in _decoded(share):
                    yield batch
    except TimeoutError:
        connection.forget(link)
        raise DatastoreUnavailable(
            f"etcd at {link.endpoint} did not begin a watch within {connection.timeout:g} s"
        ) from None
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError, Broken) as problem:
        connection.forget(link)
        if isinstance(problem, grpc.aio.AioRpcError) and not _ended(problem):
            raise error_of(problem) from None
        raise DatastoreUnavailable(f"the watch on etcd at {link.endpoint} broke off") from None
    except DatastoreUnavailable:
        connection.logout()
        raise
    except asyncio.CancelledError:
        # gRPC says so of a call whose channel was closed, which is no cancellation of ours.
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise DatastoreUnavailable(f"the watch on etcd at {link.endpoint} broke off") from None
    finally:
        call.cancel()


async def _short(
    connection: Connection, selections: Sequence[Selection], revision: int
) -> tuple[Link, Stream, Responses, list[Share]] | None:
    """A watch that stands on a connection of our own, with the events that came meanwhile.

    None if anything was unusual: the caller goes through gRPC, which says what, or succeeds.
    Raises Compacted, and what `Connection.open_watch` raises.
    """
    half = asyncio.get_running_loop().time() + connection.timeout / 2
    opened = await connection.open_stream()
    if opened is None:
        return None
    link, call = opened
    stream, early = Responses(selections, revision), None
    try:
        # The other half is gRPC's.
        async with asyncio.timeout_at(half):
            for request in stream.requests():
                call.write(request.SerializeToString())
            early = await _standing(call, stream)
    except (Broken, DatastoreUnavailable, TimeoutError) as problem:
        log.debug("etcd at %s: %s: a watch through gRPC", link.endpoint, problem)
        return None
    finally:
        if early is None:
            call.cancel()
    call.stands()
    return link, call, stream, early


async def _standing(call: grpc.aio.StreamStreamCall | Stream, stream: Responses) -> list[Share]:
    """The events that a stream brings until all of its watches stand."""
    early: list[Share] = []
    while stream.waiting:
        early += stream.add_response(await _read(call))
    return early


def _ended(problem: grpc.aio.AioRpcError) -> bool:
    return gone(problem) or problem.code() is grpc.StatusCode.CANCELLED


async def present(connection: Connection) -> pb.ResponseHeader:
    """The header of a linearizable read: the cluster's state, not that of a member that lags.

    Raises what `Connection.read` raises.
    """
    request = pb.RangeRequest(key=b"/calico/", count_only=True)
    answer = await connection.read(lambda link: link.range, request)
    return answer.header


async def _agree(connection: Connection, stream: Responses) -> None:
    """Compare what is strange with the cluster's present state. Raises Replaced."""
    if stream.strange:
        stream.agree(await present(connection))


async def _decoded(share: Share) -> AsyncIterator[Batch]:
    """The events of a share in batches, cut between revisions; the loop has its turn in between."""
    batch: list[Event] = []
    before = 0
    for raw in share.events:
        if len(batch) >= SLICE and raw.kv.mod_revision != before:
            yield Batch(batch, share.before)
            await asyncio.sleep(0)
            batch = []
        before = raw.kv.mod_revision
        if (event := event_of(share.selection, raw)) is not None:
            batch.append(event)
    yield Batch(batch, share.after)


async def _following(
    connection: Connection,
    link: Link,
    call: grpc.aio.StreamStreamCall | Stream,
    stream: Responses,
) -> pb.WatchResponse:
    """The next response of a watch that stands.

    Raises Silent, Replaced, and what `_read` raises.
    """
    if not connection.proxied:
        return await _read(call)

    async def ask() -> None:
        if not isinstance(call, Stream):
            await connection.ask(link)
        if connection.blind:
            # The proxy goes on where etcd behind it is away, or was put back to an earlier state.
            stream.agree(await present(connection))

    try:
        async with asyncio.timeout(SILENCE):
            if isinstance(call, Stream) and not connection.blind:
                return await _read(call)
            return await _read_asking(call, ask, connection.keepalive)
    except TimeoutError:
        raise Silent(f"a watch on {link.endpoint} has told nothing for long") from None


async def _read_asking(
    call: grpc.aio.StreamStreamCall | Stream, ask: Callable[[], Awaitable[None]], pause: float
) -> pb.WatchResponse:
    """The next response of a call to a proxy, which is asked by `ask` while it is silent."""
    reading = tasks.start(_read(call), "the watch of an etcd proxy")
    try:
        while not (await asyncio.wait({reading}, timeout=pause))[0]:
            try:
                await ask()
            except (grpc.aio.AioRpcError, DatastoreUnavailable):
                # What the watch itself says counts more, be it an event or its end.
                if not reading.done():
                    raise
        return await reading
    finally:
        reading.cancel()


async def _read(call: grpc.aio.StreamStreamCall | Stream) -> pb.WatchResponse:
    if isinstance(call, Stream):
        try:
            return pb.WatchResponse.FromString(await call.read())
        except DecodeError:
            raise Broken(UNREADABLE) from None
    response: pb.WatchResponse | None = await call.read()
    if response is grpc.aio.EOF:
        raise DatastoreUnavailable("etcd ended the watch")
    if response is None:
        raise Broken(UNREADABLE)
    return response
