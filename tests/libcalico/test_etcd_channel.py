"""gRPC's channel to etcd goes when nothing is asked, and gRPC's threads with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.etcd.watch import present
from libcalico.datastore.interface import Put, Selection
from libcalico.model import Handle, HandleKey
from tests.support.etcd import Etcd
from tests.support.patience import HANG, until

IDLE = 0.3
READ = pb.RangeRequest(key=b"/calico/")


def grpc_threads() -> list[str]:
    """The threads of this process that gRPC names."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue
    return [name for name in names if name.startswith(("grpc", "event_engine", "lifeguard"))]


async def rest(endpoint: str) -> None:
    """What the test runs in a process of its own: another test may have a channel in ours."""
    from libcalico.apiconfig import DatastoreConfig

    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, idle=IDLE)
    store = EtcdDatastore(config)
    revision = await store.commit([Put(HandleKey("a"), Handle({}))])
    batches = store.watch([Selection("Handle")], revision)
    await anext(batches)
    assert grpc_threads()
    await until(lambda: not grpc_threads(), grpc_threads)
    # The watch goes on, and the next call makes a channel.
    later = await store.commit([Put(HandleKey("b"), Handle({}))])
    assert [event.revision for event in await asyncio.wait_for(anext(batches), HANG)] == [later]
    await until(lambda: not grpc_threads(), grpc_threads)
    await store.close()


def test_a_process_that_only_follows_has_no_threads_of_grpc(etcd: Etcd) -> None:
    words = [sys.executable, "-m", __name__, etcd.endpoint]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=4 * HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.asyncio
async def test_a_channel_stays_while_there_are_calls_and_goes_after(etcd: Etcd) -> None:
    connection = Connection(replace(etcd.config(), idle=IDLE))
    try:
        await present(connection)
        (link,) = connection._all()
        channel, first = link._channel, link._channel.stubs
        assert first is not None
        # A call goes on, other calls end meanwhile.
        stream = link.watch()
        await present(connection)
        await asyncio.sleep(3 * IDLE)
        assert channel.stubs is first
        stream.cancel()
        await until(lambda: channel.stubs is None)
        await present(connection)
        assert channel.stubs is not None
    finally:
        await connection.close()
    with pytest.raises(Exception, match="closed"):
        await link.range(READ, timeout=1.0)


if __name__ == "__main__":
    asyncio.run(rest(sys.argv[1]))
