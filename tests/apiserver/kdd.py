"""A Kubernetes datastore of the tests: definitions, nodes, pods, and a store on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from libcalico.datastore.kubernetes.store import KubernetesDatastore
from tests.support import crds
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG

CRD = "/apis/crd.projectcalico.org/v1"
_INSTALLED: set[str] = set()


def install(api: ApiServer) -> ApiServer:
    """Have the definitions, once for each server."""
    if api.url not in _INSTALLED:
        crds.install(api)
        _INSTALLED.add(api.url)
    return api


@asynccontextmanager
async def opened(api: ApiServer, client: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A store on the server, as admin."""
    store = KubernetesDatastore(client or api.client(timeout=HANG), **options)
    try:
        yield store
    finally:
        await store.close()


def clean(api: ApiServer) -> None:
    """No custom resource of the cluster's, no node and no pod of `default` is left."""
    for plural in (
        "ippools",
        "ipamblocks",
        "ipamhandles",
        "blockaffinities",
        "ipamconfigs",
        "globalnetworkpolicies",
        "tiers",
        "clusterinformations",
        "felixconfigurations",
        "bgpconfigurations",
        "caliconodestatuses",
    ):
        api.delete(f"{CRD}/{plural}")
    api.delete("/api/v1/nodes")
    no_pods(api, "default")


def no_pods(api: ApiServer, space: str) -> None:
    """No pod of a namespace is left."""
    path = f"/api/v1/namespaces/{space}/pods"
    for pod in api.call("GET", path)["items"]:
        api.delete(f"{path}/{pod['metadata']['name']}?gracePeriodSeconds=0")


def node(api: ApiServer, name: str, address: str = "10.0.0.1", **spec: Any) -> None:
    """Have a node, as a kubelet makes it."""
    api.ensure("/api/v1/nodes", {"metadata": {"name": name, "labels": {"role": "a"}}, "spec": spec})
    status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
    api.call(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        status,
        content="application/strategic-merge-patch+json",
    )


def pod(
    api: ApiServer, name: str, on: str = "", *, space: str = "default", **spec: Any
) -> Mapping[str, Any]:
    """Have a pod, on a node where one is named."""
    body = {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "none",
                    "ports": [{"name": "http", "containerPort": 80}],
                }
            ],
            "serviceAccountName": "builder",
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": on} if on else {}),
            **spec,
        },
    }
    return api.ensure(f"/api/v1/namespaces/{space}/pods", body)
