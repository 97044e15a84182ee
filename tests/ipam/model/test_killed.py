"""The model's invariants on a real etcd, with real processes and real SIGKILL.

Three nodes allocate, release, lose pods and collect; one after another dies after it has told of
some pods, in the midst of what it does then, and starts again. Whenever all of them are dead, the
store is looked at.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from libcalico.datastore.interface import Datastore, Put, Selection
from libcalico.model import Metadata, Node
from libcalico.model.keys import ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.model.invariants import check_owners, check_store, holders
from tests.ipam.model.world import UP, Container
from tests.ipam.world import put_pool
from tests.support.etcd import Etcd
from tests.support.patience import HANG

ROUNDS = 25 if os.environ.get("MUSLIN_FULL_SIZE") else 2
KILLS = 6
HOSTS = ("h0", "h1", "h2")
ROOT = Path(__file__).parent.parent.parent.parent


class Life:
    """One driver process and what it told."""

    def __init__(self, endpoint: str, host: str, folder: Path, seed: int, mode: str) -> None:
        self.host, self.told = host, folder / f"{host}.{seed}.told"
        links = folder / host
        links.mkdir(exist_ok=True)
        with self.told.open("wb") as told:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.ipam.model.driver"),
                    *(endpoint, host, str(links), str(seed), mode),
                ],
                stdout=told,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"]},
            )

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    async def tells(self, count: int) -> None:
        """Until it has told of so many ADDs and DELs more."""
        async with asyncio.timeout(HANG):
            wanted = self._lines() + count
            while self._lines() < wanted:
                assert self.process.poll() is None, f"{self.host} ended by itself"
                await asyncio.sleep(0.002)

    def _lines(self) -> int:
        return self.told.read_bytes().count(b"\n")

    def containers(self) -> list[Container]:
        """The pods that run: their ADD succeeded and their DEL has not begun."""
        up: dict[str, Container] = {}
        # The last line may be cut short by the kill.
        for line in self.told.read_text().split("\n")[:-1]:
            what, cid, *addresses = line.split()
            if what == "up":
                up[cid] = Container(cid, self.host, cid, (4,), UP)
                up[cid].addresses = frozenset(map(ip_address, addresses))
            else:
                up.pop(cid, None)
        return list(up.values())


async def look(store: Datastore, etcd: Etcd) -> MemoryStore:
    """Everything that is stored, of one moment, for the model's invariants.

    A write that a dead process had sent may be carried out between two of the listings.
    """
    async with asyncio.timeout(HANG):
        while True:
            seen, before = MemoryStore(), etcd.revision()
            for family in ("Block", "BlockAffinity", "Handle", "WorkloadEndpoint"):
                for entry in (await store.list(Selection(family))).entries:
                    seen.entries[entry.key] = entry
            if etcd.revision() == before:
                return seen


@pytest.mark.asyncio
@pytest.mark.ipam_model
@pytest.mark.promise("F-28", "PAIN-1", "PAIN-3")
async def test_killed_processes_lose_nothing_and_share_nothing(etcd: Etcd, tmp_path: Path) -> None:
    chance = random.Random(4)
    seed = kills = granted = 0
    lives: list[Life] = []

    def start(host: str, mode: str = "work") -> Life:
        nonlocal seed
        seed += 1
        lives.append(Life(etcd.endpoint, host, tmp_path, seed, mode))
        return lives[-1]

    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/27", 30)
        for host in HOSTS:
            await store.commit([Put(ResourceKey("Node", host), Node(metadata=Metadata(name=host)))])
        for _ in range(ROUNDS):
            running = {host: start(host) for host in HOSTS}
            try:
                for _ in range(KILLS):
                    host = chance.choice(HOSTS)
                    await running[host].tells(chance.randint(1, 12))
                    running[host].kill()
                    kills += 1
                    running[host] = start(host)
                for life in running.values():
                    await life.tells(4)
            finally:
                for life in running.values():
                    life.kill()
            seen = await look(store, etcd)
            check_store(seen)
            alive = [c for life in lives for c in life.containers() if standing(tmp_path, c)]
            granted += len(alive)
            check_owners(holders(seen), alive)
        for host in HOSTS:
            assert start(host, "finish").process.wait(HANG) == 0
        seen = await look(store, etcd)
        check_store(seen)
        assert holders(seen) == {}
        assert not [key for key in seen.entries if isinstance(key, ResourceKey)]
    assert granted


def standing(folder: Path, container: Container) -> bool:
    """Whether the pod's interface is there: a pod killed with its node's process lives on."""
    return (folder / container.host / container.interface).exists()
