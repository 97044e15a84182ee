"""`get --watch`: what there is, then what changes, until the operator interrupts.

The datastore is listed once and watched from that moment. Where it goes away, one sentence on
standard error says so, and the watch goes on from where it was when it is back. Where the changes
since then are gone (a compaction of etcd, 410 of the Kubernetes API, a restored backup), everything
is listed again and only what differs is shown. What will not pass by itself (a permission, a
login) ends the command.
Tested in `tests/calicoctl/test_watch.py`, for both datastores.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence

import click

from calicoctl.listing.changes import Row, Seen
from calicoctl.listing.reader import Reader, table_context, with_defaults
from calicoctl.listing.result import Request, Result
from calicoctl.listing.stream import Stream
from calicoctl.output import Shape
from calicoctl.session import Options, datastore
from libcalico.datastore.interface import Compacted, Datastore, Selection
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.process.backoff import Backoff

_UNREADABLE = "the datastore holds a value that cannot be read"


def run(request: Request, shape: Shape, options: Options, events: bool) -> None:
    """Show and follow; ends by an exception only: that of Ctrl-C is the exit status 130.

    Raises `MuslinError`.
    """
    root = logging.getLogger()
    if not root.handlers:
        # Nothing was asked for by -l: an outage is told below, once, and in words for an operator.
        root.addHandler(logging.NullHandler())
    try:
        asyncio.run(_run(request, shape, options, events))
    except KeyboardInterrupt:
        # Not click's, which writes an empty line; only a terminal shows ^C in need of one.
        if sys.stderr.isatty():
            print(file=sys.stderr)
        raise click.exceptions.Exit(130) from None


async def _run(request: Request, shape: Shape, options: Options, events: bool) -> None:
    kind = _kind(request)
    async with datastore(options) as store:
        context = await table_context(store, shape.style, [kind])
        stream = Stream(kind, shape, context, events)
        seen = Seen(request)
        async for rows in follow(store, kind, request.namespace, seen):
            sys.stdout.write(stream.text(rows))
            sys.stdout.flush()


def _kind(request: Request) -> str:
    kinds = {request.kind} if request.kind is not None else {key.kind for key in request.keys}
    if len(kinds) != 1:
        raise MuslinError(
            f"--watch follows one kind, not {len(kinds)}: {', '.join(sorted(map(str, kinds)))}"
        )
    return str(kinds.pop())


async def follow(
    store: Datastore,
    kind: str,
    namespace: str,
    seen: Seen,
    tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> AsyncIterator[Sequence[Row]]:
    """First the rows of what there is (perhaps none), then those of what changes, for ever.

    Raises `MuslinError` for what does not pass by itself, at the beginning also for a datastore
    that does not answer and a named resource that is not there.
    """
    first = await _listed(store, kind, namespace)
    rows = seen.listed(first)
    seen.require_names()
    for broken in first.broken:
        tell(f"{_UNREADABLE}: {broken}")
    yield rows
    revision: int | None = first.revision
    backoff = Backoff(0.2, 5.0)
    away = False
    while True:
        try:
            if revision is None:
                again = await _listed(store, kind, namespace)
                revision = again.revision
                yield seen.listed(again)
            async for batch in store.watch([Selection(kind, namespace=namespace)], revision):
                if away:
                    tell("the datastore is back")
                    away = False
                backoff.reset()
                rows = []
                for event in batch:
                    if event.broken:
                        tell(f"{_UNREADABLE}: {event.key}: {event.broken}")
                        continue
                    entry = None if event.entry is None else with_defaults(event.entry)
                    rows += seen.changed(event.key, entry)
                revision = max(revision, batch.revision)
                if rows:
                    yield rows
        except Compacted:
            revision = None
            await backoff.wait()
        except DatastoreUnavailable as problem:
            if not away:
                tell(f"{problem}; waiting for it, Ctrl-C ends")
                away = True
            await backoff.wait()


async def _listed(store: Datastore, kind: str, namespace: str) -> Result:
    return await Reader(store).list(kind, namespace)
