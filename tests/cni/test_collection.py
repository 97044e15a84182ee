"""The daemon collects what its dead pods left, and nothing else, on a real etcd and kernel."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import cni.server.collection
from cni.node.daemon_context import DaemonContext
from cni.server.collection import Collection
from cni.server.daemon import settings_from
from cni.server.server import Server
from ipam.collector.collector import Collector
from ipam.collector.leak_evidence import LeakEvidence
from tests.cni.world import NETWORK, NODE, World, container_id, node_world, pod_namespace, result_of
from tests.support.patience import patient, until

GAP = 0.3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


def address_of(node: World, name: str) -> str:
    found = next(e for n, e in node.endpoints().items() if name.replace("-", "--") in n)
    return str(found["spec"]["ipNetworks"][0]).partition("/")[0]


@pytest.mark.asyncio
@pytest.mark.promise("F-28", "PAIN-1", "PAIN-2")
async def test_a_reboot_leaks_nothing_and_living_pods_keep_their_addresses(
    node: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pod_namespace("lives") as lives:
        async with node.daemon(collect_gap=GAP):
            result_of(await node.add(lives, "lives-1"))
            with pod_namespace("dies") as dies:
                result_of(await node.add(dies, "dies-1"))
                lost = address_of(node, "dies-1")
        # The namespace is gone and its cable with it; no DEL ever comes.
        await until(lambda: len(node.links()) == 1)
        assert node.in_use() == 2
        with caplog.at_level(logging.WARNING, "cni.server.collection"):
            async with node.daemon(prepare=False, collect_gap=GAP):
                # It is told once the datastore has answered, which shows it earlier.
                await until(lambda: f"address {lost} collected: host interface" in caplog.text)
                await asyncio.sleep(3 * GAP)
        assert len(node.endpoints()) == len(node.handles()) == node.in_use() == 1
        async with node.daemon(prepare=False, collect_gap=GAP):
            assert (await node.delete(lives, "lives-1")).status == 0
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.promise("F-28", "PAIN-1")
async def test_a_daemon_killed_in_a_del_whose_record_is_lost(node: World) -> None:
    async with node.daemon():
        pass
    with pod_namespace("pod") as pod:
        settings = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in dataclasses.asdict(node.settings).items()
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.cni.mortal",
            json.dumps(settings),
            node.etcd.endpoint,
            "after:remove",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=Path(__file__).parent.parent.parent,
            env={"PATH": os.environ["PATH"]},
        )
        try:
            assert process.stdout
            assert await asyncio.wait_for(process.stdout.readline(), patient(20)) == b"ready\n"
            result_of(await node.add(pod))
            await node.delete(pod)
            assert await process.wait() == -9
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        for record in node.settings.pending.glob("*"):
            record.unlink()
        assert node.links() == []
        assert node.in_use() == 1
        async with node.daemon(prepare=False, collect_gap=GAP):
            await until(lambda: node.in_use() == 0)
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-2")
async def test_a_pod_that_comes_back_between_the_looks_is_unharmed(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, looks = asyncio.Event(), asyncio.Event(), 0
    real = Collection._observe

    async def observe(self: Collection) -> LeakEvidence:
        nonlocal looks
        if looks == 1:
            first.set()
            await second.wait()
        looks += 1
        return await real(self)

    monkeypatch.setattr(Collection, "_observe", observe)
    with pod_namespace("pod") as pod:
        async with node.daemon():
            result_of(await node.add(pod))
        name = node.links()[0]
        node.space.run("ip", "link", "delete", name)
        looks = 0
        async with node.daemon(prepare=False, collect_gap=GAP) as daemon:
            await first.wait()
            assert node.in_use() == 1
            result_of(await node.add(pod))
            second.set()
            await until(lambda: looks == 2)
            daemon.collection.collect(NETWORK, [container_id("web-1")])
            await until(lambda: not daemon.collection._asked)
            assert node.in_use() == 1
            assert node.links() == [name]
            assert (await node.delete(pod)).status == 0
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.promise("F-28")
async def test_the_runtimes_list_proves_the_death_of_what_has_no_endpoint(node: World) -> None:
    with pod_namespace("pod") as pod:
        async with node.daemon(collect_gap=GAP):
            result_of(await node.add(pod))
            # As another main plugin with calico-ipam leaves it: addresses, and no endpoint.
            node.etcd.ctl("del", "--prefix", "/calico/resources/v3/projectcalico.org/workloadendp")

            async def gc(**keys: object) -> None:
                config = {"cniVersion": "1.1.0", **keys}
                assert (await node.cni("GC", None, "", config=config)).status == 0

            valid = [{"containerID": container_id("web-1"), "ifname": "eth0"}]
            await gc()
            await gc(name="another-network", **{"cni.dev/valid-attachments": []})
            await gc(**{"cni.dev/valid-attachments": valid})
            await asyncio.sleep(4 * GAP)
            assert node.in_use() == 1
            await gc(**{"cni.dev/valid-attachments": []})
            await until(lambda: node.in_use() == 0)
            assert node.handles() == {}


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-2")
async def test_a_list_that_waited_says_nothing_about_a_container_that_came_since(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    answers = False

    def links() -> frozenset[str]:
        seen.append(answers)
        if not answers:
            raise OSError("not now")
        return frozenset(node.links())

    monkeypatch.setattr(cni.server.collection, "_interfaces", links)
    with pod_namespace("old") as old, pod_namespace("new") as new:
        async with node.daemon(collect_gap=GAP) as daemon:
            result_of(await node.add(old, "old-1"))
            daemon.collection.collect(NETWORK, ())
            await until(lambda: len(seen) > 1)
            result_of(await node.add(new, "new-1"))
            # As under another main plugin: addresses, and no endpoint.
            node.etcd.ctl("del", "--prefix", "/calico/resources/v3/projectcalico.org/workloadendp")
            answers = True
            await until(lambda: node.in_use() == 1)
            await asyncio.sleep(3 * GAP)
            assert [handle for handle in node.handles() if container_id("new-1") in handle]
            # The next list knows it, or its death.
            daemon.collection.collect(NETWORK, ())
            await until(lambda: node.in_use() == 0)


def test_the_environment_names_the_runtimes_socket() -> None:
    assert settings_from({}).cri_socket is None
    told = settings_from({"CALICO_CNI_CRI_SOCKET": "unix:///run/containerd/containerd.sock"})
    assert told.cri_socket == Path("/run/containerd/containerd.sock")


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-5")
async def test_a_claim_that_an_operator_deletes_is_back_at_once(
    node: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a call: the daemon watches its claims. Without a daemon: at its next start."""
    claims = "/calico/ipam/v2/host/"
    with pod_namespace("lives") as lives:
        async with node.daemon() as daemon:
            result_of(await node.add(lives, "lives-1"))
            await until(lambda: daemon.context.cluster.in_sync)
            (key,) = node.etcd.keys(claims)
            stored = node.etcd.get(key)
            node.etcd.ctl("del", key)
            # The datastore shows it before the daemon has read the answer.
            await until(lambda: daemon.context.allocator.restored == 1)
            assert node.etcd.get(key) == stored
        node.etcd.ctl("del", key)
        async with node.daemon(prepare=False) as daemon:
            await until(lambda: daemon.context.allocator.restored == 1)
            assert node.etcd.get(key) == stored
            await node.delete(lives, "lives-1")
    assert caplog.text.count("the claim was deleted while addresses of the block are in use") == 2


@pytest.mark.asyncio
async def test_a_sweep_that_meets_what_it_cannot_read_ends_no_daemon(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stumble(*_: object) -> None:
        raise ValueError("'10.0.0.300' is no address")

    context = SimpleNamespace(
        settings=SimpleNamespace(cri_socket=""),
        store=None,
        node="n1",
        cluster=SimpleNamespace(locked=False),
    )
    server = SimpleNamespace(dispatcher=SimpleNamespace(), container_lock=None)
    collection = Collection(cast(DaemonContext, context), cast(Server, server))
    monkeypatch.setattr(Collector, "sweep", stumble)
    assert await collection._sweep(None) is False
    assert "'10.0.0.300' is no address" in caplog.text


@pytest.mark.asyncio
async def test_pools_and_endpoints_that_cannot_be_used_stop_no_sweep(node: World) -> None:
    resources = "/calico/resources/v3/projectcalico.org/"
    pool = {"kind": "IPPool", "metadata": {"name": "bad"}, "spec": {"cidr": "10.0.0.0/99"}}
    name = f"{NODE}-k8s-other-eth0"
    spec: dict[str, object] = {
        "orchestrator": "k8s",
        "node": NODE,
        "pod": "other",
        "endpoint": "eth0",
    }
    spec |= {"containerID": "c", "interfaceName": "cali1", "ipNetworks": ["10.0.0.300/32"]}
    endpoint = {
        "kind": "WorkloadEndpoint",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    with pod_namespace("pod") as pod:
        async with node.daemon(collect_gap=GAP):
            result_of(await node.add(pod))
    await until(lambda: node.links() == [])
    node.etcd.put(f"{resources}ippools/bad", json.dumps(pool))
    node.etcd.put(f"{resources}workloadendpoints/default/{name}", json.dumps(endpoint))
    async with node.daemon(prepare=False, collect_gap=GAP):
        await until(lambda: node.in_use() == 0)
