"""At the start, blocks without owner are read once, if any endpoint may be in one."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network
from typing import Any, cast

import pytest

from felix.calc.graph import Calculator
from felix.store.ownerless_blocks import start_blocks
from libcalico.datastore.interface import Datastore, Put
from libcalico.errors import DatastoreError
from libcalico.model import (
    AffinityKey,
    Block,
    BlockAffinity,
    BlockKey,
    Metadata,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from tests.ipam.memory import MemoryStore

OWNED, OWNERLESS, FOREIGN = (ip_network(f"10.65.{n}.0/26") for n in range(3))


class Store(MemoryStore):
    """Counts listings; may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.listings, self.away = 0, False

    async def list(self, selection: Any) -> Any:
        """All entries."""
        self.listings += 1
        if self.away:
            raise DatastoreError("away")
        return await super().list(selection)


def calculation(*addresses: str) -> Calculator:
    calc = Calculator("me")
    calc.update(AffinityKey("a", OWNED), BlockAffinity())
    for number, address in enumerate(addresses):
        key = ResourceKey("WorkloadEndpoint", f"a-k8s-{number}-eth0", "default")
        spec = WorkloadEndpointSpec(node="a", interfaceName="cali1", ipNetworks=[address])
        metadata = Metadata(name=key.name, namespace="default")
        calc.update(key, WorkloadEndpoint(metadata=metadata, spec=spec))
    return calc


async def started(calc: Calculator, away: bool = False) -> Store:
    store = Store()
    for cidr, owner in ((OWNED, "host:a"), (OWNERLESS, None), (FOREIGN, "virtual:x")):
        block = Block(cidr=str(cidr), affinity=owner, allocations=[None] * 64)
        await store.commit([Put(BlockKey(cidr), block)])
    store.listings, store.away = 0, away
    await start_blocks(calc.blocks, cast("Datastore", store))
    return store


def test_pods_that_outlive_their_pool_are_known_after_a_restart() -> None:
    calc = calculation("10.65.0.1/32", "10.65.1.1/32", "10.65.2.1/32", "10.9.9.9/32")
    assert asyncio.run(started(calc)).listings == 1
    assert calc.blocks.borrowed == {OWNERLESS: {ip_address("10.65.1.1"): "a"}}
    assert calc.blocks.facts.keys() == {OWNED, OWNERLESS}


def test_no_block_is_read_where_all_addresses_have_an_owner() -> None:
    calc = calculation("10.65.0.1/32")
    assert asyncio.run(started(calc)).listings == 0
    assert calc.blocks.started


def test_a_store_that_is_away_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    calc = calculation("10.65.1.1/32")
    assert asyncio.run(started(calc, away=True)).listings == 1
    assert calc.blocks.started
    assert "cannot be read" in caplog.text
