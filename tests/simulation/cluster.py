"""What an operator and Kubernetes do with a simulated store, in words that both stores understand.

`Cluster` writes what is the same in both through the real client of either; `EtcdCluster` and
`ApiCluster` know what differs: where a pod and its endpoint are, and how garbage gets in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from libcalico import names
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.interface import Datastore, Delete, Put, revision_of
from libcalico.datastore.kubernetes.store import KubernetesDatastore
from libcalico.errors import DatastoreError
from libcalico.model import codec
from libcalico.model.keys import AffinityKey, BlockKey, Key, ResourceKey
from tests.simulation.stores.etcd import Database, EtcdStore
from tests.simulation.stores.kubernetes import Api, ApiClient
from tests.simulation.stores.weather import Weather

Log = Callable[[str], None]


class Cluster:
    """One store with all that is in it."""

    kubernetes = False

    def __init__(self, chance: Random, log: Log) -> None:
        self.chance, self.log = chance, log
        self._uids = 0
        self.api = Api(log, self._uid)
        self.operator = self.store(Weather(chance, slow=0.0005))
        self.labels: dict[str, dict[str, str]] = {}

    def _uid(self) -> str:
        self._uids += 1
        return f"00000000-0000-4000-8000-{self._uids:012d}"

    def hear(self, log: Log) -> None:
        """Every change is told to this from now on."""
        self.log = self.api.log = log

    def has(self, key: Key) -> bool:
        """Whether an object is stored."""
        raise NotImplementedError

    def address_of(self, node: str) -> str:
        """The address of a node with its prefix length, as it is stored; empty without a Node."""
        raise NotImplementedError

    def store(self, weather: Weather) -> Datastore:
        """A client of its own."""
        raise NotImplementedError

    def opener(self, weather: Weather) -> Callable[[DatastoreConfig], Any]:
        """What a process calls to have its store."""

        async def opened(config: DatastoreConfig) -> Datastore:
            return self.store(weather)

        return opened

    @property
    def environment(self) -> dict[str, str]:
        """What tells a process of the store."""
        return {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": "http://127.0.0.1:1"}

    async def put(self, key: Key, tree: Mapping[str, Any]) -> int:
        """Write an object, whatever is there; returns its revision."""
        value = codec.decode_value(key, json.dumps(tree).encode())
        return revision_of(await self.operator.commit([Put(key, value)]), key)

    async def resource(self, kind: str, name: str, spec: Mapping[str, Any], **meta: Any) -> int:
        """Write a resource; returns its revision."""
        namespace = meta.get("namespace", "")
        tree = {
            "apiVersion": "projectcalico.org/v3",
            "kind": kind,
            "metadata": {"name": name, **meta},
            "spec": spec,
        }
        return await self.put(ResourceKey(kind, name, namespace), tree)

    async def delete(self, key: Key) -> None:
        """Delete an object; that it is gone already is fine."""
        try:
            await self.operator.commit([Delete(key)])
        except DatastoreError as error:
            self.log(f"operator: not deleted {key}: {error}")

    async def block(self, cidr: str, owner: str) -> None:
        """A block and the claim on it."""
        network = codec_network(cidr)
        tree = {
            "cidr": cidr, "affinity": f"host:{owner}",
            "allocations": [None] * 64, "unallocated": list(range(64)), "attributes": [],
            "sequenceNumber": 1, "sequenceNumberForAllocation": {}, "deleted": False,
        }  # fmt: skip
        await self.put(BlockKey(network), tree)
        await self.put(AffinityKey(owner, network), {"state": "confirmed", "deleted": False})

    async def ready(self) -> None:
        """The store says that it is ready."""
        spec = {"clusterGUID": "g", "clusterType": "k8s,bgp", "datastoreReady": True}
        await self.resource("ClusterInformation", "default", spec)

    async def node(self, name: str, address: str) -> None:
        """A node with its address."""
        raise NotImplementedError

    async def pod(self, name: str, node: str, labels: dict[str, str]) -> None:
        """A pod is scheduled to a node, before it has a container."""
        self.labels[name] = labels
        spec = {"serviceAccountName": "default", "containers": []}
        meta = {"name": name, "namespace": "default", "labels": labels}
        self.api.put(self._pod(name), {"metadata": meta, "spec": spec, "status": {}})
        self.api.patch(self._pod(name), {"spec": {"nodeName": node}})

    def _pod(self, name: str) -> str:
        return f"/api/v1/namespaces/default/pods/{name}"

    def running(self, name: str, address: str) -> None:
        """The kubelet says so of a pod."""
        if self._pod(name) in self.api.objects:
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            self.api.patch(self._pod(name), {"status": status})

    async def relabel(self, name: str, node: str, labels: dict[str, str]) -> None:
        """A pod gets other labels."""
        raise NotImplementedError

    def colour(self, name: str, node: str) -> str:
        """The label `colour` of a pod, as it is stored."""
        raise NotImplementedError

    async def pod_gone(self, name: str, node: str) -> None:
        """A pod is deleted; its kubelet says before that it has ended."""
        self.labels.pop(name, None)
        if self._pod(name) in self.api.objects:
            self.api.patch(self._pod(name), {"status": {"phase": "Succeeded"}})
        self.api.delete(self._pod(name))

    async def corrupt(self, kind: str, name: str) -> None:
        """A resource gets a value that cannot be read."""
        raise NotImplementedError

    def compact(self) -> None:
        """The store forgets its history."""
        raise NotImplementedError

    def endpoint(self, name: str, node: str) -> ResourceKey:
        """The key of a pod's endpoint."""
        found = names.workload_endpoint_name(node, "k8s", name, "eth0")
        return ResourceKey("WorkloadEndpoint", found, "default")


def codec_network(cidr: str) -> Any:
    """A network of text."""
    from ipaddress import ip_network

    return ip_network(cidr)


class EtcdCluster(Cluster):
    """On etcd; endpoints' labels are kept by kube-controllers, which is played here."""

    def __init__(self, chance: Random, log: Log) -> None:
        self.database = Database(log)
        super().__init__(chance, log)

    def store(self, weather: Weather) -> Datastore:
        return EtcdStore(self.database, weather)

    def hear(self, log: Log) -> None:
        super().hear(log)
        self.database.log = log

    def has(self, key: Key) -> bool:
        return self.database.get(key) is not None

    def address_of(self, node: str) -> str:
        raw = self.database.get(ResourceKey("Node", node))
        bgp = json.loads(raw)["spec"].get("bgp") if raw else None
        return str(bgp.get("ipv4Address", "")) if bgp else ""

    async def node(self, name: str, address: str) -> None:
        await self.resource("Node", name, {"bgp": {"ipv4Address": address}})

    async def relabel(self, name: str, node: str, labels: dict[str, str]) -> None:
        self.labels[name] = labels
        key = self.endpoint(name, node)
        raw = self.database.get(key)
        if raw is None:
            return
        tree = json.loads(raw)
        tree["metadata"]["labels"] = {**tree["metadata"].get("labels", {}), **labels}
        self.database.put(key, json.dumps(tree).encode())

    def colour(self, name: str, node: str) -> str:
        raw = self.database.get(self.endpoint(name, node))
        return str(json.loads(raw)["metadata"]["labels"]["colour"]) if raw else ""

    async def corrupt(self, kind: str, name: str) -> None:
        self.database.put(ResourceKey(kind, name), b'{"kind": "' + kind.encode() + b'", "spec": 7}')

    def compact(self) -> None:
        self.database.compact()


class ApiCluster(Cluster):
    """On the Kubernetes API."""

    kubernetes = True
    _CRD = "/apis/crd.projectcalico.org/v1"

    def __init__(self, chance: Random, log: Log) -> None:
        super().__init__(chance, log)
        self.api.put("/api/v1/namespaces/default", {"metadata": {"name": "default"}})
        account = {"metadata": {"name": "default", "namespace": "default"}}
        self.api.put("/api/v1/namespaces/default/serviceaccounts/default", account)

    def has(self, key: Key) -> bool:
        if isinstance(key, AffinityKey):
            name = f"{key.host}-{key.cidr}".replace(".", "-").replace("/", "-")
            return f"{self._CRD}/blockaffinities/{name}" in self.api.objects
        assert isinstance(key, ResourceKey)
        return f"/api/v1/nodes/{key.name}" in self.api.objects

    def address_of(self, node: str) -> str:
        found = self.api.objects.get(f"/api/v1/nodes/{node}") or {"metadata": {}}
        notes = found["metadata"].get("annotations") or {}
        return str(notes.get("projectcalico.org/IPv4Address", ""))

    def store(self, weather: Weather) -> Datastore:
        return KubernetesDatastore(ApiClient(self.api, weather))

    @property
    def environment(self) -> dict[str, str]:
        return {"DATASTORE_TYPE": "kubernetes"}

    async def node(self, name: str, address: str) -> None:
        notes = {"projectcalico.org/IPv4Address": address}
        tree = {"metadata": {"name": name, "annotations": notes}, "spec": {}, "status": {}}
        self.api.put(f"/api/v1/nodes/{name}", tree)

    async def relabel(self, name: str, node: str, labels: dict[str, str]) -> None:
        if self._pod(name) in self.api.objects:
            self.labels[name] = labels
            self.api.patch(self._pod(name), {"metadata": {"labels": labels}})

    def colour(self, name: str, node: str) -> str:
        found = self.api.objects.get(self._pod(name))
        return str(found["metadata"]["labels"]["colour"]) if found else ""

    async def corrupt(self, kind: str, name: str) -> None:
        from libcalico.model.kinds import kind_named

        found = [
            path
            for path in self.api.objects
            if path.startswith(f"{self._CRD}/{kind_named(kind).plural}/") and path.endswith(name)
        ]
        for path in found:
            tree = msgspec.json.decode(msgspec.json.encode(self.api.objects[path]))
            self.api.put(path, {**tree, "spec": {"ingress": 7, "types": "none"}})

    def compact(self) -> None:
        self.api.compact()


def make(kubernetes: bool, chance: Random, log: Log) -> Cluster:
    """A cluster on one of the two stores."""
    return ApiCluster(chance, log) if kubernetes else EtcdCluster(chance, log)
