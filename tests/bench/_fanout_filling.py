"""A cluster's objects in the etcd of a kube-apiserver, for `./run bench fanout --store kubernetes`.

One object of each kind is made through the API. The others are copies of its bytes in etcd under
names of the same length, so that tens of thousands are there within seconds, stored as the API
stores them.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterator, Sequence

from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from tests.apiserver.kdd import CRD
from tests.bench import _fanout_pods as pods
from tests.bench._fanout_world import Json
from tests.support.apiserver import ADMIN, ApiServer

PODS_IN_A_SPACE = 100
IN_A_TRANSACTION = 64
UID = re.compile(rb'(\*\$|"uid":")[0-9a-f]{8}')
"""In protobuf, and in the JSON of custom resources."""
Pairs = Sequence[tuple[str, str]]
"""What a copy has in place of what the first object has, of the same length."""


def connect(api: ApiServer) -> http.client.HTTPSConnection:
    """A connection to the API."""
    context = ssl.create_default_context(cafile=str(api.authority.cert))
    return http.client.HTTPSConnection("127.0.0.1", api.port, context=context, timeout=120)


def ask(line: http.client.HTTPSConnection, call: tuple[str, str, Json, str]) -> None:
    """Make a change as admin. Raises RuntimeError with what the API said."""
    method, path, body, content = call
    fields = {"Authorization": f"Bearer {ADMIN}", "Content-Type": content}
    line.request(method, path, json.dumps(body), fields)
    answer = line.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")


def fill(api: ApiServer, nodes: int, count: int) -> None:
    """Nodes with their claims, namespaces with account and policy, and so many pods."""
    spaces = -(-count // PODS_IN_A_SPACE)
    line = connect(api)
    for call in [*_cluster(), *(each() for each in pods.start(0, pods.node(0)))]:
        ask(line, call)
    line.close()
    node, space, address = pods.node(0), pods.SPACE, pods.address(0)
    calico = "/registry/crd.projectcalico.org"

    def of_node(number: int) -> Pairs:
        return (
            (node, pods.node(number)),
            (address, pods.address(number)),
            (address.replace(".", "-"), pods.address(number).replace(".", "-")),
        )

    def of_space(number: int) -> Pairs:
        return ((space, f"bench-{number:03d}"),)

    def of_pod(number: int) -> Pairs:
        return (
            *of_space(number % spaces),
            (node, pods.node(number % nodes)),
            (pods.name(0), pods.name(number)),
            (address, pods.address(number)),
        )

    claim = f"{node}-{address.replace('.', '-')}-32"
    for key, times, pairs in (
        (f"/registry/minions/{node}", nodes, of_node),
        (f"{calico}/blockaffinities/{claim}", nodes, of_node),
        (f"/registry/namespaces/{space}", spaces, of_space),
        (f"/registry/serviceaccounts/{space}/default", spaces, of_space),
        (f"/registry/networkpolicies/{space}/frontend", spaces, of_space),
        (f"/registry/pods/{space}/{pods.name(0)}", count, of_pod),
    ):
        asyncio.run(_copy(api, key, times, pairs))


async def _copy(api: ApiServer, key: str, times: int, pairs: Callable[[int], Pairs]) -> None:
    first = api.etcd.get(key)
    if first is None:
        raise RuntimeError(f"the API stored nothing at {key}")
    async with api.etcd.connect(timeout=60) as store:
        connection = store._connection  # type: ignore[attr-defined]
        request = pb.TxnRequest()
        for number in range(1, times):
            request.success.add().request_put.CopyFrom(_copied(key, first, number, pairs(number)))
            if len(request.success) == IN_A_TRANSACTION or number == times - 1:
                await connection.write(request, guarded=False)
                request = pb.TxnRequest()


def _copied(key: str, first: bytes, number: int, pairs: Pairs) -> pb.PutRequest:
    """An object of the same kind, with a uid of its own. Pure."""
    value = UID.sub(lambda found: found[1] + b"%08x" % number, first, count=1)
    for old, new in pairs:
        assert len(old) == len(new), "protobuf says lengths before what has them"
        key, value = key.replace(old, new), value.replace(old.encode(), new.encode())
    return pb.PutRequest(key=key.encode(), value=value)


def _cluster() -> Iterator[tuple[str, str, Json, str]]:
    """The first of each kind but for the pod."""
    node, space = pods.node(0), pods.SPACE
    spaced = f"/namespaces/{space}"
    dashes = pods.address(0).replace(".", "-")
    yield "POST", "/api/v1/nodes?fieldManager=kubelet", _node(node), pods.JSON
    yield pods.heartbeat(0)
    annotations = {
        "projectcalico.org/IPv4Address": f"{pods.address(0)}/16",
        "projectcalico.org/IPv4IPIPTunnelAddr": pods.address(0),
    }
    body = {"metadata": {"annotations": annotations}}
    yield "PATCH", f"/api/v1/nodes/{node}/status?fieldManager=calico", body, pods.MERGE
    labels = {"metadata": {"name": space, "labels": {"team": "shop"}}}
    yield "POST", "/api/v1/namespaces", labels, pods.JSON
    yield "POST", f"/api/v1{spaced}/serviceaccounts", {"metadata": {"name": "default"}}, pods.JSON
    peer = {"namespaceSelector": {"matchLabels": {"team": "shop"}}}
    policy = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "frontend"}},
        "ingress": [{"from": [peer], "ports": [{"port": 8080}]}],
    }
    named = {"metadata": {"name": "frontend"}, "spec": policy}
    path = f"/apis/networking.k8s.io/v1{spaced}/networkpolicies"
    yield "POST", path, named, pods.JSON
    claim = {
        "apiVersion": "crd.projectcalico.org/v1",
        "kind": "BlockAffinity",
        "metadata": {"name": f"{node}-{dashes}-32"},
        "spec": {
            "cidr": f"{pods.address(0)}/32",
            "node": node,
            "state": "confirmed",
            "deleted": "false",
        },
    }
    yield "POST", f"{CRD}/blockaffinities", claim, pods.JSON


def _node(name: str) -> Json:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "zone-1",
        "topology.kubernetes.io/region": "region-1",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
    }
    return {"metadata": {"name": name, "labels": labels}}
