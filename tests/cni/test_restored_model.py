"""The model of tests/cni/test_attachment_model.py beside an operator who deletes what pods have.

An operator deletes endpoint, handle, block or claim of pods that run, and `Restorer` puts them back
while other pods come, go and call again. No address is ever two living pods' (CNI-100), and no flow
of a living pod is forgotten. When the datastore answers again every pod has all that it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cni.server import put_back, restore
from cni.server.restore import Restorer
from ipam.allocator.facts import read_facts
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Change, Delete
from libcalico.errors import MuslinError
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, Key
from linux.errors import KernelError
from tests.cni.test_attachment_model import NODE, UNMANAGED, World, play, played
from tests.size import examples


class Restored(World):
    """With an operator, and what puts back."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.restorer: Any = None
        self.unnamed: set[str] = set()
        """Handles that were deleted: a later sandbox leaves their addresses to the collector."""

    async def start(self) -> None:
        await super().start()
        trouble, self.trouble = self.trouble, 0.0
        facts = await read_facts(self.store, NODE)
        self.trouble = trouble
        cluster = self.context.cluster
        cluster.facts, cluster.has_node = lambda _: facts, lambda _: True
        self.restorer = Restorer(self.context, self.container_lock)

    @asynccontextmanager
    async def container_lock(self, cid: str) -> AsyncIterator[None]:
        async with self.lock(cid):
            yield

    def marks(self) -> dict[str, str]:
        if self.fails(0.3):
            raise KernelError(12, "played")
        return dict(self.links)

    def look(self) -> None:
        if not self.torn:
            super().look()
            return
        owned = [a for c, ifname in self.living() for a in c.up[ifname] if a != UNMANAGED]
        assert len(owned) == len(set(owned)), self.trace
        assert not self.faults, (self.faults[0], self.trace)

    async def second(self) -> None:
        """Not by another main plugin, whose namespaces are not played."""
        if living := self.living():
            await self.add(self.chance.choice(living)[0], "net1")

    async def further(self) -> None:
        """An interface of a container that had none but its first."""
        single = [container for container, _ in self.living() if "net1" not in container.called]
        if single:
            await self.add(self.chance.choice(single), "net1")

    def held(self) -> dict[IPAddress, str]:
        living = {self.attachment(c, ifname).handle_id for c, ifname in self.living()}
        left = self.unnamed - living - self.store.handles().keys()
        return {address: handle for address, handle in super().held().items() if handle not in left}

    # -- the operator ------------------------------------------------------------------------------

    def deletable(self) -> list[Key]:
        """What pods that run have, each with its claim or block."""
        keys: set[Key] = set()
        for container, ifname in self.living():
            one = self.attachment(container, ifname)
            keys |= {one.endpoint_key, one.handle_key}
        keys |= {k for k in self.store.entries if isinstance(k, (AffinityKey, BlockKey))}
        return sorted((key for key in keys if key in self.store.entries), key=str)

    async def tear(self) -> None:
        """The operator deletes, and the node puts back beside other calls."""
        keys = self.deletable()
        if not keys:
            return
        chosen = self.chance.sample(keys, self.chance.randint(1, min(3, len(keys))))
        self.trace.append(f"deleted: {', '.join(map(str, chosen))}")
        self.unnamed |= {key.handle_id for key in chosen if isinstance(key, HandleKey)}
        self.torn, trouble, self.trouble = True, self.trouble, 0.0
        changes: Sequence[Change] = [Delete(key, None) for key in chosen]
        await self.store.commit(changes)
        self.trouble = trouble
        for key in chosen:
            if isinstance(key, AffinityKey) and self.chance.random() < 0.7:
                self.context.allocator.claim_lost(key.cidr)
        self.restorer.compare_soon()
        # A repeated ADD may give a pod another address in the place of a deleted one. What a DEL
        # leaves in a block that is made anew at that moment is the collector's.
        beside = (self.sandbox, self.sandbox, self.further, self.compare)
        await asyncio.gather(*(self.chance.choice(beside)() for _ in range(3)))
        await self.mend()

    async def compare(self) -> None:
        try:
            await self.restorer.look()
        except (MuslinError, KernelError, TimeoutError) as error:
            self.trace.append(f"not compared: {error}")

    async def mend(self) -> None:
        self.trouble = 0.0
        await self.settle()
        self.restorer.compare_soon()
        await self.compare()
        assert not self.restorer.lost, (self.restorer.lost, self.trace)
        self.torn = False
        self.look()


def test_what_an_operator_deletes_of_the_living_comes_back_beside_other_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def own(*_: object, **__: object) -> str:
        return ""

    for seed in range(examples(120)):
        world = Restored(seed, tmp_path / str(seed))
        played(world, monkeypatch)
        for module in (restore, put_back):
            monkeypatch.setattr(module, "kernel_marks", world.marks)
        monkeypatch.setattr(restore, "why_foreign", own)
        asyncio.run(play(world, *[world.tear] * 4))
