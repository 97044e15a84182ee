"""The nine pods of tests/netpol on the Kubernetes datastore: a kube-apiserver is the API.

The API server runs on the test's own loopback, and a relay leads to it from each node's. Agents
have the rights that our manifest gives calico-node. The test is the scheduler and the kubelets: a
Pod is created with its node, the CNI call gets its uid, and its address is reported afterwards.
Nobody converts anything: NetworkPolicies, namespaces and labels are changed in the API alone.

Policies, pods and namespaces come to felix by watches of their own, so the fence hangs on all
three: its policy opens a new port for pods with this turn's label in a namespace with this turn's
label.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from lab import agents, cluster
from lab.cluster import Lab
from lab.machine import Machine
from lab.pods import Pod
from libcalico.conversion import NodeAddresses
from manifests.variants import CRDS
from tests.apiserver import kdd
from tests.lab_scenarios.relay import relayed
from tests.netpol.case import policy
from tests.netpol.world import (
    FENCE,
    NODES,
    PODS,
    POLICY,
    POOL,
    Document,
    World,
    add_pod,
    documents,
    inhabited,
    living,
    pod_yaml,
)
from tests.netpol_cluster.houses import LINUX
from tests.support import crds
from tests.support.apiserver import ADMIN, ApiRefused, ApiServer

ROOT = Path(__file__).parents[2]
MERGE = "application/merge-patch+json"
KUBECONFIG, ADMINS = "/etc/calico/kubeconfig", "/etc/calico/admin.kubeconfig"
AUTHORITY = "/etc/calico/kube-ca.pem"
SETTINGS = {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": KUBECONFIG, "ETCD_ENDPOINTS": ""}
TURN = "turn"
CLUSTER_POLICIES = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"


@dataclass
class KubernetesWorld(World):
    """The lab with its pods, whose objects are the API's."""

    api: ApiServer = field(kw_only=True)
    turn: int = 0

    def store(self, changed: Sequence[Document]) -> None:
        """Create or change objects; of a pod that runs its labels."""
        for document in changed:
            if document["kind"] == POLICY:
                written(self.api, document)
                continue
            if document["kind"] == "Namespace":
                self.have_namespace(document["metadata"]["name"])
            labelled(self.api, document)

    def drop(self, gone: Sequence[Document]) -> None:
        """Delete policies or namespaces."""
        for document in gone:
            meta = document["metadata"]
            if document["kind"] == POLICY:
                self.api.delete(f"{policies(meta['namespace'])}/{meta['name']}")
            else:
                delete_namespace(self.api, meta["name"])

    def store_cluster(self, changed: Sequence[Document], nodes: Sequence[NodeAddresses]) -> None:
        """Which nodes a rule means is what felix finds out."""
        for document in changed:
            written(self.api, document)

    def drop_cluster(self, gone: Sequence[Document], nodes: Sequence[NodeAddresses]) -> None:
        """Of the API."""
        for document in gone:
            self.api.delete(f"{CLUSTER_POLICIES}/{document['metadata']['name']}")

    def have_namespace(self, name: str) -> None:
        """With its service account; what is there stays."""
        have_namespace(self.api, name)

    def add(self, title: str, node: str) -> Pod:
        """A pod of the API comes by CNI."""
        return start_pod(self.api, self.lab, title, node)

    def stop(self, title: str) -> None:
        """A pod goes by CNI, and from the API."""
        super().stop(title)
        space, _, name = title.partition("/")
        self.api.delete(f"/api/v1/namespaces/{space}/pods/{name}?gracePeriodSeconds=0")

    def fence(self) -> None:
        """Give the fence its next turn, and wait for it on every node."""
        self._fence, self.turn = 161 - self._fence, self.turn + 1
        turn = {TURN: str(self.turn)}
        for title in FENCE:
            (pod,) = documents(pod_yaml(*title.split("/")))
            pod["metadata"]["labels"] |= turn
            labelled(self.api, pod)
        labelled(self.api, {"kind": "Namespace", "metadata": {"name": "fence", "labels": turn}})
        written(self.api, fence_policy(self._fence, turn))
        self.wait_for_fence()


def have_namespace(api: ApiServer, name: str) -> None:
    """A namespace and its service account, which no controller makes here."""
    api.namespace(name)
    api.ensure(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})


def delete_namespace(api: ApiServer, name: str) -> None:
    """Delete a namespace and say, in its controller's place, that nothing is left in it."""
    api.delete(f"/api/v1/namespaces/{name}")
    body = {"metadata": {"name": name}, "spec": {"finalizers": []}}
    api.call("PUT", f"/api/v1/namespaces/{name}/finalize", body)


def policies(namespace: str) -> str:
    """Where the API has NetworkPolicies."""
    return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"


def written(api: ApiServer, document: Document) -> None:
    """Have a policy, whole: what it no longer says is gone."""
    meta = document["metadata"]
    path = policies(meta["namespace"]) if document["kind"] == POLICY else CLUSTER_POLICIES
    try:
        api.call("POST", path, document)
    except ApiRefused as refused:
        if refused.status != 409:
            raise
        stands = api.call("GET", f"{path}/{meta['name']}")["metadata"]["resourceVersion"]
        newer = {**document, "metadata": {**meta, "resourceVersion": stands}}
        api.call("PUT", f"{path}/{meta['name']}", newer)


def labelled(api: ApiServer, document: Document) -> None:
    """Give a pod or a namespace the labels of a document, and none but these."""
    meta = document["metadata"]
    path = f"/api/v1/namespaces/{meta['name']}"
    if document["kind"] == "Pod":
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    had = api.call("GET", path)["metadata"].get("labels", {})
    labels = {**dict.fromkeys(had), **meta.get("labels", {})}
    api.call("PATCH", path, {"metadata": {"labels": labels}}, content=MERGE)


def fence_policy(port: int, turn: Mapping[str, str]) -> Document:
    """Lets this turn's pods of this turn's namespace in on one port."""
    peer = json.dumps({"matchLabels": turn})
    (document,) = documents(
        policy(
            "fence",
            "fence",
            f"podSelector: {{}}\n"
            f"ingress:\n"
            f"- from: [{{podSelector: {peer}, namespaceSelector: {peer}}}]\n"
            f"  ports: [{{port: {port}, protocol: TCP}}]",
        )
    )
    return document


def start_pod(api: ApiServer, lab: Lab, title: str, node: str) -> Pod:
    """A Pod of the API, and what the node's kubelet makes of it."""
    (document,) = documents(pod_yaml(*title.split("/")))
    (container,) = document["spec"]["containers"]
    container["image"] = "none"
    document["spec"] |= {"nodeName": node, "serviceAccountName": "default"}
    path = f"/api/v1/namespaces/{document['metadata']['namespace']}/pods"
    made = api.call("POST", path, document)
    pod = add_pod(lab, title, node, made["metadata"]["uid"])
    status = {"phase": "Running", "podIP": pod.address, "podIPs": [{"ip": pod.address}]}
    api.call(
        "PATCH", f"{path}/{made['metadata']['name']}/status", {"status": status}, content=MERGE
    )
    return pod


def furnish(api: ApiServer, lab: Lab) -> None:
    """What a cluster has before its network: nodes, namespaces, accounts, definitions, a pool."""
    crds.install(api)
    beside = yaml.safe_load(
        (CRDS / "policy.networking.k8s.io_clusternetworkpolicies.yaml").read_text()
    )
    api.ensure(crds.PATH, beside)
    crds.wait_served(api, beside)
    for node in lab.plan.nodes:
        kdd.node(api, node.name, str(node.address.ip))
        labels = {"metadata": {"labels": LINUX}}
        api.call("PATCH", f"/api/v1/nodes/{node.name}", labels, content=MERGE)
    for space in sorted({title.partition("/")[0] for title in (*PODS, *FENCE)}):
        have_namespace(api, space)
    pool = {**yaml.safe_load(POOL), "apiVersion": "crd.projectcalico.org/v1"}
    api.ensure(f"{kdd.CRD}/ippools", pool)


def node_rules() -> list[Mapping[str, Any]]:
    """What our manifest allows calico-node."""
    listed = yaml.load_all((ROOT / "manifests" / "calico.yaml").read_text(), yaml.CSafeLoader)
    (rules,) = (
        one["rules"]
        for one in listed
        if one and (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "calico-node")
    )
    found: list[Mapping[str, Any]] = rules
    return found


def give_access(api: ApiServer, nodes: Sequence[Machine], file: str, token: str) -> None:
    """A kubeconfig on every node."""
    text = json.dumps(
        {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "node"}}],
            "clusters": [
                {"name": "lab", "cluster": {"server": api.url, "certificate-authority": AUTHORITY}}
            ],
            "users": [{"name": "node", "user": {"token": token}}],
        }
    )
    for node in nodes:
        node.path(AUTHORITY).parent.mkdir(parents=True, exist_ok=True)
        node.path(AUTHORITY).write_bytes(api.ca)
        node.path(file).touch(mode=0o600)
        node.path(file).write_text(text)


@contextmanager
def kubernetes_world(lab_name: str, folder: Path) -> Iterator[KubernetesWorld]:
    """A lab with everything in it and its API server, taken down at the end."""
    api = ApiServer(folder)
    with ExitStack() as stack:
        stack.callback(api.stop)
        api.start()

        def prepared(lab: Lab) -> None:
            stack.enter_context(relayed(lab.nodes, api.port))
            furnish(api, lab)
            api.namespace("kube-system")
            token = api.account("calico-node", node_rules(), "kube-system")
            give_access(api, lab.nodes, KUBECONFIG, token)
            give_access(api, lab.nodes, ADMINS, ADMIN)

        lab = cluster.up(
            lab_name, nodes=len(NODES), topology="flat", environment=SETTINGS, prepared=prepared
        )
        # Who changes back ends is the cluster's administrator, not a node.
        agents.write_config(lab.nodes[0], lab.plan, {**SETTINGS, "KUBECONFIG": ADMINS})
        ctl = stack.enter_context(living(lab))
        probers, places = stack.enter_context(inhabited(lab, partial(start_pod, api)))
        yield KubernetesWorld(lab, ctl, probers, places, api=api)
