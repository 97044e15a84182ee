"""What goes wrong during ADD and DEL leaves nothing behind, and says what it was.

1. No datastore: ADD answers code 11 in time; DEL succeeds and is finished later.
2. A datastore that hangs (SIGSTOP) is the same, also when it swallowed the transaction.
3. The datastore dies between the transaction and the end of ADD.
4. The executable dies, or cannot deliver the result.
5. A failure at each step of the wiring.
6. A DEL that the kernel, a full datastore or a torn handle refuses is finished later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.node import del_queue
from cni.server.daemon import Daemon
from cni.socket import channel, protocol
from cni.veth import pod_end, veth_removal, wiring
from libcalico.datastore.interface import Delete, Put
from libcalico.model import ClusterInformation, ClusterInformationSpec, Metadata, ResourceKey
from linux.errors import KernelError
from tests.cni.executable import plugin
from tests.cni.world import (
    CIDR4,
    WAITS,
    FelixPeer,
    World,
    container_id,
    hurried,
    network_config,
    node_world,
    pod_namespace,
    put_pool,
    result_of,
)
from tests.support.netns import Namespace
from tests.support.patience import HANG, until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def records(node: World) -> list[Path]:
    return sorted(node.settings.pending.glob("*.json"))


def has_eth0(pod: Namespace) -> bool:
    return "eth0" in pod.run("ip", "link")


@pytest.mark.asyncio
async def test_etcd_killed_add_fails_and_del_is_finished_later(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        result_of(await node.add(pod))
        node.etcd.kill()
        with hurried(daemon, 1.0, datastore_seconds=4.0, release_seconds=1.0):
            with pod_namespace("late") as late:
                began = time.monotonic()
                error = (await node.add(late, "late")).error
                assert error["code"] == 11
                assert "datastore" in error["msg"]
                assert time.monotonic() - began < HANG
                assert not has_eth0(late)
            done = await node.delete(pod)
        assert done.status == 0, done
        assert node.links() == []
        assert records(node), "the DEL is remembered"
        async with FelixPeer(node.settings.felix_socket) as felix:
            await until(lambda: container_id("web-1") in (felix.unreleased() or ()))
        for record in records(node):
            assert record.stat().st_mode & 0o777 == 0o600
        assert node.settings.pending.stat().st_mode & 0o777 == 0o700
        node.etcd.start()
        await node.becomes_clean()
        async with FelixPeer(node.settings.felix_socket) as felix:
            await until(lambda: felix.unreleased() == [])


@pytest.mark.asyncio
async def test_etcd_that_hangs_gives_code_11_in_time(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        result_of(await node.add(pod))
        node.etcd.pause()
        try:
            with hurried(daemon, 5.0, datastore_seconds=2.0, release_seconds=1.0):
                with pod_namespace("late") as late:
                    began = time.monotonic()
                    error = (await node.add(late, "late")).error
                    assert error["code"] == 11
                    assert time.monotonic() - began < HANG
                    assert not has_eth0(late)
                assert (await node.delete(pod)).status == 0
            assert node.links() == []
        finally:
            node.etcd.resume()
        # The transaction that etcd swallowed may be applied now: it is taken back.
        await node.becomes_clean()


@pytest.mark.asyncio
async def test_etcd_dies_while_the_add_waits_for_felix(node: World, pod: Namespace) -> None:
    async with (
        FelixPeer(node.settings.felix_socket) as felix,
        node.daemon() as daemon,
    ):
        await until(lambda: daemon.context.felix.connected)
        felix.hold = True
        adding = asyncio.create_task(node.add(pod, config={"policy_setup_timeout_seconds": 1}))
        # Nothing of the daemon runs between the look that sees the address and the kill.
        await until(lambda: node.in_use() == 1)
        node.etcd.kill()
        with hurried(daemon, 1.0, release_seconds=1.0):
            assert (await adding).error["code"] == 11
        assert not has_eth0(pod)
        assert node.links() == []
        assert records(node)
        node.etcd.start()
        await node.becomes_clean()


@pytest.mark.asyncio
async def test_a_del_remembered_is_replayed_at_the_next_start(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        result_of(await node.add(pod))
        node.etcd.kill()
        with hurried(daemon, 1.0, release_seconds=1.0):
            assert (await node.delete(pod)).status == 0
    node.etcd.start()
    assert node.in_use() == 1
    async with node.daemon(prepare=False):
        await until(lambda: not records(node))
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_del_queued_by_the_executable_is_replayed(node: World, pod: Namespace) -> None:
    async with node.daemon():
        result_of(await node.add(pod))
    assert (await node.delete(pod)).status == 0, "no daemon: the executable queues it"
    assert len(records(node)) == 1
    async with node.daemon(prepare=False):
        await until(lambda: not records(node))
        node.assert_clean()
        assert not has_eth0(pod)


@pytest.mark.asyncio
async def test_a_killed_executable_is_undone(node: World, pod: Namespace) -> None:
    async with (
        FelixPeer(node.settings.felix_socket) as felix,
        node.daemon() as daemon,
    ):
        await until(lambda: daemon.context.felix.connected)
        felix.hold = True
        env = {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": container_id("web-1"),
            "CNI_NETNS": str(pod.path),
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1",
            "CNI_CALICO_SOCKET": str(node.settings.socket),
        }
        process = await asyncio.create_subprocess_exec(
            plugin("calico"), env=env, stdin=asyncio.subprocess.PIPE
        )
        assert process.stdin
        process.stdin.write(json.dumps(network_config(WAITS)).encode())
        process.stdin.close()
        await until(lambda: node.in_use() == 1)
        process.kill()
        await process.wait()
        await node.becomes_clean()


@pytest.mark.asyncio
async def test_a_result_that_cannot_be_delivered_is_undone(node: World, pod: Namespace) -> None:
    async with node.daemon():
        conversation = await channel.connect(node.settings.socket)
        try:
            await conversation.send(protocol.Hello("executable"))
            request = protocol.Request(
                argv0="calico",
                env={
                    "CNI_COMMAND": "ADD",
                    "CNI_CONTAINERID": container_id("web-1"),
                    "CNI_NETNS": str(pod.path),
                    "CNI_IFNAME": "eth0",
                },
                stdin=json.dumps(network_config()),
                deadline=HANG,
                has_netns=True,
            )
            await conversation.send(request, pod.fd)
            hello = await conversation.receive()
            assert hello
            answer = await conversation.receive()
            assert answer
            assert isinstance(answer[0], protocol.Result)
            assert answer[0].exit == 0
            assert node.in_use() == 1
            await conversation.send(protocol.Undelivered("stdout is closed"))
        finally:
            conversation.close()
        await node.becomes_clean()


@pytest.mark.asyncio
@pytest.mark.parametrize("step", ["create", "configure"])
async def test_a_failure_of_the_wiring_is_undone(
    node: World, pod: Namespace, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = wiring if step == "create" else pod_end
    async with node.daemon():
        real = getattr(module, step)

        def failing(*arguments: Any) -> Any:
            real(*arguments)
            raise KernelError(12, f"{step} for a test")

        monkeypatch.setattr(module, step, failing)
        error = (await node.add(pod)).error
        assert f"{step} for a test" in error["msg"]
        node.assert_clean()
        monkeypatch.undo()
        result_of(await node.add(pod))
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_del_that_the_kernel_refuses_is_finished_later(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-21, CNI-22: the rest is done at once; no failure of a replay ends the daemon."""
    async with node.daemon() as daemon:
        result_of(await node.add(pod))
        failures: list[Exception] = [KernelError(16, "unwiring"), RuntimeError("a fault of ours")]
        tries = 0

        def failing(*_: Any, **__: Any) -> bool:
            nonlocal tries
            tries += 1
            raise failures[tries % 2]

        monkeypatch.setattr(veth_removal, "remove_all", failing)
        done = await node.delete(pod)
        assert done.status == 0, done
        assert records(node)
        assert (node.in_use(), node.endpoints()) == (0, {})
        await until(lambda: tries > 3)
        assert node.links(), "still there"
        assert daemon.context.journal.count() == 1
        monkeypatch.undo()
        await until(lambda: not records(node))
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_full_datastore_is_a_del_for_later(node: World, pod: Namespace) -> None:
    """etcd answers, and refuses every write."""
    async with node.daemon():
        result_of(await node.add(pod))
        node.etcd.restart_with("--quota-backend-bytes=1000")
        with pod_namespace("late") as late:
            assert (await node.add(late, "late")).error["code"] == 11
        done = await node.delete(pod)
        assert done.status == 0, done
        assert records(node)
        assert node.links() == []
        assert node.in_use() == 1
        node.etcd.restart_with()
        node.etcd.ctl("alarm", "disarm")
        await node.becomes_clean()


@pytest.mark.asyncio
@pytest.mark.parametrize("restarted", [False, True], ids=["remembered", "restarted"])
async def test_a_torn_handle_is_a_del_for_later(
    node: World, pod: Namespace, restarted: bool
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with node.daemon():
            result_of(await node.add(pod))
            ((name, handle),) = node.handles().items()
            path = f"/calico/ipam/v2/handle/{name}"
            node.etcd.put(path, b'{"handleID":')
            if not restarted:
                done = await node.delete(pod)
        if restarted:
            await stack.enter_async_context(node.daemon(prepare=False))
            done = await node.delete(pod)
        assert done.status == 0, done
        assert records(node)
        assert node.links() == []
        node.etcd.put(path, json.dumps(handle).encode())
        if not restarted:
            await stack.enter_async_context(node.daemon(prepare=False))
        await until(lambda: not records(node))
        node.assert_clean()


@pytest.mark.asyncio
async def test_an_undo_that_meets_a_fault_of_ours_is_finished_later(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-31: felix hears of it all the same, and the journal has it."""
    async with (
        FelixPeer(node.settings.felix_socket) as felix,
        node.daemon() as daemon,
    ):
        await until(lambda: daemon.context.felix.connected)
        felix.error = "refused for a test"
        real = daemon.context.allocator.perform

        async def failing(_: Any) -> Any:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(daemon.context.allocator, "perform", failing)
        error = (await node.add(pod, config=WAITS)).error
        assert "refused for a test" in error["msg"]
        assert records(node)
        await until(felix.retractions)
        monkeypatch.setattr(daemon.context.allocator, "perform", real)
        await node.becomes_clean()


@pytest.mark.asyncio
async def test_a_late_commit_is_taken_back_after_the_del_too(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-19, as a runtime calls: ADD fails, DEL at once, then the swallowed transaction."""
    monkeypatch.setattr(del_queue, "LATE_SECONDS", HANG)
    async with node.daemon() as daemon:
        node.etcd.pause()
        try:
            with hurried(daemon, 5.0, datastore_seconds=1.0, release_seconds=0.5):
                assert (await node.add(pod)).error["code"] == 11
                assert (await node.delete(pod)).status == 0
        finally:
            node.etcd.resume()
        await until(lambda: node.in_use() == 0 and not node.endpoints())
        assert (await node.delete(pod)).status == 0, "one that succeeds at once"
        (record,) = records(node)
        assert json.loads(record.read_bytes())["env"]["CNI_COMMAND"] == "ADD"
        # A datastore that wakes up on a busy machine may carry it out only now.
        await node.becomes_clean()


@pytest.mark.asyncio
async def test_a_failed_second_add_leaves_the_first_intact(node: World, pod: Namespace) -> None:
    """ADD-07."""
    async with node.daemon():
        first = result_of(await node.add(pod))
        again = await node.add(pod, config={"policy_setup_timeout_seconds": 1})
        assert again.error["code"] == 11
        assert node.in_use() == 1
        assert has_eth0(pod)
        assert len(node.endpoints()) == 1
        assert result_of(await node.add(pod)) == first
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_pools_that_cannot_serve_are_named(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        await until(lambda: daemon.context.cluster.in_sync)
        await put_pool(daemon.context.store, "pool4", CIDR4, 28, disabled=True)
        cluster = daemon.context.cluster
        await until(
            lambda: (facts := cluster.facts("node1")) and any(pool.disabled for pool in facts.pools)
        )
        error = (await node.add(pod)).error
        assert f"pool4 ({CIDR4}) is disabled" in error["msg"]
        await daemon.context.store.commit([Delete(ResourceKey("IPPool", "pool4"))])
        await until(lambda: len(daemon.context.cluster.facts("node1").pools) == 1)  # type: ignore[union-attr]
        assert "there is no IPv4 pool" in (await node.add(pod)).error["msg"]
        # A pool made a moment ago is found at once.
        await put_pool(daemon.context.store, "tiny", "10.66.0.0/30", 30)
        for index in range(4):
            with pod_namespace(f"n{index}") as space:
                result_of(await node.add(space, f"web-{index}"))
        full = (await node.add(pod, "web-9")).error
        assert full["code"] == 11
        assert "tiny (10.66.0.0/30)" in full["msg"]
        for index in range(4):
            await node.delete(None, f"web-{index}")
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.cni("DEL-15", "CAL-26", "ERR-12")
async def test_a_datastore_that_is_not_ready(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        key = ResourceKey("ClusterInformation", "default")
        info = ClusterInformation(
            metadata=Metadata(name="default"), spec=ClusterInformationSpec(datastoreReady=False)
        )
        await daemon.context.store.commit([Put(key, info)])
        await until(lambda: daemon.context.cluster._ready is False)
        error = (await node.add(pod)).error
        assert error["code"] == 11
        assert "not ready" in error["msg"]
        assert (await node.delete(pod)).status == 0
        assert records(node), "nothing is written while a migration runs (DEL-15)"
        node.settings.nodename_file.unlink()
        error = (await node.add(pod)).error
        assert "check that calico-node is running" in error["msg"]
        assert (await node.delete(pod)).status == 0, "a DEL needs no node name"
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_silent_client_does_not_hold_up_others(node: World, pod: Namespace) -> None:
    async with node.daemon():
        silent = [await channel.connect(node.settings.socket) for _ in range(70)]
        try:
            result_of(await node.add(pod))
            await node.delete(pod)
        finally:
            for one in silent:
                one.close()
        node.assert_clean()


def test_the_daemon_starts_without_a_datastore(node: World) -> None:
    node.etcd.kill()

    async def story() -> Daemon:
        async with node.daemon(prepare=False, timeout=0.5) as daemon:
            with pod_namespace() as space:
                error = (await node.add(space)).error
                assert error["code"] == 11
            assert node.settings.socket.stat().st_mode & 0o777 == 0o600
            return daemon

    asyncio.run(story())
