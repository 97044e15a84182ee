"""The documented network configurations, run verbatim: a real API server, etcd, plugins, a pod.

The node is a network namespace that has the documents' addresses: 192.0.2.1 (etcd) and
10.233.0.1:443 (the Kubernetes API). Files of `/etc/cni/net.d` are where a container of ours would
have them, below `/host`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from cni.client import Attachment, Client, Network, PluginFailed, parse, parse_single
from cni.request.result_encoding import ResultDocument
from cni.server.daemon import Daemon
from libcalico.apiconfig import ETCD, KUBERNETES, DatastoreConfig
from libcalico.datastore.interface import Put, Selection
from libcalico.model import Metadata, Node, NodeStatus, ResourceKey
from tests.apiserver.test_pods import READ_PODS, path
from tests.cni.executable import plugin
from tests.cni.world import NODE, FelixPeer, World, container_id, node_world, pod_namespace
from tests.support.apiserver import ApiServer
from tests.support.certificates import Authority
from tests.support.netns import Namespace
from tests.support.patience import patient, until

pytestmark = pytest.mark.asyncio
FIRST_GENERATION = (
    '{"name":"k8s-pod-network","cniVersion":"0.1.0","type":"calico",'
    '"etcd_endpoints":"https://192.0.2.1:2379",'
    '"etcd_key_file":"/etc/cni/net.d/calico-tls/etcd-key",'
    '"etcd_cert_file":"/etc/cni/net.d/calico-tls/etcd-cert",'
    '"etcd_ca_cert_file":"/etc/cni/net.d/calico-tls/etcd-ca",'
    '"log_level":"info","mtu":1500,"ipam":{"type":"calico-ipam"},'
    '"policy":{"type":"k8s","k8s_api_root":"https://10.233.0.1:443",'
    '"k8s_auth_token":"GENERATED"},'
    '"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}}'
)
LIST = (
    '{"name":"k8s-pod-network","cniVersion":"0.3.0","plugins":['
    '{"type":"calico","log_level":"info","datastore_type":"kubernetes","nodename":"127.0.0.1",'
    '"ipam":{"type":"host-local","subnet":"usePodCidr"},"policy":{"type":"k8s"},'
    '"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}},'
    '{"type":"portmap","snat":true,"capabilities":{"portMappings":true}},'
    '{"type":"bandwidth","capabilities":{"bandwidth":true}}]}'
)
PLUGINS = Path("/usr/lib/cni")


class Cluster:
    """The node, and an API server that runs on it."""

    def __init__(self, node: World, api: ApiServer) -> None:
        self.node, self.api = node, api
        self.host = node.folder / "host"
        self.net_d = self.host / "etc/cni/net.d"
        tls = self.net_d / "calico-tls"
        tls.mkdir(parents=True)
        authority = Authority(node.folder / "tls", "ca")
        pair = authority.issue("cni", names=(), usage="clientAuth")
        for name, file in (("key", pair.key), ("cert", pair.cert), ("ca", authority.cert)):
            (tls / f"etcd-{name}").write_bytes(file.read_bytes())
        self.token = api.account("calico-cni", READ_PODS)

    def write_kubeconfig(self, token: str, server: str = "") -> None:
        """As Calico's installer does; the API's certificate has another name than its address."""
        authority = self.net_d / "api-ca"
        authority.write_bytes(self.api.ca)
        cluster = {
            "server": server or self.api.url,
            "certificate-authority": str(authority),
            "tls-server-name": "kubernetes.default.svc",
        }
        tree = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "local", "user": "calico"}}],
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "calico", "user": {"token": token}}],
        }
        (self.net_d / "calico-kubeconfig").write_text(yaml.safe_dump(tree))

    def pod(self, name: str, node: str) -> None:
        container = {"name": "c", "image": "none"}
        body = {
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [container]},
        }
        self.api.call("POST", path("default"), body)

    @asynccontextmanager
    async def daemon(
        self, node: str, access: DatastoreConfig, **more: Any
    ) -> AsyncIterator[Daemon]:
        """Serving as `node`, connected as `access` says."""
        more["access"] = access
        async with (
            FelixPeer(self.node.settings.felix_socket),
            self.node.daemon(node=node, more=more, host=self.host) as running,
        ):
            status = NodeStatus(podCIDRs=["10.244.7.0/24"])
            value = Node(metadata=Metadata(name=node), status=status)
            await running.context.store.commit([Put(ResourceKey("Node", node), value)])
            await until(lambda: running.context.cluster.pod_cidrs(node))
            yield running

    def client(self) -> Client:
        """A runtime; whatever plugins write into /var/lib/cni stays with this test."""
        private, programs = self.node.folder / "var-lib-cni", self.node.folder / "programs"
        for folder in (private, programs):
            folder.mkdir(exist_ok=True)
        wrapper = programs / "calico"
        wrapper.write_text(
            "#!/bin/sh\nmkdir -p /var/lib/cni\n"
            f"exec unshare -m sh -c 'mount --bind {private} /var/lib/cni && exec {plugin()}'\n"
        )
        wrapper.chmod(0o755)
        environ = {
            "PATH": os.environ["PATH"],
            "CNI_CALICO_SOCKET": str(self.node.settings.socket),
            "CNI_CALICO_PENDING": str(self.node.settings.pending),
        }
        return Client([programs, PLUGINS], self.node.folder / "cache", environ, 60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with node_world(tmp_path_factory.mktemp("node")) as node:
        for address in ("192.0.2.1/32", "10.233.0.1/32"):
            node.space.run("ip", "address", "add", address, "dev", "lo")
        api = ApiServer(node.folder / "api", ["--bind-address=0.0.0.0"], port=443)
        try:
            yield Cluster(node, api.start())
        finally:
            api.stop()


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def joining(pod: Namespace, name: str) -> Attachment:
    args = (
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", "default"),
        ("K8S_POD_NAME", name),
        ("K8S_POD_INFRA_CONTAINER_ID", container_id(name)),
    )
    return Attachment(container_id(name), str(pod.path), "eth0", args)


async def add(cluster: Cluster, network: Network, to: Attachment) -> ResultDocument:
    return await asyncio.to_thread(cluster.client().add, network, to)


@pytest.mark.promise("M-152", "M-157", "M-158", "M-159", "M-160", "M-161")
async def test_the_first_generation_configuration_runs_verbatim(
    cluster: Cluster, pod: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # Address and token of `policy` win over these, as in Calico.
    cluster.write_kubeconfig("no-token", "https://127.0.0.1:1")
    cluster.pod("first", NODE)
    network = parse_single(FIRST_GENERATION.replace("GENERATED", cluster.token).encode())
    access = DatastoreConfig(ETCD, etcd_endpoints="https://192.0.2.1:2379")
    to = joining(pod, "first")
    async with cluster.daemon(NODE, access):
        result = await add(cluster, network, to)
        assert result["cniVersion"] == "0.1.0"
        address = result["ip4"]["ip"]
        assert address.removesuffix("/32") in pod.run("ip", "address", "show", "eth0")
        assert "mtu 1500" in pod.run("ip", "link", "show", "eth0")
        endpoint = cluster.node.endpoints()["node1-k8s-first-eth0"]
        assert endpoint["metadata"]["labels"]["app"] == "web", "asked of the API"
        assert endpoint["spec"]["profiles"] == ["kns.default", "ksa.default.default"]
        await asyncio.to_thread(cluster.client().delete, network, to)
        cluster.node.assert_clean()
        status = (cluster.node.settings.status / "cni.json").read_text()
    assert cluster.token not in caplog.text + status + json.dumps(result)


@pytest.mark.promise("M-161", "M-154")
async def test_files_of_the_configuration_that_are_missing_are_named(
    cluster: Cluster, pod: Namespace
) -> None:
    cluster.pod("second", NODE)
    access = DatastoreConfig(ETCD, etcd_endpoints="https://192.0.2.1:2379")
    text = FIRST_GENERATION.replace("GENERATED", cluster.token)
    async with cluster.daemon(NODE, access):
        for name in ("calico-kubeconfig", "calico-tls/etcd-ca"):
            away = text.replace(f"/{name}", "/gone")
            with pytest.raises(PluginFailed) as caught:
                await add(cluster, parse_single(away.encode()), joining(pod, "second"))
            assert caught.value.error.code == 7
            assert "/etc/cni/net.d/gone" in caught.value.error.msg
            assert cluster.token not in str(caught.value)
        cluster.node.assert_clean()


@pytest.mark.promise("M-91", "M-92", "M-161")
async def test_the_list_of_version_0_3_0_runs_verbatim(cluster: Cluster, pod: Namespace) -> None:
    """calico with host-local and usePodCidr, then portmap and bandwidth; nodename an address.

    The list names the Kubernetes datastore, and so does this daemon; what it works on here is
    the interface of the datastore, which is the same.
    """
    cluster.write_kubeconfig(cluster.token)
    cluster.pod("third", "127.0.0.1")
    network, to = parse(LIST.encode()), joining(pod, "third")
    async with cluster.daemon("127.0.0.1", DatastoreConfig(KUBERNETES)):
        result = await add(cluster, network, to)
        assert result["cniVersion"] == "0.3.0"
        assert result["ips"][0]["address"].startswith("10.244.7.")
        endpoint = cluster.node.endpoints()["127.0.0.1-k8s-third-eth0"]
        assert endpoint["metadata"]["labels"]["app"] == "web"
        held = [file.name for file in (cluster.node.folder / "var-lib-cni").rglob("10.244.7.*")]
        assert held == [result["ips"][0]["address"].partition("/")[0]]
        await asyncio.to_thread(cluster.client().delete, network, to)
        cluster.node.assert_clean()
        assert not list((cluster.node.folder / "var-lib-cni").rglob("10.244.7.*"))


async def test_a_list_for_another_datastore_is_refused(cluster: Cluster, pod: Namespace) -> None:
    access = DatastoreConfig(ETCD, etcd_endpoints="https://192.0.2.1:2379")
    async with cluster.daemon("127.0.0.1", access):
        with pytest.raises(PluginFailed) as caught:
            await add(cluster, parse(LIST.encode()), joining(pod, "fourth"))
        assert caught.value.error.code == 7
        for part in ("datastore_type", "'kubernetes'", "etcdv3 at https://192.0.2.1:2379"):
            assert part in caught.value.error.msg


async def test_a_refused_add_is_told_on_its_pod_and_full_pools_on_the_node(
    cluster: Cluster, pod: Namespace
) -> None:
    """Whatever the runtime makes of the refusal; what it repeats is counted."""
    rules = [*READ_PODS, {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]
    token = cluster.api.account("calico-node", rules)
    cluster.pod("third", NODE)
    network = parse_single(FIRST_GENERATION.replace("GENERATED", token).encode())
    access = DatastoreConfig(ETCD, etcd_endpoints="https://192.0.2.1:2379")

    def told() -> list[tuple[str, str, str]]:
        listed = cluster.api.call("GET", "/api/v1/namespaces/default/events")["items"]
        return sorted(
            (one["involvedObject"]["kind"], one["involvedObject"]["name"], one["reason"])
            for one in listed
            # The API server tells of its own Service, sooner or later.
            if one["reportingComponent"] == "calico-cni"
        )

    async with cluster.daemon(NODE, access, kubernetes=cluster.api.source(token)) as running:
        store = running.context.store
        for entry in (await store.list(Selection("IPPool"))).entries:
            spec = replace(entry.value.spec, disabled=True)
            await store.commit([Put(entry.key, replace(entry.value, spec=spec), entry.revision)])

        def all_disabled() -> bool:
            facts = running.context.cluster.facts(NODE)
            return facts is not None and all(one.disabled for one in facts.pools)

        await until(all_disabled)
        for _ in range(2):
            with pytest.raises(PluginFailed):
                await add(cluster, network, joining(pod, "third"))
        async with asyncio.timeout(patient(60)):
            while len(found := await asyncio.to_thread(told)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert found == [("Node", NODE, "CalicoNoAddress"), ("Pod", "third", "CalicoNoAddress")]
