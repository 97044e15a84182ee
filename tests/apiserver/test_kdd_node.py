"""A node on the Kubernetes datastore: start-up, felix, and pods by the real executable."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cni.daemon import Daemon
from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Selection
from node import startup
from tests.apiserver import kdd
from tests.cni.world import NODE, World, changed, node_world, pod_namespace, result_of, start_felix
from tests.support.apiserver import ApiServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[World, ApiServer]]:
    """A node, and inside it an API server with Calico's definitions."""
    with node_world(tmp_path) as node:
        server = ApiServer(tmp_path / "api")
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
    felix = start_felix(node, **environ)
    store: Any = await connect(apiconfig.from_environment(environ))
    try:
        async with asyncio.timeout(60):
            await kdd.until(lambda: felix.socket.exists() or felix.process.poll() is not None)
        assert felix.process.poll() is None, (node.folder / "felix.log").read_text()[-3000:]
        chosen = changed(node.settings, felix_socket=felix.socket)
        daemon = Daemon(store, NODE, chosen)
        task = asyncio.create_task(daemon.run())
        try:
            async with asyncio.timeout(30):
                await kdd.until(lambda: node.settings.socket.exists() or task.done())
            await _one_pod(node, server, store)
            await _many_pods(node, server, store)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    finally:
        felix.process.kill()
        felix.process.wait()
        await store.close()


async def _one_pod(node: World, server: ApiServer, store: Any) -> None:
    kdd.pod(server, "web-1", NODE)
    with pod_namespace() as space:
        done = await node.add(space, "web-1", config={"policy_setup_timeout_seconds": 20})
        (address,) = (one["address"] for one in result_of(done)["ips"])
        told = _annotations(server, "web-1")
        assert told["cni.projectcalico.org/podIP"] == address
        assert address.removesuffix("/32") in node.space.run("ip", "route")
        again = await node.add(space, "web-1", config={"policy_setup_timeout_seconds": 20})
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
