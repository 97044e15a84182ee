"""Pods from a real API server: warm, asked for by name, and while the API is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cni.pods.kubernetes_pods import KubernetesPods
from cni.pods.pod_source import PodFacts
from cni.pods.pod_sources import PodSources, own_access
from cni.request.errors import CNIError
from cni.request.request import Request
from libcalico.apiconfig import from_environment
from libcalico.kubernetes.access import Source, in_cluster
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG, patient, until

pytestmark = pytest.mark.asyncio
NODE = "node-of-pods"
READ_PODS = [
    {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list", "watch"]}
]
POOLS = "cni.projectcalico.org/ipv4pools"


def path(space: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{space}/pods" + (f"/{name}" if name else "")


def pod(api: ApiServer, space: str, name: str, node: str = NODE, **metadata: Any) -> dict[str, Any]:
    """Have a pod that is bound to a node; returns it as it is stored."""
    container = {
        "name": "c",
        "image": "none",
        "ports": [
            {"name": "http", "containerPort": 8080},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
            {"containerPort": 99},
        ],
    }
    first = {"name": "i", "image": "none", "ports": [{"name": "early", "containerPort": 7}]}
    spec = {
        "nodeName": node,
        "serviceAccountName": "robot",
        "containers": [container],
        "initContainers": [first],
    }
    body = {"metadata": {"name": name, **metadata}, "spec": spec}
    made: dict[str, Any] = api.call("POST", path(space), body)
    return made


def forget(api: ApiServer, space: str, name: str) -> None:
    api.delete(path(space, name) + "?gracePeriodSeconds=0")


def call(space: str, name: str, uid: str = "") -> Request:
    from cni.request.request import parse_request

    args = f"K8S_POD_NAMESPACE={space};K8S_POD_NAME={name};K8S_POD_UID={uid}"
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/run/netns/x",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": args,
    }
    return parse_request("calico", env, '{"name":"net","cniVersion":"1.0.0","type":"calico"}')


@asynccontextmanager
async def following(source: Source, *, warm: bool = True, seconds: float = HANG) -> Any:
    pods = KubernetesPods(source, NODE, seconds=seconds)
    task = asyncio.create_task(pods.run())
    try:
        if warm:
            await until(lambda: pods.warm)
        yield pods
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def refusal(pods: KubernetesPods | PodSources, request: Request) -> CNIError:
    with pytest.raises(CNIError) as caught:
        await pods.facts(request)
    return caught.value


async def outdated(pods: KubernetesPods, request: Request) -> CNIError:
    """The refusal of a token that is none any more; the server remembers it for seconds."""
    deadline = time.monotonic() + patient(30)
    while time.monotonic() < deadline:
        try:
            await pods.facts(request)
        except CNIError as error:
            return error
        await asyncio.sleep(0.2)
    raise AssertionError("the old token is good for ever")


async def test_a_pod_that_is_known_costs_no_request(api: ApiServer, space: str) -> None:
    api.call(
        "PATCH",
        f"/api/v1/namespaces/{space}",
        {"metadata": {"annotations": {POOLS: '["of-space"]'}}},
        content="application/merge-patch+json",
    )
    made = pod(
        api,
        space,
        "web-1",
        labels={"app": "web"},
        annotations={"note": "x"},
        generateName="web-",
    )
    pod(api, space, "elsewhere", node="another-node")
    async with following(api.source()) as pods:
        facts: PodFacts = await pods.facts(call(space, "web-1", made["metadata"]["uid"]))
        assert pods.requests == 0
        assert facts.labels == {"app": "web"}
        assert facts.annotations == {"note": "x"}
        assert facts.namespace_annotations[POOLS] == '["of-space"]'
        assert facts.service_account == "robot"
        assert facts.generate_name == "web-"
        assert [(p.name, p.protocol, p.port, p.hostPort) for p in facts.ports] == [
            ("http", "TCP", 8080, 0),
            ("", "UDP", 53, 53),
            ("early", "TCP", 7, 0),
        ]
        # Of another node: it is not followed, and whoever asks for it costs a request.
        await pods.facts(call(space, "elsewhere"))
        assert pods.requests == 1


async def test_what_changes_is_known_soon(api: ApiServer, space: str) -> None:
    async with following(api.source()) as pods:
        made = pod(api, space, "web-1")
        request = call(space, "web-1", made["metadata"]["uid"])
        assert (await pods.facts(request)).labels == {}
        body = {"metadata": {"labels": {"tier": "front"}}}
        api.call("PATCH", path(space, "web-1"), body, content="application/merge-patch+json")
        deadline = time.monotonic() + patient(10)
        while (await pods.facts(request)).labels != {"tier": "front"}:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        before = pods.requests
        await pods.facts(request)
        assert pods.requests == before


async def test_an_unknown_pod_is_asked_for_once(api: ApiServer, space: str) -> None:
    made = pod(api, space, "web-1")
    pods = KubernetesPods(api.source(), NODE)  # nothing follows: as at the start of the daemon
    request = call(space, "web-1", made["metadata"]["uid"])
    answers = await asyncio.gather(*(pods.facts(request) for _ in range(5)))
    assert pods.requests == 1
    assert all(facts.service_account == "robot" for facts in answers)
    gone = await refusal(pods, call(space, "nobody"))
    assert gone.code == 11
    assert f"pod {space}/nobody is not known to the Kubernetes API" in gone.msg


async def test_a_successor_of_the_same_name_is_another_pod(api: ApiServer, space: str) -> None:
    first = pod(api, space, "db-0", labels={"turn": "first"})
    async with following(api.source()) as pods:
        old = call(space, "db-0", first["metadata"]["uid"])
        assert (await pods.facts(old)).labels == {"turn": "first"}
        forget(api, space, "db-0")
        second = pod(api, space, "db-0", labels={"turn": "second"})
        new = call(space, "db-0", second["metadata"]["uid"])
        assert (await pods.facts(new)).labels == {"turn": "second"}
        stale = await refusal(pods, old)
        assert stale.code == 11
        assert first["metadata"]["uid"] in stale.msg
        assert second["metadata"]["uid"] in stale.msg


async def test_a_static_pod_has_two_uids(api: ApiServer, space: str) -> None:
    pod(api, space, "static", annotations={"kubernetes.io/config.hash": "abcdef"})
    async with following(api.source()) as pods:
        assert (await pods.facts(call(space, "static", "abcdef"))).service_account == "robot"
        assert pods.requests == 0


async def test_while_the_api_is_away(api: ApiServer, space: str) -> None:
    """What is known is served; what is not is refused soon, and never a pod without labels."""
    made = pod(api, space, "web-1", labels={"app": "web"})
    async with following(api.source()) as pods:
        patience, pods._client._timeout = pods._client._timeout, 0.5
        api.pause()
        known = call(space, "web-1", made["metadata"]["uid"])
        assert (await pods.facts(known)).labels == {"app": "web"}
        began = time.monotonic()
        silent = await refusal(pods, call(space, "new"))
        assert time.monotonic() - began < HANG
        assert silent.code == 11
        assert f"pod {space}/new is not known yet" in silent.msg
        assert "no answer within 0.5 s" in silent.details
        api.resume()
        api.kill()
        refused = await refusal(pods, call(space, "new"))
        assert refused.code == 11
        assert (await pods.facts(known)).labels == {"app": "web"}
        api.start()
        pods._client._timeout = patience
        pod(api, space, "new")
        assert (await pods.facts(call(space, "new"))).service_account == "robot"
        await until(lambda: not pods.error)


@pytest.mark.promise("M-239")
async def test_the_service_account_of_the_pod_is_enough(
    api: ApiServer, space: str, tmp_path: Path
) -> None:
    """No kubeconfig, no address: what the kubelet mounts; a token that rotates is taken up."""
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    made = pod(api, space, "web-1")
    request = call(space, "web-1", made["metadata"]["uid"])
    source = own_access(from_environment(environ), environ)
    assert source is not None, "it is configured, although the account is not mounted"
    missing = await refusal(PodSources(NODE, source), request)
    assert "service account's token cannot be read" in missing.msg

    api.mount_account(tmp_path, api.account("cni", READ_PODS))
    async with following(in_cluster(environ, tmp_path)) as pods:
        assert (await pods.facts(request)).service_account == "robot"
        api.delete("/api/v1/namespaces/default/serviceaccounts/cni")
        pod(api, space, "later", node="another-node")
        refused = await outdated(pods, call(space, "later"))
        assert refused.code == 11
        assert "401" in refused.details
        assert (await pods.facts(request)).service_account == "robot"
        api.mount_account(tmp_path, api.account("cni", READ_PODS))
        assert (await pods.facts(call(space, "later"))).service_account == "robot"


async def test_without_the_right_to_read_an_add_fails_with_the_reason(
    api: ApiServer, space: str
) -> None:
    pod(api, space, "web-1")
    pods = KubernetesPods(api.source(api.account("powerless", [])), NODE)
    refused = await refusal(pods, call(space, "web-1"))
    assert refused.code == 11
    assert "403" in refused.details
    assert "does RBAC allow it?" in refused.details


async def test_outside_of_a_cluster_the_runtime_is_asked() -> None:
    assert own_access(from_environment({}), {}) is None


@pytest.fixture(autouse=True)
def _no_pods_left(api: ApiServer, space: str) -> Iterator[None]:
    yield
    for each in api.call("GET", path(space))["items"]:
        forget(api, space, each["metadata"]["name"])
