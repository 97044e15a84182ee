"""One works: the lease, as a rule and against a real API (LEAD-1, LEAD-2)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.leadership import leader
from controllers.leadership.leader import Elector, LostLease, Step, Terms, decide, next_spec
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.objects import LEASES, LeaseSpec
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG, until

QUICK = Terms(duration=8, deadline=6.0, retry=0.2)
"""For leases that are lost."""
KEPT = Terms(duration=int(HANG), deadline=HANG / 2, retry=0.2)
"""A machine that stands still for long loses no such lease."""
RENEWALS = 5
E = TypeVar("E", bound=Elector)
holders = st.sampled_from(["", "me", "you"])


@given(holders, st.none() | st.integers(1, 60), st.floats(0, 100))
def test_a_lease_that_is_renewed_is_nobody_elses(
    holder: str, promised: int | None, unchanged: float
) -> None:
    step = decide(
        LeaseSpec(holderIdentity=holder, leaseDurationSeconds=promised), "me", unchanged, 15
    )
    free = holder == "" or (holder == "you" and unchanged > (promised or 15))
    assert step is (Step.RENEW if holder == "me" else Step.TAKE if free else Step.WAIT), "LEAD-1"


def test_a_lease_counts_its_holders_and_keeps_since_when() -> None:
    first = next_spec(None, Step.CREATE, "me", 15, "t1")
    assert (first.acquireTime, first.leaseTransitions) == ("t1", 0)
    renewed = next_spec(first, Step.RENEW, "me", 15, "t2")
    assert (renewed.acquireTime, renewed.renewTime) == ("t1", "t2")
    taken = next_spec(renewed, Step.TAKE, "you", 15, "t3")
    assert (taken.holderIdentity, taken.acquireTime, taken.leaseTransitions) == ("you", "t3", 1)


class Robbed(Elector):
    """Sees somebody else hold the lease."""

    async def _try(self) -> bool:
        self.holder = "you"
        return False


@pytest.mark.asyncio
async def test_who_sees_another_holder_writes_no_more_before_the_loop_hears_of_it() -> None:
    client = Client(lambda: Access("http://127.0.0.1:1"))
    elector = Robbed(client, "leases", "me", Terms(retry=0.01))
    elector.leading, elector._until = True, time.monotonic() + 60
    elector.check()
    with pytest.raises(LostLease, match="you holds the lease"):
        await elector._hold()
    with pytest.raises(LostLease, match="does not hold"):
        elector.check()


class Elder(Elector):
    """To it half of what the lease lasts goes by after each renewal that it sees."""

    renewals = 0
    _aged = ""

    async def _step(self) -> bool:
        version, since = self._seen
        if version != self._aged:
            self._aged, self.renewals = version, self.renewals + 1
            self._seen = version, since - self._terms.duration / 2
        return await super()._step()

    def saw_many(self) -> bool:
        """Whether it has seen more renewals than one lease lasts."""
        return self.renewals > RENEWALS


class Team:
    """Candidates that note who works."""

    def __init__(self, cluster: ApiServer) -> None:
        self.cluster = cluster
        self.working: list[str] = []
        self.most = 0

    async def work(self, name: str) -> None:
        self.working.append(name)
        self.most = max(self.most, len(self.working))
        try:
            await asyncio.Event().wait()
        finally:
            self.working.remove(name)

    def candidate(
        self, name: str, kind: type[E], terms: Terms = KEPT
    ) -> tuple[E, asyncio.Task[None]]:
        elector = kind(self.cluster.client(timeout=2.0), "leases", name, terms)
        return elector, asyncio.create_task(elector.run(lambda: self.work(name)))


@pytest.mark.asyncio
async def test_one_works_and_the_next_takes_over_at_once_where_it_was_given_back(
    cluster: ApiServer,
) -> None:
    cluster.namespace("leases")
    cluster.delete("/apis/coordination.k8s.io/v1/namespaces/leases/leases/calico-kube-controllers")
    team = Team(cluster)
    elector, first = team.candidate("a", Elector)
    await until(lambda: team.working == ["a"])
    elder, second = team.candidate("b", Elder)
    await until(elder.saw_many)
    assert team.working == ["a"]
    # It is given back with all the time that this may take.
    elector._terms = replace(KEPT, retry=HANG / 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    lease = await cluster.client().get(LEASES, "calico-kube-controllers", "leases")
    assert lease.spec.holderIdentity != "a", "it was given back"
    await until(lambda: team.working == ["b"])
    lease = await cluster.client().get(LEASES, "calico-kube-controllers", "leases")
    assert (lease.spec.holderIdentity, lease.spec.leaseTransitions) == ("b", 1)
    assert team.most == 1
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)


@pytest.mark.asyncio
@pytest.mark.parametrize("jump", [-3600, 3600], ids=["back", "forward"])
async def test_no_clock_that_jumps_gives_or_takes_a_lease(
    cluster: ApiServer, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """The lease's times of day are for readers; two machines' clocks are never compared."""

    class Jumped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Jumped:
            return super().now(tz) + timedelta(seconds=jump)

    cluster.namespace("leases")
    cluster.delete("/apis/coordination.k8s.io/v1/namespaces/leases/leases/calico-kube-controllers")
    team = Team(cluster)
    elector, first = team.candidate("a", Elector)
    await until(lambda: elector.leading)
    elder, second = team.candidate("b", Elder)
    monkeypatch.setattr(leader, "datetime", Jumped)
    monkeypatch.setattr(time, "time", lambda: time.monotonic() + jump)
    # For longer than the lease lasts, counted in renewals.
    await until(elder.saw_many)
    monkeypatch.undo()
    elder.renewals = 0
    await until(elder.saw_many)
    elector.check()
    assert (team.working, team.most) == (["a"], 1)
    for task in (second, first):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)


@pytest.mark.asyncio
async def test_who_cannot_renew_stops_before_somebody_else_may_begin(cluster: ApiServer) -> None:
    cluster.namespace("leases")
    cluster.delete("/apis/coordination.k8s.io/v1/namespaces/leases/leases/calico-kube-controllers")
    team = Team(cluster)
    elector, first = team.candidate("a", Elector, QUICK)
    await until(lambda: elector.leading)
    cluster.pause()
    try:
        await until(lambda: not team.working)
        with pytest.raises(LostLease, match="could not be renewed for 6 s"):
            await first
    finally:
        cluster.resume()
    _, second = team.candidate("b", Elector)
    await until(lambda: team.working == ["b"])
    assert team.most == 1, "LEAD-2"
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


@pytest.mark.asyncio
async def test_work_that_holds_the_loop_does_not_hold_up_the_lease(cluster: ApiServer) -> None:
    """LEAD-3: for longer than the lease lasts. LEAD-4: who loses it meanwhile writes no more."""
    cluster.namespace("leases")
    cluster.delete("/apis/coordination.k8s.io/v1/namespaces/leases/leases/calico-kube-controllers")
    team = Team(cluster)
    elector, first = team.candidate("a", Elector)
    await until(lambda: elector.leading)
    other = Elder(cluster.client(), "leases", "b", KEPT)
    stealing = threading.Thread(target=lambda: asyncio.run(_try_often(other)), daemon=True)
    stealing.start()
    busy_until(lambda: not stealing.is_alive())
    elector.check()
    assert other.saw_many()
    assert not other.leading, "LEAD-3"
    assert team.working == ["a"]
    elector._terms = QUICK
    busy_until(lambda: elector._until < time.monotonic() + QUICK.deadline)
    cluster.pause()
    try:
        busy_until(lambda: time.monotonic() >= elector._until)
        with pytest.raises(LostLease, match="does not hold the lease"):
            elector.check()
        assert team.working == ["a"], "the loop has not heard of it yet"
    finally:
        cluster.resume()
    with pytest.raises(LostLease):
        await first
    assert not team.working


def busy_until(holds: Callable[[], object]) -> None:
    """Hold the event loop, as the work may."""
    end = time.monotonic() + HANG
    while not holds():
        assert time.monotonic() < end
        sum(range(10_000))


async def _try_often(elector: Elder) -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    trying = asyncio.create_task(elector.run(work))
    try:
        await until(elector.saw_many)
    finally:
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)


@pytest.mark.asyncio
async def test_without_the_right_to_leases_nobody_works_and_it_is_said(cluster: ApiServer) -> None:
    token = cluster.account("leaseless", [])
    elector = Elector(cluster.client(token), "default", "a", QUICK)
    worked: list[int] = []

    async def work() -> None:
        worked.append(1)

    task = asyncio.create_task(elector.run(work))
    await until(lambda: "does RBAC allow it?" in elector.error)
    assert not worked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
