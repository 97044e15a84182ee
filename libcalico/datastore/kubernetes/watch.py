"""Watches of several collections, merged into one stream of batches.

A family may be fed by two collections (policies of Calico and of Kubernetes). Their revisions
are numbers of one store nearly everywhere, but the API does not promise that: the position of
each collection is remembered under the number that the reader is given.

A watch from a revision that is yet to come, because the API's store was put back to an earlier
state, would be silent until it has come: so before a watch the API is asked where it is, unless the
watch before it ended because its time was over.
Tested in tests/libcalico/test_kubernetes_watch.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field

import msgspec

from libcalico.datastore.interface import Batch, Compacted, Event
from libcalico.datastore.kubernetes.answers import event_of, list_of
from libcalico.datastore.kubernetes.cluster_policies import ClusterPolicies, Speaking
from libcalico.datastore.kubernetes.decode import entry_of, selected
from libcalico.datastore.kubernetes.failures import as_datastore_error
from libcalico.datastore.kubernetes.feeds import NOWHERE, Feed
from libcalico.datastore.kubernetes.mapping import metadata, version
from libcalico.datastore.kubernetes.positions import Memory, Positions
from libcalico.errors import DatastoreUnavailable, MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import UNREADABLE, KubernetesError, ObjectNotFound, of_status
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import ended, start

AGAIN, SELDOM = 60.0, 600.0
"""Seconds after which a collection that did not exist is looked for again: first, and at most."""
SHORT = 1.0
WATCH = 300, 600
"""Seconds that a watch lasts: not the same for all nodes, or all would begin anew together."""
GATHER = 100

Word = tuple[str, int, Event | None] | Exception
"""What a follower says: path, revision and event (None: only progress); or why it has ended."""


async def watch(
    client: Client, feeds: Sequence[Feed], positions: Positions, memory: Memory
) -> AsyncIterator[Batch]:
    """Batches of events of all feeds; raises `Compacted` or `DatastoreUnavailable`."""
    family = ",".join(sorted({feed.selection.family for feed in feeds}))
    queue: asyncio.Queue[Word] = asyncio.Queue(GATHER)
    tasks = []
    for feed in feeds:
        beside = None
        if isinstance(feed.mapping, ClusterPolicies):
            beside = SharedReport(Speaking(feed.mapping, feed.path))
            tasks.append(start(_follow_nodes(client, feed, beside, queue), "nodes of policies"))
        work = _follow(client, feed, positions[feed.path], queue, beside)
        tasks.append(start(work, f"watch of {feed.path}"))
    positions = dict(positions)
    try:
        while True:
            events: list[Event] = []
            one = await queue.get()
            while True:
                if isinstance(one, Exception):
                    if events:
                        yield Batch(events, memory.keep(family, positions))
                    raise one
                path, revision, event = one
                positions[path] = max(positions[path], revision)
                if event is not None:
                    events.append(event)
                if queue.empty() or len(events) >= GATHER:
                    break
                one = queue.get_nowait()
            yield Batch(events, memory.keep(family, positions))
    finally:
        for task in tasks:
            task.cancel()
        await ended(tasks)


@dataclass(frozen=True, slots=True)
class SharedReport:
    """The shared state of two tasks that report the same objects.

    `turn` is held until their events are queued.
    """

    speaking: Speaking
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


async def _follow_nodes(
    client: Client, feed: Feed, beside: SharedReport, queue: asyncio.Queue[Word]
) -> None:
    """Put the policies that depend on nodes into the queue whenever the nodes change."""
    mapping = beside.speaking.mapping

    async def tell() -> None:
        async with beside.turn:
            await beside.speaking.seed(client)
            for key, tree in beside.speaking.trees.items():
                if selected(feed.selection, key):
                    entry, reason = entry_of(mapping, key, tree, raw=feed.selection.raw)
                    # It moves no position: the API did not tell it.
                    await queue.put((feed.path, 0, Event(key, entry, version(tree), reason)))

    try:
        await mapping.follow_nodes(client, tell)
    except KubernetesError as error:
        await queue.put(as_datastore_error(error))
    except Exception as error:  # noqa: BLE001 - handed to the reader of the queue
        await queue.put(error)


async def _follow(
    client: Client,
    feed: Feed,
    start: int,
    queue: asyncio.Queue[Word],
    beside: SharedReport | None = None,
) -> None:
    """Put the events of one collection into the queue, watch after watch; an error comes last."""
    at, loop, in_doubt = start, asyncio.get_running_loop(), True
    try:
        while True:
            if in_doubt:
                await _check_history(client, feed, at)
            began = loop.time()
            seconds = random.randint(*WATCH)
            lines = client.lines(
                feed.path, str(at), feed.parameters, seconds=seconds, accept=feed.accepts
            )
            async with aclosing(lines) as watched:
                async for line in watched:
                    if not line:
                        await queue.put((feed.path, at, None))
                        continue
                    async with beside.turn if beside else nullcontext():
                        at, event = _event(feed, line, at, beside.speaking if beside else None)
                        await queue.put((feed.path, at, event))
            lasted = loop.time() - began
            if lasted < SHORT:
                raise DatastoreUnavailable(f"the watch of {feed.path} ended at once")
            in_doubt = lasted < seconds
    except ObjectNotFound as error:
        if feed.mapping.collection.optional:
            await queue.put((feed.path, at, None))
            await queue.put(await _defined_again(client, feed, error, at > NOWHERE))
        else:
            await queue.put(as_datastore_error(error))
    except KubernetesError as error:
        await queue.put(as_datastore_error(error))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - handed to the reader of the queue
        await queue.put(error)


async def _defined_again(
    client: Client, feed: Feed, error: ObjectNotFound, was_there: bool
) -> Exception:
    """Why the collection must be listed anew: it has gone, or it exists now."""
    pauses = Backoff(AGAIN, SELDOM, jitter=0.25)
    while not was_there:
        await pauses.wait()
        try:
            await client.request("GET", feed.path, {**feed.parameters, "limit": "1"})
        except ObjectNotFound:
            continue
        except KubernetesError as trouble:
            return as_datastore_error(trouble)
        return Compacted(f"{feed.path} is defined now")
    return Compacted(f"{feed.path} is gone: {error}")


async def _check_history(client: Client, feed: Feed, at: int) -> None:
    """Raise Compacted where the API is behind the reader."""
    asked = {**feed.parameters, "limit": "1"}
    answer = await client.request("GET", feed.path, asked, accept=feed.accepts_of_list)
    if now := version(list_of(feed.path, answer, feed.mapping.collection)):
        _must_be_later(f"watch {feed.path}", now, at)


def _must_be_later(tried: str, revision: int, at: int) -> None:
    if revision < at:
        raise Compacted(
            f"{tried}: the API is at revision {revision}, earlier than {at}: its store was put"
            " back or made anew"
        )


def _event(feed: Feed, line: bytes, at: int, speaking: Speaking | None) -> tuple[int, Event | None]:
    tried = f"watch {feed.path}"
    what, tree = event_of(tried, line, feed.mapping.collection)
    if what == "ERROR":
        code = tree.get("code", 0) if isinstance(tree, dict) else 0
        raise of_status(tried, code, msgspec.json.encode(tree))
    if not isinstance(tree, dict) or not isinstance(metadata(tree), dict):
        raise DatastoreUnavailable(f"{tried}: an event has no object")
    revision = version(tree)
    _must_be_later(tried, revision, at)
    if what == "BOOKMARK":
        return revision, None
    key = None
    # Without a name that can be read it is none of ours.
    with suppress(*UNREADABLE, MuslinError, LookupError, TypeError, AttributeError, ValueError):
        key = feed.mapping.key(tree)
    if key is None or not selected(feed.selection, key):
        return revision, None
    if speaking is not None:
        speaking.note(key, None if what == "DELETED" else tree)
    if what == "DELETED":
        return revision, Event(key, None, revision)
    entry, reason = entry_of(feed.mapping, key, tree, raw=feed.selection.raw)
    return revision, Event(key, entry, revision, reason)
