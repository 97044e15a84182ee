"""Who uses an address of another node's block, by claims and pods of a real API (felix, CLB-1)."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network
from pathlib import Path

from msgspec.structs import replace

from libcalico.datastore.interface import ABSENT, Delete, Put
from libcalico.model import AffinityKey, BlockAffinity, ResourceKey
from tests.apiserver import kdd
from tests.apiserver.test_kdd_unreadable import following
from tests.support.apiserver import ApiServer
from tests.support.patience import patient, until

BLOCK = ip_network("10.65.0.0/26")
KEY = ResourceKey("WorkloadEndpoint", "n3-k8s-web--0-eth0", "default")


def test_a_pod_borrows_an_address_without_any_block(api: ApiServer, tmp_path: Path) -> None:
    kdd.install(api)
    kdd.clean(api)
    for name in ("n2", "n3"):
        kdd.node(api, name)
    kdd.pod(api, "web-0", "n3")

    async def lives() -> None:
        async with following(api, tmp_path) as agent, kdd.opened(api) as store:
            blocks = agent.calc.blocks
            claim = AffinityKey("n2", BLOCK)
            await store.commit([Put(claim, BlockAffinity(), ABSENT)])
            await until(lambda: BLOCK in blocks.facts)
            assert (blocks.facts[BLOCK].owner, blocks.borrowed) == ("host:n2", {})
            entry = await store.get(KEY)
            spec = replace(entry.value.spec, containerID="c1", ipNetworks=["10.65.0.5/32"])
            await store.commit([Put(KEY, replace(entry.value, spec=spec), entry.revision, entry)])
            await until(lambda: blocks.borrowed == {BLOCK: {ip_address("10.65.0.5"): "n3"}})
            await store.commit([Delete(claim)])
            await until(lambda: blocks.left == {BLOCK})
            await store.commit([Delete(KEY)])
            await until(lambda: not blocks.facts)

    async def in_time() -> None:
        async with asyncio.timeout(patient(60)):
            await lives()

    asyncio.run(in_time())
    kdd.clean(api)
