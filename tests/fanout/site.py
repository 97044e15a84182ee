"""An etcd with doors, proxies before it, and a network between all of them that loses packets.

etcd listens on a port for each who asks: one for clients, one for each proxy, and one that stays
open, for the test itself. So any of the ways can be cut by itself. Cut means that packets are
dropped in both directions and neither side is told. Runs inside a network namespace of its own.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.proxy.proxies import ranked
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Change
from tests.fanout import changes
from tests.felix.policy_objects import ME
from tests.support.etcd import CALL, Etcd
from tests.support.etcd_proxy import GrpcProxy
from tests.support.ports import free_ports

LOSS = """table inet loss {
    set cut { type inet_service; }
    chain in {
        type filter hook input priority 0;
        tcp dport @cut drop
        tcp sport @cut drop
    }
}
"""
PROXIES = 2
Draw = Callable[[random.Random], Sequence[Change]]


class EtcdWithDoors(Etcd):
    """A server that also listens on other ports; `endpoint` is the one that stays open."""

    def __init__(self, folder: Path, doors: Sequence[int]) -> None:
        super().__init__(folder)
        urls = [self.endpoint, *(f"http://127.0.0.1:{port}" for port in doors)]
        self._extra.append(f"--listen-client-urls={','.join(urls)}")


class Site:
    """The store, its proxies (felix's first choice first), and what is cut now."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.clients, *self._doors = free_ports(1 + PROXIES)
        self.etcd = EtcdWithDoors(folder / "etcd", [self.clients, *self._doors])
        made = [
            GrpcProxy(folder / f"proxy{number}", [f"http://127.0.0.1:{door}"])
            for number, door in enumerate(self._doors)
        ]
        self._door_of = dict(zip(made, self._doors, strict=True))
        order = ranked(ME, [one.endpoint for one in made])
        self.proxies = sorted(made, key=lambda one: order.index(one.endpoint))
        self._cut: set[int] = set()
        self._restored = 0
        self.token = "etcd-cluster"
        """Of the cluster as it is now."""

    @property
    def config(self) -> DatastoreConfig:
        """Felix's: by the clients' door, and through the proxies."""
        return DatastoreConfig(
            datastore_type="etcdv3",
            etcd_endpoints=f"http://127.0.0.1:{self.clients}",
            read_endpoints=",".join(one.endpoint for one in self.proxies),
            timeout=2.0,
        )

    def start(self) -> None:
        """Start all of it."""
        subprocess.run(["nft", "-f", "-"], input=LOSS, text=True, check=True)
        self.etcd.start()
        for one in self.proxies:
            one.start()

    def stop(self) -> None:
        """End all programs."""
        for one in self.proxies:
            one.kill()
        self.etcd.kill()

    # -- what is written -----------------------------------------------------------------------

    async def begin(self) -> None:
        """Write what each cluster has, and some changes."""
        store = EtcdDatastore(self.etcd.config(CALL))
        await store.commit(changes.beginning())
        await store.close()
        await self.write(20)

    async def write(self, count: int, draw: Draw = changes.drawn) -> None:
        """Make this many transactions, by the door that stays open."""
        store = EtcdDatastore(self.etcd.config(CALL))
        try:
            for _ in range(count):
                await store.commit(draw(self.chance))
        finally:
            await store.close()

    async def write_past(self, revision: int, draw: Draw = changes.drawn) -> None:
        """Write until the store is at a later revision."""
        while self.etcd.revision() <= revision:
            await self.write(5, draw)

    # -- what goes wrong -----------------------------------------------------------------------

    def cut_from_etcd(self, proxy: GrpcProxy) -> None:
        """Drop what a proxy and etcd say to each other."""
        self._drop(self._door_of[proxy])

    def cut_from_clients(self, proxy: GrpcProxy) -> None:
        """Drop what a proxy and its clients say to each other."""
        self._drop(proxy.port)

    def cut_clients_from_etcd(self) -> None:
        """Drop what clients and etcd itself say to each other."""
        self._drop(self.clients)

    def heal(self) -> None:
        """All packets pass, and all programs run."""
        if self._cut:
            subprocess.run(["nft", "flush", "set", "inet", "loss", "cut"], check=True)
            self._cut.clear()
        if not self.etcd.running:
            self.etcd.start()
        for one in self.proxies:
            one.resume() if one.running else one.start()

    def compact(self) -> None:
        """Forget the past; etcd refuses where nothing came since the last time."""
        try:
            self.etcd.compact()
        except RuntimeError as error:
            if "has been compacted" not in str(error):
                raise

    def back_up(self) -> None:
        """Make the backup that `put_back` takes."""
        (self.folder / "backup").unlink(missing_ok=True)
        self.etcd.save(self.folder / "backup")

    def put_back(self, token: str = "") -> None:
        """Put the store back to the backup, as a cluster with a token of its own unless said."""
        self._restored += 1
        self.etcd.kill()
        self.token = token or f"restored{self._restored}"
        self.etcd.put_back(self.folder / "backup", self.token)
        self.etcd.start()

    def _drop(self, port: int) -> None:
        element = f"{{ {port} }}"
        subprocess.run(["nft", "add", "element", "inet", "loss", "cut", element], check=True)
        self._cut.add(port)
