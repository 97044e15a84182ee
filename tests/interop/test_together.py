"""Calico's IPAM library and our allocator assign and release at once, on shared nodes too."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ipam.admin import check, library
from ipam.admin.findings import Kind
from ipam.allocator.requests import Allocate, Release
from ipam.allocator.service import NodeAllocator
from ipam.records import snapshot
from libcalico.datastore.interface import Datastore
from tests.interop.conftest import DriverMaker, Theirs
from tests.interop.stored import document, everything
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd

WORKERS, ROUNDS, KEEP = 4, 60, 4
Held = dict[str, list[str]]


async def churn(store: Datastore, host: str, held: Held) -> None:
    """Take and give back; `held` is what is left."""
    allocator = NodeAllocator(store, host)
    serving = asyncio.create_task(allocator.run())

    async def worker(number: int) -> None:
        chance = random.Random(number)
        live: list[str] = []
        for turn in range(ROUNDS):
            if len(live) > KEEP or (live and chance.random() < 1 / 3):
                handle = live.pop(0)
                await allocator.perform(Release(handle))
                del held[handle]
                continue
            handle = f"ours.{host}.{number}.{turn}"
            granted = await allocator.perform(Allocate(handle, {"node": host, "pod": handle}))
            held[handle] = [str(one) for one in granted.addresses]
            live.append(handle)

    try:
        await asyncio.gather(*(worker(number) for number in range(WORKERS)))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.interop
@pytest.mark.asyncio
async def test_no_address_twice_and_each_releases_the_others(
    theirs: Theirs, drivers: DriverMaker, etcd: Etcd, kubeconfig: str
) -> None:
    theirs.environment["KUBECONFIG"] = kubeconfig
    held: Held = {}
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(etcd.connect()) for _ in range(2)]
        for name in ("ours", "theirs", "shared"):
            await put_node(stores[0], name)
        # 32 blocks of 8: workers must borrow and steal affinities while they churn.
        await put_pool(stores[0], "p", "10.65.0.0/24", 29)
        controllers = document("KubeControllersConfiguration", "default", {"controllers": {}})
        assert theirs("create", "-f", "-", stdin=controllers).code == 0
        library_of = {host: drivers() for host in ("theirs", "shared")}
        answers: list[Any] = await asyncio.gather(
            churn(stores[0], "ours", held),
            churn(stores[1], "shared", held),
            *(
                driver.soon(
                    "churn", host=host, handle="t", workers=WORKERS, rounds=ROUNDS, keep=KEEP
                )
                for host, driver in library_of.items()
            ),
        )
        their_held: Held = {}
        for answer in answers[2:]:
            their_held |= answer["held"]
        assert held
        assert their_held
        everyone = [address for many in (held | their_held).values() for address in many]
        assert [one for one, count in Counter(everyone).items() if count > 1] == []
        snap = await snapshot.read(stores[0])
        report = check.check(snap)
        # No endpoints are written here: all that is allocated counts as unused, and nothing else.
        assert {problem.kind for problem in report.problems} == {Kind.LEAKED}
        assert {str(record.address) for record in report.leaked()} == set(everyone)
        said = theirs("ipam", "check").out
        assert f"Check complete; found {len(everyone)} problems." in said
        assert "Found 0 handles with no matching IPs" in said
        assert "Found 0 handles mentioned in blocks with no matching handle resource." in said
        for handle in their_held:
            await library.release_by_handle(stores[0], handle)
        one = library_of["theirs"]
        for handle in held:
            await one.soon("release_by_handle", handle=handle)
        await one.soon("release_host_affinities", host="ours")
        for host in ("theirs", "shared"):
            await library.release_host_affinities(stores[0], host)
        left = [key for key in everything(etcd) if key.startswith("/calico/ipam/v2/")]
        assert left in ([], ["/calico/ipam/v2/config"])
