"""A node daemon in miniature, made to be killed: the production allocator on a real etcd.

    python -m tests.ipam.model.driver ENDPOINT HOST FOLDER SEED MODE

Pods come and go (`work`), or all end (`finish`). The files in FOLDER stand for the node's
host interfaces: a file named by a container exists as its interface would. Each line printed
is a fact that the runtime knows: `up CID ADDRESS`, `refused CID`, `ending CID`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from ipam.allocator.requests import Allocate, Release
from ipam.allocator.service import NodeAllocator
from ipam.collector.collector import Collector
from ipam.collector.leak_evidence import LeakEvidence, Listed
from ipam.records.errors import IPAMError
from ipam.records.naming import pod_attributes
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreError
from tests.ipam.model.world import NETWORK, Container, container_id

MOST = 6


class Driver:
    """One life of one node."""

    def __init__(self, store: Datastore, host: str, folder: Path, seed: int) -> None:
        self.store, self.host, self.folder = store, host, folder
        self.random = random.Random(seed)
        self.allocator = NodeAllocator(store, host)
        self.up: dict[str, Container] = {}
        self.busy: set[str] = set()

    def container(self, cid: str) -> Container:
        """A pod's only sandbox; its interface is its file."""
        return Container(cid, self.host, cid, (4,))

    async def add(self) -> None:
        """One ADD."""
        container = self.container(container_id(self.random.getrandbits(60)))
        self.busy.add(container.cid)
        try:
            ticket = self.allocator.submit(
                Allocate(
                    container.handle_id,
                    pod_attributes(self.host, "default", container.pod, 0),
                    companion=container.writer(),
                )
            )
            await ticket.tentative
            (self.folder / container.interface).touch()
            granted = await ticket.done
        except (IPAMError, DatastoreError):
            (self.folder / container.interface).unlink(missing_ok=True)
            print("refused", container.cid, flush=True)
            return
        finally:
            self.busy.discard(container.cid)
        print("up", container.cid, *granted.addresses, flush=True)
        self.up[container.cid] = container

    async def end(self, container: Container) -> None:
        """One DEL, or a pod that vanishes without one."""
        print("ending", container.cid, flush=True)
        (self.folder / container.interface).unlink(missing_ok=True)
        if self.random.random() < 0.7:
            await self.allocator.perform(
                Release(container.handle_id, companion=container.remover())
            )

    async def work(self) -> None:
        """Pods come and go until the process is killed."""
        while True:
            if len(self.up) < MOST and self.random.random() < 0.6:
                await asyncio.gather(*(self.add() for _ in range(self.random.randint(1, 4))))
            elif self.up:
                cid = self.random.choice(sorted(self.up))
                await self.end(self.up.pop(cid))

    async def observe(self) -> LeakEvidence:
        """The files are the interfaces."""
        return LeakEvidence(frozenset(os.listdir(self.folder)), busy=frozenset(self.busy))

    async def collect(self, listed: Listed | None = None) -> int:
        """One sweep; how many dead containers it released."""
        sweep = await Collector(self.store, self.host, self.observe, gap=0.1).sweep(listed)
        return len(sweep.collected)

    async def keep_collecting(self) -> None:
        """Sweep after sweep."""
        while True:
            await self.collect()
            await asyncio.sleep(0.05)


async def main() -> None:
    """Run in the mode that was asked for."""
    endpoint, host, folder, seed, mode = sys.argv[1:6]
    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=120.0)
    driver = Driver(await connect(config), host, Path(folder), int(seed))
    serving = asyncio.create_task(driver.allocator.run())
    if mode == "finish":
        for file in Path(folder).iterdir():
            file.unlink()
        await driver.collect(Listed(NETWORK, frozenset()))
        serving.cancel()
        return
    await asyncio.gather(driver.work(), driver.keep_collecting())


if __name__ == "__main__":
    asyncio.run(main())
