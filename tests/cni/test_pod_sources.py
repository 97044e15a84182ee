"""Which source a pod is asked of."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cni.pods.pod_sources import FOLLOWED, PodSources, own_access
from cni.request.errors import CNIError
from cni.request.request import Request, parse_request
from libcalico.apiconfig import from_environment
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
NOWHERE = "https://127.0.0.1:1"
LABELS = {"cni": {"labels": [{"key": "app", "value": "web"}]}}


def call(pod: str = "web-1", **config: Any) -> Request:
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/run/netns/x",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
    }
    document = {"name": "net", "cniVersion": "1.0.0", "type": "calico", "args": LABELS, **config}
    return parse_request("calico", env, json.dumps(document))


def named(token: str = "t") -> dict[str, Any]:
    return {"policy": {"type": "k8s", "k8s_api_root": NOWHERE, "k8s_auth_token": token}}


async def refusal(sources: PodSources, request: Request) -> CNIError:
    with pytest.raises(CNIError) as caught:
        await sources.facts(request)
    return caught.value


async def test_without_an_api_the_runtimes_word_counts() -> None:
    assert (await PodSources("node1").facts(call())).labels == {"app": "web"}
    assert own_access(from_environment({}), {}) is None


async def test_an_api_that_does_not_answer_is_no_pod_without_labels() -> None:
    environ = {"K8S_API_ENDPOINT": NOWHERE}
    sources = PodSources("node1", own_access(from_environment(environ), environ))
    refused = await refusal(sources, call())
    assert refused.code == 11
    assert "127.0.0.1:1" in refused.details
    # What is no pod of Kubernetes is not asked for there.
    assert (await sources.facts(call(pod=""))).labels == {"app": "web"}


async def test_the_configurations_api_goes_before_the_daemons() -> None:
    environ = {"KUBECONFIG": "/gone/own"}
    access = own_access(from_environment(environ), environ)
    sources = PodSources("node1", access)
    assert "/gone/own" in (await refusal(sources, call())).msg
    kubeconfig: dict[str, Any] = {"kubernetes": {"kubeconfig": "/gone/theirs"}}
    refused = await refusal(sources, call(**kubeconfig))
    assert refused.code == 7
    assert "/gone/theirs" in refused.msg


async def test_few_configurations_are_followed_at_once() -> None:
    sources = PodSources("node1")
    running = asyncio.create_task(sources.run())
    before = asyncio.all_tasks()
    for turn in range(FOLLOWED + 5):
        for _ in range(2):
            await refusal(sources, call(**named(f"t{turn}")))

    def following() -> set[asyncio.Task[Any]]:
        started = asyncio.all_tasks() - before
        return {task for task in started if "KubernetesPods.run" in repr(task)}

    # A few turns later those that are followed no more have ended.
    await until(lambda: len(following()) == FOLLOWED)
    assert len(sources._named) == FOLLOWED
    for _, task in sources._named.values():
        task.cancel()
    running.cancel()
    await asyncio.gather(running, *following(), return_exceptions=True)
