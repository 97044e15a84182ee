"""Another plugin gives the addresses, run by the real executable: Debian's `host-local`."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from cni.pods.endpoint import EndpointWriter
from cni.pods.pod_source import PodFacts
from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from cni.socket import protocol
from cni.socket.caller import Caller
from cni.socket.channel import Channel
from cni.verbs import add
from cni.verbs.delegation import with_pod_cidr
from cni.verbs.failures import DatastoreLimit
from cni.verbs.sources import DelegatedAddresses
from libcalico.datastore.interface import Put
from libcalico.model import Metadata, Node, NodeStatus, ResourceKey
from tests.cni.world import NODE, World, container_id, hurried, node_world, pod_namespace, result_of
from tests.support.netns import Namespace
from tests.support.patience import HANG, until

PLUGINS = "/usr/lib/cni"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        world.plugins = PLUGINS
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def host_local(world: World, **ipam: Any) -> dict[str, Any]:
    store = world.folder / "networks"
    return {
        "ipam": {"type": "host-local", "subnet": "usePodCidr", "dataDir": str(store)} | ipam,
        "policy": {"type": "k8s"},
    }


def reserved(world: World) -> list[str]:
    """The addresses that host-local holds."""
    folder = world.folder / "networks" / "k8s-pod-network"
    return sorted(path.name for path in folder.glob("*.*.*.*"))


async def give_pod_cidr(world: World, *cidrs: str) -> None:
    async with world.etcd.connect(HANG) as store:
        key = ResourceKey("Node", NODE)
        entry = await store.get(key)
        status = NodeStatus(podCIDRs=list(cidrs))
        value = msgspec.structs.replace(
            entry.value if entry else Node(metadata=Metadata(name=NODE)), status=status
        )
        await store.commit([Put(key, value)])


@pytest.mark.asyncio
@pytest.mark.promise("F-21")
async def test_a_pod_gets_its_address_from_the_nodes_pod_cidr(node: World, pod: Namespace) -> None:
    config = host_local(node, routes=[{"dst": "10.0.0.0/8"}])
    async with node.daemon() as daemon:
        await give_pod_cidr(node, "10.244.7.0/24")
        await until(lambda: daemon.context.cluster.pod_cidrs(NODE))
        result = result_of(await node.add(pod, config=config))
        assert result["ips"] == [{"address": "10.244.7.2/32", "interface": 1}]
        assert result["routes"] == [{"dst": "10.0.0.0/8"}]
        assert reserved(node) == ["10.244.7.2"]
        routes = json.loads(pod.run("ip", "-j", "route"))
        assert {"10.0.0.0/8", "169.254.1.1"} == {route["dst"] for route in routes}
        (endpoint,) = node.endpoints().values()
        assert endpoint["spec"]["ipNetworks"] == ["10.244.7.2/32"]
        assert node.in_use() == 0, "no block of ours is touched"

        again = result_of(await node.add(pod, config=config))
        assert len(reserved(node)) == 1, "a repeated ADD holds one address"
        assert again["ips"][0]["address"].removesuffix("/32") == reserved(node)[0]

        gone = await node.delete(pod, config=config)
        assert gone.status == 0
        assert reserved(node) == []
        node.assert_clean()
        assert (await node.delete(pod, config=config)).status == 0


@pytest.mark.asyncio
async def test_a_node_without_pod_cidr_says_so(node: World, pod: Namespace) -> None:
    async with node.daemon():
        error = json.loads((await node.add(pod, config=host_local(node))).stdout)
        assert error["code"] == 11
        assert "podCIDR" in error["msg"]
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_failed_add_gives_the_address_back(node: World, pod: Namespace) -> None:
    config = host_local(node, subnet="10.244.8.0/24")
    async with node.daemon():
        pod.run("ip", "link", "add", "eth0", "type", "bridge")
        failed = await node.add(pod, config=config)
        assert failed.status == 1
        assert reserved(node) == []

        pod.run("ip", "link", "del", "eth0")
        async with node.daemon(prepare=False) as broken:
            node.etcd.pause()
            try:
                with hurried(broken, 0.5, datastore_seconds=2.0, release_seconds=1.0):
                    failed = await node.add(pod, config=config)
            finally:
                node.etcd.resume()
            assert failed.status == 1, broken
        assert reserved(node) == []


@pytest.mark.asyncio
async def test_a_delegate_does_not_run_on_the_datastores_time(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own limit is 30 s, and the datastore's 10."""
    limited: list[object] = []
    plugins: list[tuple[str, bool]] = []
    run = Caller.run

    class Datastore(DatastoreLimit):
        async def __aenter__(self) -> None:
            limited.append(self)
            await super().__aenter__()

        async def __aexit__(self, *error: Any) -> None:
            limited.remove(self)
            await super().__aexit__(*error)

    async def watched(caller: Caller, message: protocol.Exec) -> protocol.ExecResult:
        plugins.append((message.env["CNI_COMMAND"], bool(limited)))
        return await run(caller, message)

    monkeypatch.setattr(add, "DatastoreLimit", Datastore)
    monkeypatch.setattr(Caller, "run", watched)
    async with node.daemon():
        config = host_local(node, subnet="10.244.8.0/24")
        result_of(await node.add(pod, config=config))
        result_of(await node.add(pod, config=config))
    assert plugins == [("ADD", False), ("DEL", False), ("ADD", False)]


class Slow:
    """A delegate whose ADD does not end."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.runs = asyncio.Event()

    async def add(self) -> None:
        self.calls.append("ADD")
        self.runs.set()
        await asyncio.Event().wait()

    async def delete(self) -> None:
        self.calls.append("DEL")


@pytest.mark.asyncio
async def test_a_delegate_whose_answer_was_not_waited_for_gets_a_del() -> None:
    """CNI-60, DLG-15."""
    slow: Any = Slow()
    attachment = Attachment(NODE, "net", "c", "eth0", "default", "web")
    writer = EndpointWriter(attachment, PodFacts(), "02:00:00:00:00:01")
    source = DelegatedAddresses(cast(Any, None), attachment, writer, slow)
    task = asyncio.create_task(source.ask())
    await slow.runs.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await source.undo()
    assert slow.calls == ["ADD", "DEL"]


@pytest.mark.asyncio
async def test_the_delegates_error_reaches_the_runtime(node: World, pod: Namespace) -> None:
    config = host_local(node, subnet="10.244.8.1/24")  # host bits: host-local refuses
    async with node.daemon():
        error = json.loads((await node.add(pod, config=config)).stdout)
        assert "10.244.8" in error["msg"] + error.get("details", "")
        missing = json.loads(
            (await node.add(pod, config={"ipam": {"type": "no-such-plugin"}})).stdout
        )
        assert 'failed to find plugin "no-such-plugin"' in missing["msg"]
        node.assert_clean()


@pytest.mark.asyncio
async def test_check_asks_the_delegate_too(node: World, pod: Namespace) -> None:
    config = host_local(node, subnet="10.244.9.0/24")
    async with node.daemon(check_seconds=0.2):
        result = result_of(await node.add(pod, config=config))
        # No felix: only the host's route and the word of felix may be missing.
        (taken,) = reserved(node)
        (node.folder / "networks" / "k8s-pod-network" / taken).unlink()
        error = json.loads((await node.check(pod, result, config=config)).stdout)
        assert container_id("web-1") in error["msg"] + error.get("details", ""), error


def test_only_the_words_are_replaced() -> None:
    document = {
        "name": "net",
        "ipam": {
            "type": "host-local",
            "subnet": "UsePodCIDR",
            "ranges": [[{"subnet": "usePodCidrIPv6"}, {"subnet": "10.1.0.0/16"}]],
        },
    }
    changed = with_pod_cidr(document, {4: "10.2.0.0/24", 6: "fd00::/64"}.__getitem__)
    assert changed == {
        "name": "net",
        "ipam": {
            "type": "host-local",
            "subnet": "10.2.0.0/24",
            "ranges": [[{"subnet": "fd00::/64"}, {"subnet": "10.1.0.0/16"}]],
        },
    }
    assert document["ipam"]["subnet"] == "UsePodCIDR"  # type: ignore[index]


@pytest.mark.asyncio
async def test_an_executable_that_reads_nothing_does_not_hold_a_call() -> None:
    """CNI-41: the time of a plugin's run counts from its sending."""
    here, there = socket.socketpair(socket.AF_UNIX)
    channel = Channel(here)
    try:
        stdin = json.dumps({"name": "n" * 1_900_000})
        message = protocol.Exec(plugin="host-local", env={}, stdin=stdin, timeout=0.1)
        async with asyncio.timeout(HANG):
            with pytest.raises(CNIError, match="could not be run") as found:
                await Caller(channel).run(message)
        assert found.value.code == Code.TRY_AGAIN_LATER
    finally:
        channel.close()
        there.close()


def test_host_local_is_there() -> None:
    assert subprocess.run([f"{PLUGINS}/host-local"], capture_output=True).returncode == 0
