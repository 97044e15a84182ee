"""A connection to the store that dies without a reset: from one moment on every packet is dropped.

Within 10 s of the last sign of life each reader says so, at the settings that every node has. All
stores are cut off in one namespace and by one rule, so that the time is spent once: etcd, etcd
behind a proxy that `ETCD_ENDPOINTS` names, and the Kubernetes API.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Datastore, Put, Selection
from libcalico.datastore.kubernetes.store import KubernetesDatastore
from libcalico.datastore.syncer import Syncer
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Unreachable
from libcalico.model import Handle
from libcalico.model.keys import HandleKey
from tests.libcalico.proxied import way_of
from tests.support.etcd_proxy import ProxiedEtcd
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, until

API = 6443
MOST = 10.0
"""Seconds from the last packet until all say that the store is away."""
SLACK = 2.0
"""Seconds for the looks themselves. What this machine was late by itself is counted and added."""


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("loss") as made:
        yield made


def drop_all(ports: list[int]) -> None:
    """No packet from or to these ports comes through; no end is told."""
    names = ", ".join(map(str, ports))
    rules = f"""table inet loss {{
        chain in {{
            type filter hook input priority 0;
            tcp dport {{ {names} }} drop
            tcp sport {{ {names} }} drop
        }}
    }}
    """
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)


watching = asyncio.Event()


async def api(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lists are empty, watches stand and say nothing."""
    empty = msgspec.json.encode({"metadata": {"resourceVersion": "5"}, "items": []})
    try:
        while request := await reader.readuntil(b"\r\n\r\n"):
            if b"watch=true" in request:
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                watching.set()
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(empty) + empty)
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


class Follower:
    """A syncer on a store, and when it said what of its connection."""

    def __init__(self, store: Datastore) -> None:
        self.syncer = Syncer(store, [Selection("Handle")], on_connection=self.changed)
        self.updates = 0
        self.lost: float | None = None
        self.task = asyncio.create_task(self.run())

    def changed(self) -> None:
        if not self.syncer.connected and self.lost is None:
            self.lost = time.monotonic()

    async def run(self) -> None:
        async for batch in self.syncer.batches():
            self.updates += len(batch.updates)


class Lateness:
    """By how much this process was woken too late so far, in seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.05)
            self.total += time.monotonic() - begun - 0.05


def reaching(endpoint: str, **more: str) -> EtcdDatastore:
    """A store with the settings that every node has."""
    return EtcdDatastore(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, **more)  # type: ignore[arg-type]
    )


async def story(etcd: ProxiedEtcd) -> None:
    late = Lateness()
    server = await asyncio.start_server(api, "127.0.0.1", API)
    access = Access(f"http://127.0.0.1:{API}")
    stores: list[Datastore] = [
        *(reaching(etcd.endpoint), reaching(etcd.reached)),
        KubernetesDatastore(Client(lambda: access)),
    ]
    followers = [Follower(store) for store in stores]
    try:
        await until(lambda: all(each.syncer.connected for each in followers))
        # All watches stand: what the store does is told.
        await watching.wait()
        await stores[0].commit([Put(HandleKey("a"), Handle({}))])
        await until(lambda: followers[0].updates and followers[1].updates)
        drop_all([etcd.port, etcd.proxy.port, API])
        dropped, late.total = time.monotonic(), 0.0
        # What is tried now does not wait for the kernel's ever longer pauses.
        trying = asyncio.create_task(Client(lambda: access, timeout=60).request("GET", "/x"))
        await until(lambda: all(each.lost for each in followers))
        for each in followers:
            assert each.lost is not None
            assert each.lost - dropped < MOST + SLACK + late.total, each.syncer.error
            assert each.syncer.error
        with pytest.raises(Unreachable, match="no connection within 3 s"):
            await trying
    finally:
        late.task.cancel()
        for each in followers:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in followers), return_exceptions=True)
        for store in stores:
            await store.close()
        server.close()


async def story_of_one_connection(etcd: ProxiedEtcd) -> None:
    """Only the connection of the watches dies: the proxy still answers all other questions."""
    late = Lateness()
    store = reaching(etcd.endpoint, read_endpoints=etcd.reached)
    follower = Follower(store)
    try:
        await until(lambda: follower.syncer.connected)
        await store.commit([Put(HandleKey("a"), Handle({}))])
        await until(lambda: follower.updates)
        (port,) = watched_from(store)
        drop_all([port])
        dropped, late.total = time.monotonic(), 0.0
        await until(lambda: watched_from(store) not in ([], [port]))
        assert time.monotonic() - dropped < MOST + SLACK + late.total
        before = follower.updates
        await store.commit([Put(HandleKey("b"), Handle({}))])
        await until(lambda: follower.updates > before)
    finally:
        late.task.cancel()
        follower.task.cancel()
        await asyncio.gather(follower.task, return_exceptions=True)
        await store.close()


def watched_from(store: EtcdDatastore) -> list[int]:
    """The local ports of the connection that carries watches through a proxy."""
    present = way_of(store).present
    lines = [link.streams and link.streams._line for link in (present and present._links) or ()]
    transports = [line._transport for line in lines if line and line._transport]
    return [one.get_extra_info("sockname")[1] for one in transports]


@pytest.mark.parametrize("told", [0, 1], ids=["all", "one connection"])
def test_a_connection_that_dies_without_a_word_is_said_within_ten_seconds(
    space: Namespace, tmp_path: Path, told: int
) -> None:
    """In a process of its own: gRPC goes on for a while to look for what was cut off, by threads
    that stay in the namespace, and who asks next in this process would be served by them."""
    command = space.command(sys.executable, "-m", __name__, str(tmp_path), str(told))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=4 * HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("the datastore is away") >= (3, 0)[told]


def main() -> None:
    """What the test runs inside."""
    logging.basicConfig()
    folder, told = Path(sys.argv[1]), (story, story_of_one_connection)[int(sys.argv[2])]
    etcd = ProxiedEtcd(folder)
    etcd.start()
    try:
        asyncio.run(told(etcd))
    finally:
        etcd.proxy.stop()
        etcd.stop()


def test_what_is_waited_for_adds_up_to_less_than_ten_seconds() -> None:
    """etcd's by its settings, the API's by tcp(7). etcd refuses to be asked each 5 s."""
    import socket

    from libcalico.datastore.etcd import http2
    from libcalico.kubernetes.streams import tcp

    config = DatastoreConfig(datastore_type="etcdv3")
    assert (config.keepalive, config.keepalive_timeout) == http2.KEEPALIVE
    assert config.keepalive > 5.0
    assert config.keepalive + config.keepalive_timeout < MOST
    first, step = (tcp._KEEPALIVE[name] for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL))
    looks = range(first + step, 60, step)
    ended = next(at for at in looks if at * 1000 >= tcp._UNACKNOWLEDGED)
    assert ended < MOST


if __name__ == "__main__":
    main()
