"""The address of a node's tunnel against a plain model: every order of what happens to it.

Real are the decision and IPAM. Played are a store in memory that fails, loses answers and has
rivals, and operators who edit pools, apply old Nodes, release addresses and delete handles and
blocks. At no commit does a pod lose its address. After a call that ended well the Node names one
address where a pool asks for it, the tunnel's handle holds that and nothing else, and `ipam check`
finds nothing wrong with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from ipam.admin import library
from ipam.admin.library import AssignRequest, Release
from ipam.admin.tunnel_decision import asking
from ipam.admin.tunnels import VXLAN, ensure_tunnel_address, withdraw_tunnel_address
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError
from ipam.records.pools import usable
from libcalico.datastore.interface import Change, CommitConflict, Put, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Metadata, Node
from libcalico.model.keys import HandleKey, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool
from tests.size import examples

NODE = ResourceKey("Node", "n1")
HANDLE = VXLAN.handle_id("n1")


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStore()
        self.store.before_commit, self.store.after_commit = self._before, self._after
        self.pods: dict[IPAddress, str] = {}
        self.pod_number = 0
        self.troubled = False
        self.trace: list[str] = []

    def _before(self, changes: Sequence[Change]) -> None:
        if self.troubled and self.chance.random() < 0.2:
            if self.chance.random() < 0.5:
                raise CommitConflict({c.key: self.store.entries.get(c.key) for c in changes})
            raise DatastoreUnavailable("played")

    def _after(self, _: Sequence[Change]) -> None:
        held = self.held()
        assert {a: h for a, h in held.items() if a in self.pods} == self.pods, self.trace
        if self.troubled and self.chance.random() < 0.1:
            raise DatastoreUnavailable("played: the answer was lost")

    def held(self) -> dict[IPAddress, str]:
        return {
            one.address: one.handle_id
            for block in self.store.blocks().values()
            for one in blocks.allocations(block)
        }

    @property
    def node(self) -> Node:
        value: Node = self.store.entries[NODE].value
        return value

    # -- events ------------------------------------------------------------------------------------

    async def pool(self) -> None:
        """An operator edits a pool."""
        chance = self.chance
        name, cidr = chance.choice((("a", "10.0.0.0/28"), ("b", "10.1.0.0/29")))
        await put_pool(
            self.store, name, cidr, 29, vxlanMode=chance.choice(("Always", "Always", "Never")),
            disabled=chance.random() < 0.3,
            nodeSelector=chance.choice(("all()", "all()", "x == 'y'")),
        )  # fmt: skip

    async def old_node(self) -> None:
        """An operator applies a Node as it was: it names any address, or none."""
        held = list(self.held())
        address = self.chance.choice(["", "10.0.0.5", "nonsense", "10.9.0.1", *map(str, held)])
        await self.store.commit([Put(NODE, VXLAN.written(self.node, address))])

    async def node_again(self) -> None:
        await self.store.commit([Put(NODE, Node(metadata=Metadata(name="n1")))])

    async def take(self) -> None:
        """A pod comes."""
        self.pod_number += 1
        handle = f"net.{self.pod_number}"
        attributes = {"node": "n1", "pod": handle}
        try:
            got = await library.auto_assign(
                self.store, AssignRequest("n1", handle, attributes, num4=1)
            )
        except IPAMError:
            return
        self.pods.update(dict.fromkeys((one.ip for one in got.ipv4), handle))

    async def give(self) -> None:
        """A pod goes."""
        if self.pods:
            address = self.chance.choice(sorted(self.pods))
            del self.pods[address]
            await library.release_ips(self.store, [Release(address)])

    async def release(self) -> None:
        """An operator releases what is the tunnel's, and perhaps a pod takes it."""
        mine = [address for address, handle in self.held().items() if handle in (HANDLE, "")]
        if mine:
            await library.release_ips(self.store, [Release(mine[0])])
            if self.chance.random() < 0.5:
                await self.take()

    async def nameless(self) -> None:
        """An address of old times: no handle has it."""
        try:
            got = await library.auto_assign(self.store, AssignRequest("n1", num4=1))
        except IPAMError:
            return
        for one in got.ipv4:
            await self.store.commit([Put(NODE, VXLAN.written(self.node, str(one.ip)))])

    async def lose_handle(self) -> None:
        """An operator deletes the handle of what the Node names."""
        if self.held_of(HANDLE) == {VXLAN.recorded(self.node)}:
            self.store.entries.pop(HandleKey(HANDLE), None)
            if self.chance.random() < 0.7:
                await self.ensure(sure=True)
            else:
                await self.withdraw()
                assert not self.held_of(HANDLE), self.trace

    def held_of(self, handle_id: str) -> set[str]:
        return {str(address) for address, handle in self.held().items() if handle == handle_id}

    async def ensure(self, *, sure: bool = False) -> None:
        self.troubled = not sure and self.chance.random() < 0.5
        try:
            told = await ensure_tunnel_address(self.store, "n1", VXLAN)
        except (IPAMError, DatastoreUnavailable, CommitConflict):
            return
        finally:
            self.troubled = False
        await self.check(told)

    async def withdraw(self) -> None:
        await withdraw_tunnel_address(self.store, "n1", VXLAN)
        assert VXLAN.recorded(self.node) == "", self.trace

    # -- what must hold ----------------------------------------------------------------------------

    async def check(self, told: IPAddress | None) -> None:
        listing = await self.store.list(Selection("IPPool"))
        asked = asking(VXLAN, usable(listing.entries), self.node)
        about = told, self.trace
        assert VXLAN.recorded(self.node) == (str(told) if told else ""), about
        mine = {a for a, handle in self.held().items() if handle == HANDLE}
        if told is None:
            assert not asked.open, about
            assert not mine, about
            return
        assert asked.all, about
        assert told not in self.pods, about
        if asked.open:
            assert any(told in pool.cidr for pool in asked.open), about
            assert mine == {told}, about
        handle = self.store.entries.get(HandleKey(HANDLE))
        counted = sum((handle.value.block or {}).values()) if handle else 0
        assert counted == len(mine), about


async def play(seed: int) -> None:
    world = World(seed)
    await put_node(world.store, "n1")
    for _ in range(2):
        await world.pool()
    events: list[Any] = [
        world.pool, world.old_node, world.node_again, world.take, world.take, world.give,
        world.release, world.nameless, world.withdraw, world.lose_handle, *[world.ensure] * 5,
    ]  # fmt: skip
    for _ in range(world.chance.randint(3, 25)):
        event = world.chance.choice(events)
        world.trace.append(event.__name__)
        await event()


def test_what_a_new_block_holds_because_the_node_names_it_is_given_back() -> None:
    """The block was deleted with its handle; IPAM-31 puts the address into the new one."""

    async def once() -> None:
        world = World(0)
        await world.store.commit(
            [Put(NODE, VXLAN.written(Node(metadata=Metadata(name="n1")), "10.0.0.5"))]
        )
        await put_pool(world.store, "a", "10.0.0.0/29", 29, vxlanMode="Always")
        await world.ensure(sure=True)
        assert len(world.held()) == 1

    asyncio.run(once())


def test_a_node_names_the_one_address_that_its_tunnel_holds() -> None:
    for seed in range(examples(300)):
        asyncio.run(play(seed))
