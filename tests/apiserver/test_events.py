"""Events on pods and nodes, as a real API server takes them and `kubectl describe` shows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from libcalico.kubernetes import events
from libcalico.kubernetes.event_objects import node, pod
from libcalico.kubernetes.events import Recorder
from libcalico.process import status_file
from node import events as node_events
from tests.apiserver.test_pods import forget
from tests.apiserver.test_pods import path as pods
from tests.apiserver.test_pods import pod as have_pod
from tests.manifests.world import kubectl, write_kubeconfig
from tests.support.apiserver import ApiServer
from tests.support.patience import patient

pytestmark = pytest.mark.asyncio
NODE = "node-of-events"
RULES = [
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
]
"""What the manifest gives a node for this."""


@pytest.fixture
def token(api: ApiServer) -> str:
    return api.account("teller", RULES)


@pytest.fixture(autouse=True)
def _none_left(api: ApiServer) -> Iterator[None]:
    api.ensure("/api/v1/nodes", {"metadata": {"name": NODE}})
    yield
    api.delete(f"/api/v1/nodes/{NODE}")
    for one in of(api, "default", NODE):
        api.delete(f"/api/v1/namespaces/default/events/{one['metadata']['name']}")


@asynccontextmanager
async def telling(api: ApiServer, token: str) -> AsyncIterator[Recorder]:
    recorder = Recorder(api.client(token), "calico-test", NODE)
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def of(api: ApiServer, space: str, name: str) -> list[dict[str, Any]]:
    listed = api.call("GET", f"/api/v1/namespaces/{space}/events")["items"]
    return [one for one in listed if one["involvedObject"]["name"] == name]


async def eventually(check: Any, within: float = 60.0) -> Any:
    deadline = time.monotonic() + patient(within)
    while not (found := await asyncio.to_thread(check)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


@pytest.mark.promise("M-124")
async def test_kubectl_shows_them_below_the_pod_and_the_node(
    api: ApiServer, space: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in one Event each, also by the next process; a new pod of the name has its own."""
    monkeypatch.setattr(events, "AGAIN", 0.1)
    have_pod(api, space, "web", NODE)
    write_kubeconfig(api, tmp_path / "kubeconfig")
    async with telling(api, token) as recorder:
        recorder.tell(pod(space, "web"), "CalicoAddFailed", "no address")
        recorder.tell(pod(space, "nobody"), "CalicoAddFailed", "no such pod")
        recorder.tell(node(NODE), "CalicoDataplane", "IPPool(a): is wrong", "a")
        recorder.tell(node(NODE), "CalicoDataplane", "IPPool(b): is wrong", "b")
        await eventually(lambda: recorder.written == 3)
        for _ in range(4):
            recorder.tell(pod(space, "web"), "CalicoAddFailed", "still no address")
        await eventually(lambda: recorder.written == 4)
        assert recorder.dropped == 1, "of a pod that is not there"
    (one,) = of(api, space, "web")
    assert (one["count"], one["message"], one["type"]) == (5, "still no address", "Warning")
    for kind, name in (("pod", "web"), ("node", NODE)):
        options = ("-n", space) if kind == "pod" else ()
        shown = await asyncio.to_thread(
            kubectl, tmp_path / "kubeconfig", *options, "describe", kind, name
        )
        assert shown.returncode == 0, shown.stderr
        told = shown.stdout.partition("Events:")[2]
        wanted = ["(x5 over"] if kind == "pod" else ["IPPool(a)", "IPPool(b)"]
        assert all(word in told for word in (*wanted, "calico-test")), shown.stdout
    assert len(of(api, "default", NODE)) == 2

    async with telling(api, token) as recorder:
        recorder.tell(pod(space, "web"), "CalicoAddFailed", "after a restart")
        await eventually(lambda: recorder.written)
        (again,) = of(api, space, "web")
        assert (again["count"], again["message"]) == (6, "after a restart")
        api.delete(f"/api/v1/namespaces/{space}/events/{again['metadata']['name']}")
        recorder.tell(pod(space, "web"), "CalicoAddFailed", "the API forgot")
        await eventually(lambda: recorder.written == 2)
        (fresh,) = of(api, space, "web")
        assert fresh["count"] == 1
        forget(api, space, "web")
        successor = have_pod(api, space, "web", NODE)["metadata"]["uid"]
        recorder.tell(pod(space, "web"), "CalicoAddFailed", "of another")
        await eventually(lambda: recorder.written == 3)
        uids = [one["involvedObject"]["uid"] for one in of(api, space, "web")]
        assert len(uids) == 2
        assert successor in uids
    forget(api, space, "web")


async def test_while_the_api_is_away_nothing_fails_and_it_is_told_later(
    api: ApiServer, token: str
) -> None:
    async with telling(api, token) as recorder:
        api.kill()
        try:
            recorder.tell(node(NODE), "CalicoNode", "it happened while nobody listened")
            await asyncio.sleep(1.0)
            assert not recorder.written
        finally:
            await asyncio.to_thread(api.start)
        await eventually(lambda: recorder.written)
    assert len(of(api, "default", NODE)) == 1


@pytest.mark.promise("M-124")
async def test_conditions_of_the_agents_become_events_of_their_node_and_pods(
    api: ApiServer, space: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From felix' status file, by the node's process with the account that its pod has."""
    monkeypatch.setattr(node_events, "LOOK", 0.1)
    monkeypatch.setattr("libcalico.process.paths.STATUS", tmp_path)
    uid = have_pod(api, space, "front-end", NODE)["metadata"]["uid"]
    felix = {
        f"WorkloadEndpoint({space}/n1-k8s-front--end-eth0)": "another one has this interface",
        "GlobalNetworkPolicy(a)": "spec.x: not enforced",
    }
    told = [{"object": name, "reason": reason} for name, reason in felix.items()]
    status_file.write("felix", {"conditions": told}, tmp_path)
    account = tmp_path / "account"
    api.mount_account(account, token)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    telling = node_events.EventReporter(environ, NODE, account)
    task = asyncio.create_task(telling.run())
    try:
        await eventually(lambda: of(api, "default", NODE) and of(api, space, "front-end"))
        telling.warn("tunnel addresses", "no pool is left")
        telling.normal("CalicoIsUp", "Calico is running on this node")
        await eventually(lambda: len(of(api, "default", NODE)) == 3)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    (one,) = of(api, space, "front-end")
    assert one["involvedObject"]["uid"] == uid
    assert one["message"].endswith("another one has this interface")
    found = {(each["type"], each["reason"], each["message"]) for each in of(api, "default", NODE)}
    assert found == {
        ("Warning", "CalicoDataplane", "GlobalNetworkPolicy(a): spec.x: not enforced"),
        ("Warning", "CalicoNode", "tunnel addresses: no pool is left"),
        ("Normal", "CalicoIsUp", "Calico is running on this node"),
    }
    api.delete(f"{pods(space)}/front-end?gracePeriodSeconds=0")


async def test_without_an_api_nothing_is_told() -> None:
    telling = node_events.EventReporter({}, NODE)
    await telling.run()
    telling.warn("tunnel addresses", "no pool is left")
    await node_events.last_word({}, NODE, "CalicoStartup", "no address")
