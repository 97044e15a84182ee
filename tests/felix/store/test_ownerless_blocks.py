"""At the start, blocks without owner are read once, if any endpoint may be in one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        self.meanwhile: Callable[[], object] = lambda: None

    async def list(self, selection: Any) -> Any:
        """All entries."""
        self.listings += 1
        self.meanwhile()
        if self.away:
            raise DatastoreError("away")
        return await super().list(selection)


def calculation(*addresses: str) -> Calculator:
    calc = Calculator("me")
    calc.update(AffinityKey("a", OWNED), BlockAffinity())
    for address in addresses:
        endpoint(calc, address)
    return calc


def endpoint(calc: Calculator, address: str, node: str = "a") -> None:
    name = f"{node}-k8s-{address.replace('.', '-').partition('/')[0]}-eth0"
    spec = WorkloadEndpointSpec(node=node, interfaceName="cali1", ipNetworks=[address])
    metadata = Metadata(name=name, namespace="default")
    key = ResourceKey("WorkloadEndpoint", name, "default")
    calc.update(key, WorkloadEndpoint(metadata=metadata, spec=spec))


async def started(
    calc: Calculator, away: bool = False, meanwhile: Callable[[], object] = lambda: None
) -> Store:
    store = Store()
    for cidr, owner in ((OWNED, "host:a"), (OWNERLESS, None), (FOREIGN, "virtual:x")):
        block = Block(cidr=str(cidr), affinity=owner, allocations=[None] * 64)
        await store.commit([Put(BlockKey(cidr), block)])
    store.listings, store.away, store.meanwhile = 0, away, meanwhile
    await start_blocks(calc.blocks, cast("Datastore", store))
    return store


def test_pods_that_outlive_their_pool_are_known_after_a_restart() -> None:
    calc = calculation("10.65.0.1/32", "10.65.1.1/32", "10.65.2.1/32", "10.9.9.9/32")
    assert asyncio.run(started(calc)).listings == 1
    assert calc.blocks.borrowed == {OWNERLESS: {ip_address("10.65.1.1"): "a"}}
    assert calc.blocks.facts.keys() == {OWNED, OWNERLESS}


def test_what_comes_while_they_are_read_counts() -> None:
    calc = calculation("10.65.1.1/32")
    asyncio.run(started(calc, meanwhile=lambda: endpoint(calc, "10.65.0.9/32", "b")))
    assert calc.blocks.borrowed[OWNED] == {ip_address("10.65.0.9"): "b"}


def test_no_block_is_read_where_all_addresses_have_an_owner() -> None:
    calc = calculation("10.65.0.1/32")
    assert asyncio.run(started(calc)).listings == 0
    assert calc.blocks.started


def test_a_store_that_is_away_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    calc = calculation("10.65.1.1/32")
    assert asyncio.run(started(calc, away=True)).listings == 1
    assert calc.blocks.started
    assert "cannot be read" in caplog.text
