"""Events of Kubernetes (`v1`) about a Pod or a Node: what `kubectl describe` shows below it.

An Event is news and no work: `tell` takes a moment, makes no request and never fails; what waits
is bounded, and one task writes it. What is told again is counted in the Event that stands: its name
is made of what it says of whom, so that a restart goes on with the same.

Invariants (tests/libcalico/test_events.py, tests/apiserver/test_events.py):
  EVT-1  At most `WAITING` Events wait, the eldest goes; at most `BURST` are written at once, then
         one every `EVERY` seconds, and one of them once in `AGAIN` seconds.
  EVT-2  What cannot be written is given up after `TRIES`, and said once. Where the API refuses
         Events of a namespace (a quota, a webhook, no right) what waits of that one is given up,
         and no request goes there for `REST` seconds; elsewhere nothing waits for that. All
         rests where it is the namespace of a node's Events that is refused: the right lacks.
Source: API reference of Event (core/v1); the namespace and uid of a node's are the kubelet's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from libcalico.errors import MuslinError
from libcalico.kubernetes.allowance import Allowance
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Conflict, Forbidden, KubernetesError, ObjectNotFound
from libcalico.kubernetes.event_objects import (
    EVENTS,
    NODE_NAMESPACE,
    About,
    name_of,
    pod,
)
from libcalico.kubernetes.objects import PODS
from libcalico.process.waiting import set_within

log = logging.getLogger(__name__)

WARNING, NORMAL = "Warning", "Normal"
WAITING = 200
REMEMBERED = 1000
BURST, EVERY = 20, 2.0
AGAIN = 60.0
TRIES = 5
PAUSE, LONGEST = 1.0, 60.0
REST = 600.0
MESSAGE = 1024
"""Characters of a message: what the newer form of Events (`events.k8s.io`) takes."""
ENDING = "being terminated"
"""What the API says of a namespace that goes; the status is that of a right that lacks."""


@dataclass(slots=True)
class _Pending:
    """One Event: its text, how often it was recorded since the last write, and what is written."""

    about: About
    reason: str
    subject: str
    type: str
    message: str = ""
    fresh: int = 0
    count: int = 0
    name: str = ""
    written: float = float("-inf")
    tries: int = 0


One = tuple[About, str, str]
"""The identity of an Event: its object, the reason, the subject."""


class Recorder:
    """The Events of one process. `run` writes what `tell` records; without it nothing is written.

    `component` and `host` are the reporter and its node. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        host: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._component, self._host = client, component, host
        self._clock = clock
        self._known: OrderedDict[One, _Pending] = OrderedDict()
        self._waiting: OrderedDict[One, None] = OrderedDict()
        self._rests: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._allowance = Allowance(BURST, EVERY, clock())
        self._said = ""
        self.written = self.dropped = 0

    def tell(
        self, about: About, reason: str, message: str, subject: str = "", type: str = WARNING
    ) -> None:
        """Record an Event. `subject` separates Events of one reason; the last message stands."""
        one = (about, reason, subject)
        pending = self._known.pop(one, None)
        if pending is None:
            pending = _Pending(about, reason, subject, type)
        self._known[one] = pending
        while len(self._known) > REMEMBERED:
            self._waiting.pop(self._known.popitem(last=False)[0], None)
        pending.message, pending.fresh = message[:MESSAGE], pending.fresh + 1
        if one not in self._waiting:
            self._waiting[one] = None
            if len(self._waiting) > WAITING:
                self._drop(next(iter(self._waiting)))
        self._wake.set()

    def holds(self, about: About, reason: str, subject: str = "") -> bool:
        """Whether a recorded Event is written or will be; false once it was given up."""
        return (about, reason, subject) in self._known

    async def run(self) -> None:
        """Write until cancelled; never fails (EVT-2)."""
        try:
            while True:
                self._wake.clear()
                one, wait = self._next()
                if one is None:
                    await set_within(self._wake, wait)
                    continue
                try:
                    await asyncio.sleep(await self._write(one))
                except Exception:
                    log.exception("an Event is not written")
                    self._drop(one)
                    await asyncio.sleep(PAUSE)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def flush(self) -> None:
        """Write what waits, once and in its order; what cannot be written is dropped."""
        while self._waiting:
            one = next(iter(self._waiting))
            await self._write(one)
            self._waiting.pop(one, None)

    def _next(self) -> tuple[One | None, float | None]:
        """The Event that is due, else the seconds until one is (None: none waits)."""
        now = self._clock()
        first: float | None = None
        for one in self._waiting:
            rest = self._rests.get(one[0].place, now)
            due = max(self._known[one].written + AGAIN, rest) - now
            if due <= 0:
                wait = self._allowance.wait(now)
                return (one, None) if wait <= 0 else (None, wait)
            first = due if first is None else min(first, due)
        return None, first

    async def _write(self, one: One) -> float:
        """Write one Event; returns the seconds to rest after it."""
        pending = self._known[one]
        self._allowance.spend(self._clock())
        pending.tries += 1
        try:
            await self._send(pending)
        except ObjectNotFound:
            # The pod is gone, or its namespace: no reader is left.
            self._drop(one)
            return 0.0
        except MuslinError as error:
            refused = isinstance(error, Forbidden) and ENDING not in str(error)
            if pending.tries < TRIES and _passing(error):
                pause = min(PAUSE * float(1 << pending.tries), LONGEST)
                return self._rest(pending.about.place, pause) if refused else pause
            if refused:
                return self._give_up(pending.about.place, str(error))
            self._say(str(error))
            self._drop(one)
            return PAUSE
        self.written += 1
        self._said = ""
        if not pending.fresh:
            self._waiting.pop(one, None)
        return 0.0

    def _rest(self, place: str, seconds: float) -> float:
        """Leave a namespace alone; returns the seconds for which to rest altogether."""
        if place == NODE_NAMESPACE:
            return seconds
        now = self._clock()
        self._rests = {one: until for one, until in self._rests.items() if until > now}
        self._rests[place] = now + seconds
        return 0.0

    def _give_up(self, place: str, why: str) -> float:
        """Drop what waits for a namespace that is refused; returns the seconds to rest."""
        self._say(f"{why}; Events are left out")
        for one in list(self._waiting):
            if place in (NODE_NAMESPACE, one[0].place):
                self._drop(one)
        return self._rest(place, REST)

    async def _send(self, pending: _Pending) -> None:
        fresh, about = pending.fresh, pending.about
        if not about.uid:
            current = await self._client.get(PODS, about.name, about.namespace)
            about = pod(about.namespace, about.name, current.metadata.uid)
        name = name_of(about, self._component, pending.reason, pending.subject)
        if name != pending.name:
            pending.name, pending.count = name, 0
        if pending.count:
            try:
                count = await self._repeat(pending, pending.count + fresh)
            except ObjectNotFound:
                # Forgotten: the API keeps Events for an hour.
                count = await self._create(pending, about, fresh)
        else:
            try:
                count = await self._create(pending, about, fresh)
            except Conflict:
                # An earlier process of ours said the same. How often, the answer tells.
                count = await self._repeat(pending, await self._repeat(pending, 0) + fresh)
        pending.count, pending.fresh = count, pending.fresh - fresh
        pending.written, pending.tries = self._clock(), 0

    async def _create(self, pending: _Pending, about: About, count: int) -> int:
        now = _now()
        involved = {"kind": about.kind, "name": about.name, "uid": about.uid, "apiVersion": "v1"}
        if about.namespace:
            involved["namespace"] = about.namespace
        await self._client.create(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": pending.name, "namespace": about.place},
                "involvedObject": involved,
                "reason": pending.reason,
                "message": pending.message,
                "type": pending.type,
                "source": {"component": self._component, "host": self._host},
                "reportingComponent": self._component,
                "reportingInstance": self._host,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": count,
            },
            about.place,
        )
        return count

    async def _repeat(self, pending: _Pending, count: int) -> int:
        """Count the Event again; `count` 0 leaves its number unchanged. Returns the number."""
        body: dict[str, object] = {"message": pending.message, "lastTimestamp": _now()}
        if count:
            body["count"] = count
        return (await self._client.patch(EVENTS, pending.name, body, pending.about.place)).count

    def _drop(self, one: One) -> None:
        if one in self._waiting:
            del self._waiting[one]
            self.dropped += self._known.pop(one).fresh

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.warning("an Event is not written: %s", text)


def _passing(error: MuslinError) -> bool:
    """Whether a later attempt may succeed: the API is away or busy, or has just started.

    For a moment after its start it has no roles yet, and refuses what is allowed.
    """
    status = getattr(error, "status", 0)
    if status == 403:
        return ENDING not in str(error)
    return isinstance(error, KubernetesError) and (status in (0, 401, 409, 429) or status >= 500)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
