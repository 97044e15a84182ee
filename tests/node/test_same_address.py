"""NODE-2 also where nodes start at the same moment: one gets the address, with a real etcd."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore, Entry, Put, Selection
from libcalico.errors import MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import Node, NodeBGPSpec, NodeSpec
from node.settings.environment import settings
from node.start import node_object
from tests.support.etcd import Etcd

NODES = 3


def node(name: str, address: str) -> Node:
    spec = NodeSpec(bgp=NodeBGPSpec(ipv4Address=address))
    return Node(metadata=Metadata(name=name), spec=spec)


class Together:
    """A store whose first list waits for those of all others: all have looked, nobody wrote."""

    def __init__(self, store: Datastore, barrier: asyncio.Barrier) -> None:
        self._store, self._barrier, self._looked = store, barrier, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list(self, selection: Selection) -> Any:
        listing = await self._store.list(selection)
        if not self._looked:
            self._looked = True
            await self._barrier.wait()
        return listing


@pytest.mark.promise("M-202")
@pytest.mark.parametrize("known", [False, True], ids=["new nodes", "known nodes"])
def test_of_nodes_that_start_at_once_one_gets_the_address(etcd_inside: Etcd, known: bool) -> None:
    """The others are refused by name, and what they wrote is taken back."""
    config = apiconfig.from_environment(etcd_inside.environment())

    async def go() -> None:
        store = await connect(config)
        names = [f"n{number}" for number in range(NODES)]
        keys = [ResourceKey("Node", name) for name in names]
        try:
            for turn in range(5):
                same = f"10.0.{turn}.7/24"
                before: list[Entry | None] = [None] * NODES
                if known:
                    for number, key in enumerate(keys):
                        await store.commit([Put(key, node(key.name, f"10.1.{turn}.{number}/24"))])
                        before[number] = await store.get(key)
                barrier = asyncio.Barrier(NODES)
                results = await asyncio.gather(
                    *(
                        node_object.write(
                            Together(store, barrier),
                            entry,
                            node(name, same),
                            settings({"IP": "autodetect"}),
                        )
                        for name, entry in zip(names, before, strict=True)
                    ),
                    return_exceptions=True,
                )
                (winner,) = [at for at, result in enumerate(results) if result is True]
                for at, result in enumerate(results):
                    entry = await store.get(keys[at])
                    if at == winner:
                        assert entry is not None
                        assert entry.value.spec.bgp.ipv4Address == same
                        continue
                    assert isinstance(result, MuslinError)
                    assert f"Node(n{at}): the address 10.0.{turn}.7 belongs to" in str(result)
                    if known:
                        assert entry is not None
                        assert entry.value.spec.bgp.ipv4Address == f"10.1.{turn}.{at}/24"
                    else:
                        assert entry is None
                if not known:
                    etcd_inside.delete("/calico/")
        finally:
            await store.close()

    asyncio.run(go())


class Overtaken:
    """A store in which another node takes the address between the first look and the write, and
    writes its Node once more before the second look.
    """

    def __init__(self, store: Datastore, other: Node) -> None:
        self._store, self._other = store, other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _write_other(self) -> None:
        await self._store.commit([Put(ResourceKey("Node", self._other.metadata.name), self._other)])

    async def list(self, selection: Selection) -> Any:
        listing = await self._store.list(selection)
        await self._write_other()
        return listing

    async def commit(self, changes: Any) -> int:
        revision = await self._store.commit(changes)
        await self._write_other()
        return revision


@pytest.mark.promise("M-202")
def test_the_earlier_one_may_write_again_meanwhile(etcd_inside: Etcd) -> None:
    """Such as its tunnel's address: it is not the later one for that."""

    async def go() -> None:
        store = await connect(apiconfig.from_environment(etcd_inside.environment()))
        same = "10.0.9.7/24"
        try:
            overtaken = Overtaken(store, node("a", same))
            with pytest.raises(MuslinError, match=r"Node\(b\): the address .* Node\(a\)"):
                await node_object.write(overtaken, None, node("b", same), settings({}))
            assert await store.get(ResourceKey("Node", "b")) is None
        finally:
            await store.close()

    asyncio.run(go())
