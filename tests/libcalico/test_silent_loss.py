"""A connection to the store that dies without a reset: from one moment on every packet is dropped.

Within 10 s of the last sign of life each reader says so, at the settings that every node has. Both
stores are cut off in one namespace and by one rule, so that the time is spent once.
"""

from __future__ import annotations

import asyncio
import subprocess
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
from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient

API = 6443
MOST = 10.0
"""Seconds from the last packet until all say that the store is away."""
SLACK = 5.0
"""Seconds that a machine with much else to do may add."""


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


async def until(check: object, seconds: float = 30) -> None:
    async with asyncio.timeout(patient(seconds)):
        while not check():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def story(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    server = await asyncio.start_server(api, "127.0.0.1", API)
    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=etcd.endpoint)
    access = Access(f"http://127.0.0.1:{API}")
    stores: list[Datastore] = [EtcdDatastore(config), KubernetesDatastore(Client(lambda: access))]
    followers = [Follower(store) for store in stores]
    try:
        await until(lambda: all(each.syncer.connected for each in followers))
        # Both watches stand: what the store does is told.
        await watching.wait()
        await stores[0].commit([Put(HandleKey("a"), Handle({}))])
        await until(lambda: followers[0].updates)
        drop_all([etcd.port, API])
        dropped = time.monotonic()
        # What is tried now does not wait for the kernel's ever longer pauses.
        trying = asyncio.create_task(Client(lambda: access, timeout=60).request("GET", "/x"))
        await until(lambda: all(each.lost for each in followers), 60)
        for each in followers:
            assert each.lost is not None
            assert each.lost - dropped < MOST + SLACK, each.syncer.error
            assert each.syncer.error
        with pytest.raises(Unreachable, match="no connection within 3 s"):
            await trying
        assert caplog.text.count("the datastore is away") >= len(followers)
    finally:
        for each in followers:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in followers), return_exceptions=True)
        for store in stores:
            await store.close()
        server.close()


def test_a_connection_that_dies_without_a_word_is_said_within_ten_seconds(
    space: Namespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with space.entered():
        etcd = Etcd(tmp_path).start()
        try:
            asyncio.run(story(etcd, caplog))
        finally:
            etcd.stop()


def test_what_is_waited_for_adds_up_to_less_than_ten_seconds() -> None:
    """etcd's by its settings, the API's by tcp(7). etcd refuses to be asked each 5 s."""
    import socket

    from libcalico.datastore.etcd import http2
    from libcalico.kubernetes import wire

    config = DatastoreConfig(datastore_type="etcdv3")
    assert (config.keepalive, config.keepalive_timeout) == http2.KEEPALIVE
    assert config.keepalive > 5.0
    assert config.keepalive + config.keepalive_timeout < MOST
    first, step = (wire._KEEPALIVE[name] for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL))
    looks = range(first + step, 60, step)
    ended = next(at for at in looks if at * 1000 >= wire._UNACKNOWLEDGED)
    assert ended < MOST
