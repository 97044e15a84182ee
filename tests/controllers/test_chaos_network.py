"""Watches that are cut or hang, a leader that dies with its write on the way, clocks that are
wrong: in the end the datastore holds what a fresh start makes of the same objects."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controllers.mirror.mirror import Mirror
from controllers.mirror.mirrored_kinds import NAMESPACE_PROFILES, POLICIES
from libcalico.kubernetes.client import Client
from tests.controllers.fresh import (
    all_is_there,
    assert_as_a_fresh_start_makes_it,
    versions,
)
from tests.controllers.running import running
from tests.controllers.test_mirrors import (
    DEFAULT_DENY,
    FROM_NAMESPACE,
    POLICY_PATH,
    RESOURCES,
    policy,
)
from tests.controllers.test_process import LEASE, Running, holder, start
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import HANG, patient, until
from tests.support.proxy import Proxy

__all__ = ["start"]

ONLY_EGRESS: dict[str, Any] = {"podSelector": {}, "policyTypes": ["Egress"]}
LEASE_LASTS = 15.0


def path(space: str, name: str) -> str:
    return f"{RESOURCES}networkpolicies/{space}/knp.default.{name}"


@pytest.mark.asyncio
async def test_what_changed_while_a_watch_was_cut_or_hung_is_made_good(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("cut")
    proxy = await Proxy(cluster.port).start()
    access = replace(cluster.access(), server=f"https://127.0.0.1:{proxy.port}")
    client = Client(lambda: access, timeout=10.0, silence=3.0)
    families: list[Any] = [POLICIES, NAMESPACE_PROFILES]

    async def stands(name: str, there: bool = True) -> None:
        await until(lambda: bool(stored.keys(path("cut", name))) == there)

    async with stored.connect() as store:
        parts: list[Any] = [Mirror(family, client, store) for family in families]
        async with running(*parts):
            policy(cluster, "cut", "stays", DEFAULT_DENY)
            await stands("stays")
            for number, harm in enumerate((proxy.cut, proxy.hang)):
                policy(cluster, "cut", f"goes-{number}", DEFAULT_DENY)
                await stands(f"goes-{number}")
                harm()
                await until(lambda: not any(part.reflector.connected for part in parts))
                cluster.delete(f"{POLICY_PATH.format('cut')}/goes-{number}")
                policy(cluster, "cut", f"comes-{number}", FROM_NAMESPACE)
                policy(cluster, "cut", "stays", (FROM_NAMESPACE, ONLY_EGRESS)[number])
                assert stored.keys(path("cut", f"goes-{number}")), "nothing goes unseen"
                proxy.mend()
                await stands(f"comes-{number}")
                await stands(f"goes-{number}", there=False)
            await until(lambda: all(part.in_sync for part in parts))
            await until(lambda: b"Egress" in (stored.get(path("cut", "stays")) or b""))
    await assert_as_a_fresh_start_makes_it(cluster, stored)
    await client.close()
    await proxy.stop()


@pytest.mark.asyncio
async def test_who_was_cut_off_works_on_as_soon_as_the_network_heals(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running]
) -> None:
    """Longer than the lease may go without being renewed: it stops, and takes its own lease up
    again, without waiting until that has run out."""
    cluster.namespace("island")
    policy(cluster, "island", "before", DEFAULT_DENY)
    api, etcd = await Proxy(cluster.port).start(), await Proxy(stored.port).start()
    one = start(
        "one",
        server=f"https://127.0.0.1:{api.port}",
        ETCD_ENDPOINTS=f"http://127.0.0.1:{etcd.port}",
    )
    await until(lambda: stored.keys(path("island", "before")))
    lease = cluster.call("GET", LEASE)["spec"]
    for proxy in (api, etcd):
        proxy.hang()
    await until(lambda: "nothing is written until it is held again" in one.log.read_text())
    policy(cluster, "island", "after", DEFAULT_DENY)
    for proxy in (api, etcd):
        proxy.mend()
    await until(lambda: stored.keys(path("island", "after")))
    after = cluster.call("GET", LEASE)["spec"]
    same = ("holderIdentity", "acquireTime", "leaseTransitions")
    assert [after[each] for each in same] == [lease[each] for each in same]
    assert one.process.poll() is None
    await all_is_there(cluster, stored)
    assert one.stop() == 0
    for proxy in (api, etcd):
        await proxy.stop()
    await assert_as_a_fresh_start_makes_it(cluster, stored)


def transactions(stored: Etcd) -> int:
    """How many etcd has begun."""
    with urllib.request.urlopen(f"{stored.endpoint}/metrics", timeout=HANG) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [line for line in lines if line.startswith("grpc_server_started_total")]
    return int(float(next(line for line in wanted if '"Txn"' in line).split()[-1]))


@pytest.mark.asyncio
async def test_a_write_that_comes_after_its_leaders_death_changes_nothing(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running]
) -> None:
    cluster.namespace("late")
    web = path("late", "web")
    policy(cluster, "late", "web", DEFAULT_DENY)
    proxy = await Proxy(stored.port).start()
    first = start("first", ETCD_ENDPOINTS=f"http://127.0.0.1:{proxy.port}")
    await until(lambda: stored.get(web))
    held = proxy.hold(b"app == 'web'")
    policy(cluster, "late", "web", FROM_NAMESPACE)
    await asyncio.wait_for(held.wait(), patient(60.0))
    # Not earlier: it would write this itself where the first lost its lease to a standstill.
    second = start("second")
    first.stop(signal.SIGKILL)
    policy(cluster, "late", "web", ONLY_EGRESS)
    await until(lambda: b"Ingress" not in (stored.get(web) or b"Ingress"))
    assert holder(cluster) == "second"
    await all_is_there(cluster, stored)
    # Nobody is left to put it right, nor to write anything else, when the dead one's comes.
    second.stop()
    cluster.kill()
    before, count = versions(stored, web), transactions(stored)
    proxy.mend()
    await until(lambda: transactions(stored) > count)
    await asyncio.sleep(0.5)
    assert versions(stored, web) == before
    await proxy.stop()
    cluster.start()
    await assert_as_a_fresh_start_makes_it(cluster, stored)


@pytest.mark.asyncio
async def test_a_clock_that_is_an_hour_off_takes_no_lease_and_keeps_none(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running]
) -> None:
    cluster.namespace("clocks")
    policy(cluster, "clocks", "one", DEFAULT_DENY)
    right = start("right")
    await until(lambda: stored.keys(path("clocks", "one")))
    # To this one the lease seems to have run out an hour ago.
    ahead = start("ahead", clock="+1h")
    await until(lambda: ahead.check("-r") == (0, "Ready"), pause=1.0)
    for _ in range(int(LEASE_LASTS) + 3):
        await asyncio.sleep(1.0)
        assert holder(cluster) == "right" or right.process.poll() is not None
    right.stop(signal.SIGKILL)
    policy(cluster, "clocks", "two", DEFAULT_DENY)
    await until(lambda: stored.keys(path("clocks", "two")))
    assert holder(cluster) == "ahead"
    # To this one it was renewed in two hours from now.
    behind = start("behind", clock="-1h")
    await until(lambda: behind.check("-r") == (0, "Ready"), pause=1.0)
    ahead.stop(signal.SIGKILL)
    cluster.delete(POLICY_PATH.format("clocks") + "/one")
    await until(lambda: not stored.keys(path("clocks", "one")))
    assert holder(cluster) == "behind"
    await all_is_there(cluster, stored)
    behind.stop()
    await assert_as_a_fresh_start_makes_it(cluster, stored)
