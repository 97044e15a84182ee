"""One works: the lease, as a rule and against a real API (LEAD-1, LEAD-2)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from datetime import datetime, timedelta, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers import leader
from controllers.leader import Elector, LostLease, Step, Terms, decide, next_spec
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.objects import LEASES, LeaseSpec
from tests.support.apiserver import ApiServer
from tests.support.patience import until

QUICK = Terms(duration=8, deadline=6.0, retry=0.2)
"""Short; but a machine that stands still for some seconds loses no lease."""
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

    def candidate(self, name: str) -> tuple[Elector, asyncio.Task[None]]:
        elector = Elector(self.cluster.client(timeout=2.0), "leases", name, QUICK)
        return elector, asyncio.create_task(elector.run(lambda: self.work(name)))


@pytest.mark.asyncio
async def test_one_works_and_the_next_takes_over_at_once_where_it_was_given_back(
    cluster: ApiServer,
) -> None:
    cluster.namespace("leases")
    cluster.delete("/apis/coordination.k8s.io/v1/namespaces/leases/leases/calico-kube-controllers")
    team = Team(cluster)
    _, first = team.candidate("a")
    await until(lambda: team.working == ["a"])
    _, second = team.candidate("b")
    await asyncio.sleep(QUICK.duration + 1)
    assert team.working == ["a"]
    first.cancel()
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

    async def renewed(count: int) -> None:
        seen = set[str]()
        while len(seen) <= count:
            lease = await cluster.client().get(LEASES, "calico-kube-controllers", "leases")
            seen.add(lease.metadata.resourceVersion)
            await asyncio.sleep(0.05)

    cluster.namespace("leases")
    cluster.delete("/apis/coordination.k8s.io/v1/namespaces/leases/leases/calico-kube-controllers")
    team = Team(cluster)
    elector, first = team.candidate("a")
    await until(lambda: elector.leading)
    _, second = team.candidate("b")
    monkeypatch.setattr(leader, "datetime", Jumped)
    monkeypatch.setattr(time, "time", lambda: time.monotonic() + jump)
    # For longer than the lease lasts, counted in renewals.
    await renewed(round(1.5 * QUICK.duration / QUICK.retry))
    monkeypatch.undo()
    await renewed(2)
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
    elector, first = team.candidate("a")
    await until(lambda: elector.leading)
    cluster.pause()
    try:
        await until(lambda: not team.working)
        with pytest.raises(LostLease, match="could not be renewed for 6 s"):
            await first
    finally:
        cluster.resume()
    _, second = team.candidate("b")
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
    elector, first = team.candidate("a")
    await until(lambda: elector.leading)
    other = Elector(cluster.client(), "leases", "b", QUICK)
    stealing = threading.Thread(
        target=lambda: asyncio.run(_try_for(other, QUICK.duration * 1.25)), daemon=True
    )
    stealing.start()
    ends = time.monotonic() + QUICK.duration * 1.25
    while time.monotonic() < ends:
        sum(range(10_000))  # busy, as the work may be
    elector.check()
    stealing.join()
    assert not other.leading, "LEAD-3"
    assert team.working == ["a"]
    cluster.pause()
    try:
        time.sleep(QUICK.deadline + 0.5)  # noqa: ASYNC251 - the loop is to be held
        with pytest.raises(LostLease, match="does not hold the lease"):
            elector.check()
        assert team.working == ["a"], "the loop has not heard of it yet"
    finally:
        cluster.resume()
    with pytest.raises(LostLease):
        await first
    assert not team.working


async def _try_for(elector: Elector, seconds: float) -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await elector.run(work)


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
