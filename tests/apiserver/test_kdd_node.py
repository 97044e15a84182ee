"""A node on the Kubernetes datastore: start-up, felix, and pods by the real executable."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cni.server.daemon import Daemon
from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Selection
from node.settings.environment import settings
from node.start import startup
from node.start.own_node import Keeper
from tests.apiserver import kdd
from tests.cni.world import (
    NODE,
    WAITS,
    World,
    changed,
    node_world,
    pod_namespace,
    result_of,
    start_felix,
)
from tests.felix.in_kernel import BACKENDS, mode
from tests.felix.world import reaches
from tests.support.apiserver import ApiServer
from tests.support.netns import Namespace
from tests.support.patience import HANG, patient, until

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, ApiServer]]:
    """A node, and inside it an API server with Calico's definitions."""
    with node_world(tmp_path_factory.mktemp("node")) as node:
        server = ApiServer(tmp_path_factory.mktemp("api"))
        try:
            server.start()
            kdd.install(server)
            yield node, server
        finally:
            server.stop()


def environment(server: ApiServer) -> dict[str, str]:
    """DATASTORE_TYPE and a kubeconfig: nothing of etcd, and what our manifest allows a node."""
    documents = yaml.load_all((ROOT / "manifests" / "calico.yaml").read_text(), yaml.CSafeLoader)
    (rules,) = (
        one["rules"]
        for one in documents
        if one and (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "calico-node")
    )
    server.namespace("kube-system")
    token = server.account("calico-node", rules, "kube-system")
    cluster = {"server": server.url, "certificate-authority": str(server.authority.cert)}
    kubeconfig = server.folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )
    )
    return {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": str(kubeconfig), "ETCD_ENDPOINTS": ""}


@pytest.mark.promise("F-112")
def test_pods_of_a_node(world: tuple[World, ApiServer]) -> None:
    node, server = world
    environ = environment(server)
    kdd.node(server, NODE, "10.99.1.1")
    asyncio.run(_registered(node, server, environ))
    asyncio.run(_pods(node, server, environ))


def test_a_node_that_was_deleted_and_registers_again_keeps_its_pods(
    world: tuple[World, ApiServer],
) -> None:
    node, server = world
    environ = environment(server)
    kdd.node(server, NODE, "10.99.1.1")
    asyncio.run(_registered(node, server, environ))
    asyncio.run(_deleted(node, server, environ))


async def _deleted(node: World, server: ApiServer, environ: dict[str, str]) -> None:
    store: Any = await connect(apiconfig.from_environment(environ))
    chosen = settings(environ | {"NODENAME": NODE, "IP": "10.99.1.1/24"})
    keeper = Keeper(store, NODE, chosen, makes=False)
    daemon = Daemon(store, NODE, node.settings)
    running = [asyncio.create_task(one.run()) for one in (keeper, daemon)]
    path = f"/api/v1/nodes/{NODE}"

    def blocks() -> int:
        found = server.call("GET", f"{kdd.CRD}/ipamblocks")["items"]
        return sum(index is not None for one in found for index in one["spec"]["allocations"])

    def gone() -> None:
        for plural in ("ipamblocks", "ipamhandles", "blockaffinities"):
            server.delete(f"{kdd.CRD}/{plural}")

    try:
        async with asyncio.timeout(4 * HANG):
            await until(lambda: node.settings.socket.exists())
            kdd.pod(server, "lives", NODE)
            with pod_namespace() as space, pod_namespace() as other:
                had = result_of(await node.add(space, "lives"))["ips"]
                await until(lambda: keeper._last is not None)
                server.delete(path)
                cluster = daemon.context.cluster
                await until(lambda: not cluster.has_node(NODE))
                kdd.pod(server, "new", NODE)
                refused = await node.add(other, "new")
                assert refused.error["code"] == 11
                assert blocks() == 1
                # The kubelet registers again: without any annotation of ours.
                kdd.node(server, NODE, "10.99.1.1")
                await until(lambda: keeper.written == 1 and cluster.has_node(NODE))
                told = server.call("GET", path)["metadata"]["annotations"]
                assert told["projectcalico.org/IPv4Address"] == "10.99.1.1/24"
                assert blocks() == 1
                # What an operator deletes of a pod that runs is put back.
                gone()
                daemon.context.records.comparison_due.set()
                await until(lambda: blocks() == 1)
                fresh = result_of(await node.add(other, "new"))["ips"]
                assert fresh != had
                # Without its Pod nothing is, but nobody else gets its address while it runs.
                server.delete("/api/v1/namespaces/default/pods/lives?gracePeriodSeconds=0")
                gone()
                looked = daemon.restorer.looked
                daemon.context.records.comparison_due.set()
                await until(lambda: daemon.restorer.looked > looked and blocks() == 2)
                handles = f"{kdd.CRD}/ipamhandles"

                def both() -> bool:
                    daemon.context.records.comparison_due.set()
                    return len(server.call("GET", handles)["items"]) == 2

                await until(both)
                assert (await node.delete(other, "new")).status == 0
                assert (await node.delete(space, "lives")).status == 0
                await until(lambda: blocks() == 0)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await store.close()


async def _registered(node: World, server: ApiServer, environ: dict[str, str]) -> None:
    """Start-up writes annotations, cluster information and the pools; twice is as once."""
    ours = environ | {
        "NODENAME": NODE,
        "IP": "10.99.1.1/24",
        "CALICO_IPV4POOL_CIDR": "10.65.0.0/24",
        "CALICO_IPV4POOL_BLOCK_SIZE": "28",
        "CALICO_NODENAME_FILE": str(node.settings.nodename_file),
        "CLUSTER_TYPE": "k8s,bgp",
    }
    await startup.start_up(ours)
    told = server.call("GET", f"/api/v1/nodes/{NODE}")["metadata"]
    assert told["annotations"]["projectcalico.org/IPv4Address"] == "10.99.1.1/24"
    info = server.call("GET", f"{kdd.CRD}/clusterinformations/default")["spec"]
    assert info["clusterType"] == "k8s,bgp,kdd"
    assert info["datastoreReady"] is True
    pools = server.call("GET", f"{kdd.CRD}/ippools")["items"]
    assert "10.65.0.0/24" in [pool["spec"]["cidr"] for pool in pools]
    before = server.call("GET", f"{kdd.CRD}/felixconfigurations")["metadata"]["resourceVersion"]
    await startup.start_up(ours)
    after = server.call("GET", f"/api/v1/nodes/{NODE}")["metadata"]["resourceVersion"]
    assert after == told["resourceVersion"], f"nothing to write, after {before}"


def _annotations(server: ApiServer, name: str) -> dict[str, str]:
    found = server.call("GET", f"/api/v1/namespaces/default/pods/{name}")["metadata"]
    told: dict[str, str] = found.get("annotations", {})
    return told


async def _pods(node: World, server: ApiServer, environ: dict[str, str]) -> None:
    async with _running(node, environ) as store:
        await _one_pod(node, server, store)
        await _many_pods(node, server, store)


@asynccontextmanager
async def _running(node: World, environ: dict[str, str]) -> AsyncIterator[Any]:
    """felix and the CNI daemon of the node; gives a store."""
    felix = start_felix(node, **environ)
    store: Any = await connect(apiconfig.from_environment(environ))
    try:
        async with asyncio.timeout(patient(60)):
            await until(lambda: felix.socket.exists() or felix.process.poll() is not None)
        assert felix.process.poll() is None, (node.folder / "felix.log").read_text()[-3000:]
        chosen = changed(node.settings, felix_socket=felix.socket)
        daemon = Daemon(store, NODE, chosen)
        task = asyncio.create_task(daemon.run())
        try:
            async with asyncio.timeout(patient(30)):
                await until(lambda: node.settings.socket.exists() or task.done())
            yield store
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    finally:
        felix.process.kill()
        felix.process.wait()
        felix.socket.unlink(missing_ok=True)
        await store.close()


QUARANTINE = {
    "metadata": {"name": "quarantine"},
    "spec": {"podSelector": {"matchLabels": {"quarantine": "yes"}}, "policyTypes": ["Ingress"]},
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_label_that_a_running_pod_gets_is_enforced_on_its_own_node(
    world: tuple[World, ApiServer], backend: str
) -> None:
    """STD-1: the pod is selected, not a peer; a new sandbox and a new pod of its name, too."""
    node, server = world
    environ = environment(server)
    kdd.node(server, NODE, "10.99.1.1")
    server.ensure("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", QUARANTINE)
    asyncio.run(_registered(node, server, environ))
    asyncio.run(_relabelled(node, server, environ | mode(backend)))
    assert "never stored" not in (node.folder / "felix.log").read_text()


async def _relabelled(node: World, server: ApiServer, environ: dict[str, str]) -> None:
    async with _running(node, environ):
        with pod_namespace() as client, pod_namespace() as first, pod_namespace() as second:
            for name in ("client", "web-0"):
                kdd.pod(server, name, NODE)
            await _added(node, server, client, "client")
            address = await _added(node, server, first, "web-0", container="1" * 64)
            await _closes_and_opens(server, client, address)
            # A new sandbox of the same pod.
            await node.delete(first, "web-0", container="1" * 64)
            address = await _added(node, server, second, "web-0", container="2" * 64)
            await _closes_and_opens(server, client, address)
            # A new pod of the same name.
            await node.delete(second, "web-0", container="2" * 64)
            server.delete(f"{PODS}/web-0?gracePeriodSeconds=0")
            kdd.pod(server, "web-0", NODE)
            address = await _added(node, server, first, "web-0", container="3" * 64)
            await _closes_and_opens(server, client, address)
            await node.delete(first, "web-0", container="3" * 64)
            await node.delete(client, "client")


def test_a_limit_holds_from_the_start_and_follows_the_annotation(
    world: tuple[World, ApiServer],
) -> None:
    node, server = world
    environ = environment(server)
    kdd.node(server, NODE, "10.99.1.1")
    asyncio.run(_registered(node, server, environ))
    asyncio.run(_limited(node, server, environ))


async def _limited(node: World, server: ApiServer, environ: dict[str, str]) -> None:
    def rate() -> int | None:
        queues = json.loads(node.space.run("tc", "-j", "qdisc", "show"))
        rates = [one["options"]["rate"] * 8 for one in queues if one["kind"] == "tbf"]
        return rates[0] if rates else None

    async with _running(node, environ):
        kdd.pod(server, "slow", NODE)
        _annotate(server, "slow", "8M")
        with pod_namespace() as space:
            await _added(node, server, space, "slow")
            assert rate() == 8_000_000
            for text, bits in (("16M", 16_000_000), (None, None), ("8M", 8_000_000)):
                _annotate(server, "slow", text)
                async with asyncio.timeout(patient(30)):
                    await until(lambda bits=bits: rate() == bits)  # type: ignore[misc]
            await node.delete(space, "slow")
            async with asyncio.timeout(patient(30)):
                await until(lambda: rate() is None)


def _annotate(server: ApiServer, name: str, text: str | None) -> None:
    body = {"metadata": {"annotations": {"qos.projectcalico.org/ingressBandwidth": text}}}
    server.call("PATCH", f"{PODS}/{name}", body, content=MERGE)


async def _added(node: World, server: ApiServer, space: Namespace, name: str, **more: str) -> str:
    """ADD it; returns its address, which the kubelet reports a moment later."""
    done = await node.add(space, name, config=WAITS, **more)
    (told,) = (one["address"] for one in result_of(done)["ips"])
    address: str = told.removesuffix("/32")
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    server.call("PATCH", f"{PODS}/{name}/status", status, content=MERGE)
    return address


async def _closes_and_opens(server: ApiServer, client: Namespace, address: str) -> None:
    """The client reaches the pod but while it has the label."""

    async def comes_to(open_: bool) -> None:
        async with asyncio.timeout(patient(20)):
            while await asyncio.to_thread(reaches, client, address) is not open_:
                pass

    await comes_to(True)
    for label, open_ in (("yes", False), (None, True)):
        body = {"metadata": {"labels": {"quarantine": label}}}
        server.call("PATCH", f"{PODS}/web-0", body, content=MERGE)
        await comes_to(open_)


async def _one_pod(node: World, server: ApiServer, store: Any) -> None:
    kdd.pod(server, "web-1", NODE)
    with pod_namespace() as space:
        done = await node.add(space, "web-1", config=WAITS)
        (address,) = (one["address"] for one in result_of(done)["ips"])
        told = _annotations(server, "web-1")
        assert told["cni.projectcalico.org/podIP"] == address
        assert address.removesuffix("/32") in node.space.run("ip", "route")
        again = await node.add(space, "web-1", config=WAITS)
        assert result_of(again)["ips"] == result_of(done)["ips"]
        gone = await node.delete(space, "web-1")
        assert gone.status == 0, gone
        assert _annotations(server, "web-1")["cni.projectcalico.org/podIP"] == ""
        assert (await node.delete(space, "web-1")).status == 0
    assert (await store.list(Selection("Handle"))).entries == []


async def _many_pods(node: World, server: ApiServer, store: Any) -> None:
    """They share the write of their block."""
    names = [f"many-{number}" for number in range(6)]
    for name in names:
        kdd.pod(server, name, NODE)
    spaces = [pod_namespace() for _ in names]
    entered = [space.__enter__() for space in spaces]
    try:
        added = await asyncio.gather(*map(node.add, entered, names))
        addresses = {one["address"] for done in added for one in result_of(done)["ips"]}
        assert len(addresses) == len(names)
        gone = await asyncio.gather(*map(node.delete, entered, names))
        assert [one.status for one in gone] == [0] * len(names), gone
    finally:
        for space in spaces:
            space.__exit__(None, None, None)
    blocks = (await store.list(Selection("Block"))).entries
    assert all(index is None for one in blocks for index in one.value.allocations)
    assert (await store.list(Selection("Handle"))).entries == []
    assert os.path.exists(node.settings.socket)
