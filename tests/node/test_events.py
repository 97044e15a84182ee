"""Which conditions are told, of whom, and when: from the status files to what is handed on."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.event_objects import About, pod
from libcalico.kubernetes.event_objects import node as of_node
from libcalico.kubernetes.events import Recorder as RealRecorder
from libcalico.process import status_file
from node import events
from node.events import Condition, Standing
from tests.support.patience import until

NODE = of_node("n1")


class Recorder:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[About, str, str]] = []

    def tell(self, about: About, reason: str, message: str, *_: Any) -> None:
        self.told.append((about, reason, message))

    def holds(self, *_: Any) -> bool:
        return True


class Api(Client):
    """Takes Events, or is away; what it was sent last it says."""

    def __init__(self) -> None:
        super().__init__(lambda: Access("http://127.0.0.1:1"))
        self.away = True
        self.counts: list[int] = []

    async def request(self, *_: Any, body: bytes = b"", **__: Any) -> bytes:
        if self.away:
            raise Unreachable("away")
        said = json.loads(body)
        self.counts.append(said["count"])
        return json.dumps({"metadata": {"name": "one"}, **said}).encode()


def condition(name: str, text: str, agent: str = "felix") -> Condition:
    return Condition(agent, name, text)


def shapes(*conditions: Condition) -> dict[tuple[str, str, str], Condition]:
    return {one.shape: one for one in conditions}


@pytest.mark.promise("M-124")
def test_what_every_agent_tells(tmp_path: Path) -> None:
    wrong = {"object": "GlobalNetworkPolicy(a)", "reason": "not enforced"}
    status_file.write(
        "felix",
        {"conditions": [wrong, 7], "datastore_connected": False, "datastore_error": "away"},
        tmp_path,
    )
    status_file.write(
        "bgp",
        {
            "conditions": [{"object": "BGP peer 10.0.0.2", "reason": "refused"}],
            "refused": [{"peer": "BGPPeer(tor)", "reason": "two of one address"}],
            "felix_refused": {"10.0.0.0/8": "outside of every pool"},
            "datastore": True,
        },
        tmp_path,
    )
    api = {"own": {"warm": False, "error": "403"}, "other": {"warm": True, "error": ""}}
    status_file.write("cni", {"datastore": False, "kubernetes": api}, tmp_path)
    found = events.read(tmp_path, time.time()).values()
    assert [(one.agent, one.object, one.text) for one in found] == [
        ("felix", "GlobalNetworkPolicy(a)", "not enforced"),
        ("felix", "datastore", "away"),
        ("bgp", "BGP peer 10.0.0.2", "refused"),
        ("bgp", "BGPPeer(tor)", "two of one address"),
        ("bgp", "route 10.0.0.0/8", "refused by felix: outside of every pool"),
        ("cni", "datastore", "does not answer"),
        ("cni", "Kubernetes API (own)", "403"),
    ]
    old = time.time() - 2 * events.STALE
    os.utime(tmp_path / "felix.json", (old, old))
    (tmp_path / "cni.json").write_text("no JSON")
    assert {one.agent for one in events.read(tmp_path, time.time()).values()} == {"bgp"}
    status_file.write("bgp", {"felix_refused": {str(n): "no" for n in range(10**4)}}, tmp_path)
    # Numbers alone do not part conditions of one object; these are of many.
    assert len(events.read(tmp_path, time.time())) <= events.MOST


def test_a_condition_is_told_when_it_stands_and_again_when_it_comes_back() -> None:
    told = Recorder()
    standing = Standing(told, NODE)  # type: ignore[arg-type]
    brief, lasting = condition("IPPool(a)", "brief"), condition("route 1", "for 5 s")
    standing.look(shapes(brief, lasting))
    assert not told.told
    standing.look(shapes(condition("route 1", "for 10 s")))
    standing.look(shapes(condition("route 1", "for 15 s")))
    assert told.told == [(NODE, "CalicoDataplane", "route 1: for 10 s")]
    standing.look({})
    standing.look(shapes(lasting))
    standing.look(shapes(lasting))
    assert len(told.told) == 2


@pytest.mark.asyncio
async def test_what_was_told_while_the_api_was_away_is_told_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what stands for long again before the API forgets it."""
    monkeypatch.setattr("libcalico.kubernetes.events.PAUSE", 0.001)
    now, api, found = [0.0], Api(), shapes(condition("route 1", "refused"))
    recorder = RealRecorder(api, "calico-node", "n1", clock=lambda: now[0])
    standing = Standing(recorder, NODE, lambda: now[0])
    task = asyncio.create_task(recorder.run())
    standing.look(found)
    standing.look(found)
    await until(lambda: recorder.dropped == 1)
    api.away = False
    for seconds, counts in (
        (events.LOST - 1, []),
        (2, [1]),
        (events.AGAIN - 1, [1]),
        (2, [1, 2]),
    ):
        now[0] += seconds
        standing.look(found)
        await until(lambda: not recorder._waiting)
        assert api.counts == counts
    assert events.AGAIN < 3600, "for so long the API keeps Events"
    task.cancel()


def test_an_endpoints_condition_is_its_pods() -> None:
    for name, about in {
        "WorkloadEndpoint(web/n1-k8s-front--end--1-eth0)": pod("web", "front-end-1"),
        "WorkloadEndpoint(web/n1-cni-0123-eth0)": NODE,
        "WorkloadEndpoint(web/strange)": NODE,
        "IPPool(web/n1-k8s-a-eth0)": NODE,
        "configuration": NODE,
    }.items():
        assert events.whom(condition(name, "x"), NODE) == about, name
