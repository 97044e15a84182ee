"""One of several processes works: the holder of the Lease (`coordination.k8s.io/v1`).

Clocks of two machines are never compared. A candidate notes when, by its own monotonic clock, it
saw the lease change last, and takes it when that is longer ago than the holder promised to wait.
The holder counts from before it asked, and stops earlier than that. A process that was stopped
for minutes and goes on may still finish one write: each is guarded by the revision it read.

Invariants (tests/controllers/test_leader.py):
  LEAD-1  A lease is taken over only when it was not renewed for its whole duration.
  LEAD-2  The work has ended before another process may take the lease.
  LEAD-3  However long the work holds the loop, the lease is renewed.
  LEAD-4  Who lost the lease begins no write, also where the loop has not yet heard of it.
Source: API reference of Lease; the times are those of Kubernetes' own controllers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from msgspec import to_builtins
from msgspec.structs import replace

from controllers.leadership.side_loop import SideLoop
from libcalico.errors import MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Conflict, KubernetesError, ObjectNotFound
from libcalico.kubernetes.objects import LEASES, Lease, LeaseSpec
from libcalico.process import tasks

log = logging.getLogger(__name__)

NAME = "calico-kube-controllers"


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long a lease lasts, after what silence its holder stops, how often it asks."""

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0


class Step(Enum):
    """The next step with the lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class LostLease(MuslinError):
    """Another process may work now."""


def decide(spec: LeaseSpec | None, me: str, unchanged: float, duration: int) -> Step:
    """`unchanged`: for how many seconds the lease has looked as it does now. Pure."""
    if spec is None:
        return Step.CREATE
    holder = spec.holderIdentity or ""
    if holder == me:
        return Step.RENEW
    if not holder or unchanged > (spec.leaseDurationSeconds or duration):
        return Step.TAKE
    return Step.WAIT


def next_spec(spec: LeaseSpec | None, step: Step, me: str, duration: int, now: str) -> LeaseSpec:
    """The lease as it is written. Pure."""
    before = spec or LeaseSpec()
    if step is Step.RENEW:
        return replace(before, leaseDurationSeconds=duration, renewTime=now)
    return LeaseSpec(
        holderIdentity=me,
        leaseDurationSeconds=duration,
        acquireTime=now,
        renewTime=now,
        leaseTransitions=(before.leaseTransitions or 0) + (spec is not None),
    )


class Elector:
    """A candidate. `leading` and `holder` say what it knows; `error` what keeps it from asking.

    The lease is asked for and renewed in a thread of its own, with an event loop and connections
    of its own: work that holds up this process's loop does not hold up the lease (LEAD-3).
    """

    def __init__(
        self, client: Client, namespace: str, me: str, terms: Terms | None = None, name: str = NAME
    ) -> None:
        self._client, self._namespace, self._name = Client(client.source), namespace, name
        self.me, self._terms = me, terms or Terms()
        self._seen = ("", 0.0)
        self._mine: Lease | None = None
        self._until = 0.0
        self.leading = False
        self.holder = self.error = ""

    def check(self) -> None:
        """Raise LostLease when this process may not write now (LEAD-4), without a request."""
        if not self.leading or time.monotonic() >= self._until:
            raise LostLease(f"this process does not hold the lease {self._name} now")

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, then work while it is held; gives it back when cancelled.

        Raises LostLease, after the work was cancelled, when it could not be renewed.
        """
        with SideLoop("lease") as beside:
            try:
                await beside.do(self._acquire())
                await self._lead(beside, work)
            finally:
                await beside.do(self._client.close())

    async def _lead(self, beside: SideLoop, work: Callable[[], Awaitable[None]]) -> None:
        holding = tasks.start(_done(lambda: beside.do(self._hold())), "lease")
        self.leading = True
        log.info("this process works now", extra={"identity": self.me})
        task = tasks.start(_done(work), "work under the lease")
        try:
            await asyncio.wait({task, holding}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.leading = False
            task.cancel()
            holding.cancel()
            ended = await asyncio.gather(task, holding, return_exceptions=True)
            if not any(isinstance(one, LostLease) for one in ended):
                await beside.do(self._give_back())
        for result in ended:
            if isinstance(result, Exception):
                raise result

    # -- in the thread -------------------------------------------------------------------------

    async def _acquire(self) -> None:
        while True:
            began = time.monotonic()
            if await self._try():
                self._until = began + self._terms.deadline
                return
            await asyncio.sleep(self._terms.retry)

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(self._terms.retry)
            began = time.monotonic()
            left = self._until - began
            renewed = False
            # One that hangs leaves time for another, on a connection of its own.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(min(left, self._terms.deadline / 2), 0.0)):
                    renewed = await self._try()
            if renewed:
                self._until = began + self._terms.deadline
            elif self.holder not in ("", self.me):
                self._until = 0.0  # Before the loop hears of it (LEAD-4).
                raise LostLease(f"{self.holder} holds the lease {self._name}")
            elif time.monotonic() >= self._until:
                raise LostLease(
                    f"the lease {self._name} could not be renewed for"
                    f" {self._terms.deadline:g} s: {self.error or 'no answer'}"
                )

    async def _try(self) -> bool:
        """Look, and write if that is due; whether we hold it."""
        try:
            renewed = await self._renewed() or await self._step()
        except Conflict:
            return False
        except KubernetesError as error:
            if str(error) != self.error:
                log.warning("lease: %s", error)
            self.error = str(error)
            return False
        self.error = ""
        return renewed

    async def _renewed(self) -> bool:
        """Write over our last write without a read first; False when another one came between."""
        mine, self._mine = self._mine, None
        if mine is None:
            return False
        try:
            await self._write(mine, self._next(mine.spec, Step.RENEW))
        except (Conflict, ObjectNotFound):
            return False
        self.holder = self.me
        return True

    async def _step(self) -> bool:
        lease = await self._get()
        spec = lease.spec if lease else None
        now = time.monotonic()
        version = lease.metadata.resourceVersion if lease else ""
        if version != self._seen[0]:
            self._seen = version, now
        self.holder = (spec.holderIdentity or "") if spec else ""
        step = decide(spec, self.me, now - self._seen[1], self._terms.duration)
        if step is Step.WAIT:
            return False
        await self._write(lease, self._next(spec, step))
        self.holder = self.me
        return True

    def _next(self, spec: LeaseSpec | None, step: Step) -> LeaseSpec:
        text = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return next_spec(spec, step, self.me, self._terms.duration, text)

    async def _get(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, self._name, self._namespace)
        except ObjectNotFound:
            return None

    async def _write(self, lease: Lease | None, spec: LeaseSpec) -> None:
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": to_builtins(spec),
        }
        if lease is None:
            self._mine = await self._client.create(LEASES, body, self._namespace)
            return
        metadata["resourceVersion"] = lease.metadata.resourceVersion
        self._mine = await self._client.replace(LEASES, self._name, body, self._namespace)

    async def _give_back(self) -> None:
        try:
            async with asyncio.timeout(self._terms.retry):
                lease = await self._get()
                if lease and lease.spec.holderIdentity == self.me:
                    await self._write(lease, replace(lease.spec, holderIdentity=""))
        except (KubernetesError, TimeoutError) as error:
            log.info("the lease runs out by itself: %s", error)


async def _done(work: Callable[[], Awaitable[None]]) -> None:
    await work()
