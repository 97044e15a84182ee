"""A kind of objects, followed: the full list first, then every change, for ever.

A list is read in pages at one revision, then watched from there. The next watch goes on where one
ended. When the server has forgotten that revision the list is read again, and only differences are
reported. The revision of each object is remembered, not the object.

Invariants (tests/apiserver/test_reflector.py):
  REF-1  After `listed` the sink's view is the API's at some moment, per object; no object ever
         goes back to an older state, unless the API itself lost data.
  REF-2  A new watch or a new list tells nothing of an object that did not change.
  REF-3  While the API is away nothing is told: what was known stays.
  REF-4  What cannot be decoded is not gone: its last readable version stays, and it is named.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from libcalico.kubernetes.client import Client
from libcalico.kubernetes.decoding import EVERYTHING, NAMELESS, Event, Page, Query
from libcalico.kubernetes.errors import (
    ApiError,
    Gone,
    KubernetesError,
    ObjectNotFound,
    Unreachable,
)
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Object, Resource
from libcalico.process.backoff import Backoff, spread

T = TypeVar("T", bound=Object)
C = TypeVar("C", bound=Object, contravariant=True)
PAGE = 500
SHORT = 1.0
"""Seconds: a watch that ends sooner is followed by a pause."""
TRIES_IN_PAGES = 3
UNREACHABLE_SECONDS = 2.0
"""The longest pause where nothing answered: a network that heals is made use of at once, and an
API that is not there is not burdened. One that answers with an error is asked ever less."""

log = logging.getLogger(__name__)


class Sink(Protocol[C]):
    """Receives what a reflector reads. Its methods must not raise or wait."""

    def put(self, name: Name, value: C) -> None:
        """Receive the present state of an object."""

    def gone(self, name: Name) -> None:
        """Note that an object is gone."""

    def listed(self) -> None:
        """Note that every object has been reported: after the first list, and each later one."""


class Reflector(Generic[T]):
    """Follows a kind of objects into a sink while `run` runs.

    `connected`: the last request was answered; else `error` says why not. `broken` names objects
    that could not be decoded (`?`: one whose name could not be read either).
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        sink: Sink[T],
        query: Query = EVERYTHING,
        *,
        page: int = PAGE,
        watch_seconds: tuple[int, int] = (300, 600),
        backoff: Backoff | None = None,
        on_status: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._resource, self._sink, self._query = client, resource, sink, query
        self._newest = resource
        self._page, self._watch_seconds = page, watch_seconds
        self._backoff = backoff or Backoff(0.2, 10.0, jitter=0.5)
        self._on_status = on_status
        self._known: dict[Name, str] = {}
        self._revision, self._suspect = "", False
        self.connected = self.has_listed = False
        self.error = ""
        self.broken: dict[Name, str] = {}
        self.lists = 0

    async def run(self) -> None:
        """Follow until cancelled.

        `on_status` is called when `connected`, `error` or `broken` may change.
        """
        while True:
            try:
                if not self._revision:
                    await self._list()
                elif self._suspect:
                    await self._check_history()
                await self._watch()
            except Gone as gone:
                log.info("%s are listed anew: %s", self._resource.plural, gone)
                self._revision = ""
            except ObjectNotFound as error:
                # A server of before has the kind in an older version; one that was upgraded
                # may have it in a newer one only.
                older = self._resource.older()
                self._revision, self._resource = "", older or self._newest
                if older is None:
                    await self._failed(error)
            except KubernetesError as error:
                await self._failed(error)

    async def _failed(self, error: KubernetesError) -> None:
        self._say(str(error))
        self._suspect = True
        await asyncio.sleep(_pause(error, self._backoff))

    async def _list(self) -> None:
        if self.has_listed:
            await asyncio.sleep(spread(len(self._known)))  # other nodes read it anew, too
        for tries in range(TRIES_IN_PAGES):
            try:
                # The history of a store that changes very fast may not last for all pages.
                await self._list_once(self._page if tries < TRIES_IN_PAGES - 1 else 0)
                break
            except Gone:
                if tries == TRIES_IN_PAGES - 1:
                    raise
        self.lists += 1
        self.has_listed = True
        self._suspect = False
        self._say("")
        self._sink.listed()

    async def _list_once(self, limit: int) -> None:
        token = ""
        seen: set[Name] = set()
        broken: dict[Name, str] = {}
        while True:
            page = await self._client.page(self._resource, self._query, limit=limit, token=token)
            self._take(page, seen)
            broken |= page.broken
            token = page.token
            if not token:
                break
        before, self.broken = self.broken, broken
        # One without a name may be any of those that are missing.
        if NAMELESS not in broken:
            for name in self._known.keys() - seen - broken.keys():
                self._gone(name)
        for name in broken.keys() - before.keys():
            self._left_out(name)
        self._revision = page.revision
        if before != broken:
            self._on_status()

    def _take(self, page: Page[T], seen: set[Name]) -> None:
        for value in page.items:
            name = value.name
            seen.add(name)
            revision = value.metadata.resourceVersion
            if self._known.get(name) != revision:
                self._known[name] = revision
                self._sink.put(name, value)

    async def _check_history(self) -> None:
        """List anew after trouble if the store was put back to an earlier state.

        A watch from a revision in the future would be silent until the store reaches it.
        """
        page = await self._client.page(self._resource, self._query, limit=1)
        if _older(page.revision, self._revision):
            self._lost(page.revision)
        self._suspect = False

    async def _watch(self) -> None:
        began = time.monotonic()
        seconds = random.randint(*self._watch_seconds)
        watch = self._client.watch(self._resource, self._revision, self._query, seconds=seconds)
        async with aclosing(watch) as events:
            async for event in events:
                if self.error or not self.connected:
                    self._say("")
                if _older(event.revision, self._revision):
                    self._lost(event.revision)
                self._revision = event.revision or self._revision
                self._apply(event)
        if time.monotonic() - began < SHORT:
            raise Unreachable(f"the watch of {self._resource.plural} ended at once")
        self._backoff.reset()
        if NAMELESS in self.broken:
            # No event tells that it can be read now.
            self._revision = ""

    def _apply(self, event: Event[T]) -> None:
        name = event.name
        if name is None:
            return
        before = self.broken.pop(name, "")
        if event.broken:
            self.broken[name] = event.broken
            self._left_out(name)
        elif event.value is None:
            self._gone(name)
        elif self._known.get(name) != event.revision:
            self._known[name] = event.revision
            self._sink.put(name, event.value)
        if before != event.broken:
            self._on_status()

    def _left_out(self, name: Name) -> None:
        log.warning("left out: %s %s: %s", self._resource.plural, name, self.broken[name])

    def _gone(self, name: Name) -> None:
        if self._known.pop(name, None) is not None:
            self._sink.gone(name)

    def _lost(self, revision: str) -> None:
        # Another history may have given the same revision to another state.
        self._known = dict.fromkeys(self._known, "")
        raise Gone(
            f"the API is at revision {revision}, earlier than {self._revision}:"
            " its store was put back or made anew",
            410,
        )

    def _say(self, error: str) -> None:
        connected, before = self.connected, self.error
        self.connected, self.error = not error, error
        if error and error != before:
            log.warning("%s: %s", self._resource.plural, error)
        elif before and not error:
            log.info("%s are followed again", self._resource.plural)
        if (connected, before) != (self.connected, self.error):
            self._on_status()


def _pause(error: KubernetesError, backoff: Backoff) -> float:
    asked = error.retry_after if isinstance(error, ApiError) else 0.0
    delay = backoff.next()
    if isinstance(error, Unreachable):
        return min(delay, UNREACHABLE_SECONDS)
    return max(delay, min(asked, 60.0))


def _older(new: str, old: str) -> bool:
    """Whether a revision is earlier than another; they are numbers that only grow (KEP-5504)."""
    return new.isdecimal() and old.isdecimal() and int(new) < int(old)
