"""A pod that runs keeps what it has, whatever a later call of its container meets.

Decisions of the daemon alone, without namespaces or processes; the calls themselves are in
test_daemon_faults.py, test_garbage.py and, for policy only, tests/cni_conformance/test_chains.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_interface, ip_network
from types import SimpleNamespace
from typing import Any, cast

import pytest

import cni.verbs.garbage
from cni.node import daemon_context
from cni.pods.endpoint import EndpointWriter
from cni.pods.pod_source import PodFacts
from cni.request.attachment import attachment_of
from cni.request.config import Attachment as Valid
from cni.request.errors import CNIError
from cni.request.request import Request, parse_request
from cni.request.result import IPConfig, Result
from cni.server.dispatch import Dispatcher
from cni.socket.trace import Trace
from cni.verbs import datastore_release, delete, network_profile, policy_only
from ipam.records.blocks import Allocation, parse_address
from libcalico.datastore.interface import Change, CommitConflict
from libcalico.errors import DatastoreUnavailable
from tests.cni.world import network_config
from tests.ipam.memory import MemoryStore

CID = "c" * 64
ADDRESS = parse_address("10.77.0.5")
PREVIOUS = Result(ips=(IPConfig(address=ip_interface("10.77.0.5/24"), interface=None),))


def request(command: str = "ADD", **config: Any) -> Request:
    arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1"
    env = {
        "CNI_COMMAND": command, "CNI_CONTAINERID": CID, "CNI_NETNS": "/run/netns/p",
        "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", "CNI_ARGS": arguments,
    }  # fmt: skip
    return parse_request("calico", env, json.dumps(network_config(config)))


class Felix:
    """What felix is told, in order. `answer`: of the wait for the policy."""

    def __init__(self, answer: object = "") -> None:
        self.told: list[str] = []
        self.answer = answer

    def offer(self, *_: Any) -> None:
        self.told.append("offer")

    def stored(self, _subject: Any, revision: int) -> None:
        self.told.append("stored" if revision else "keep")

    def retract(self, _subject: Any) -> None:
        self.told.append("retract")

    async def in_force(self, *_: Any) -> str:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return str(self.answer)


async def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _facts(_request: Request) -> PodFacts:
    return PodFacts()


def conflict(changes: Sequence[Change]) -> None:
    raise CommitConflict({})


def away(changes: Sequence[Change]) -> None:
    raise DatastoreUnavailable("may or may not have happened")


def fine(changes: Sequence[Change]) -> None:
    return None


def policy_only_context(store: MemoryStore, felix: Felix, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What an ADD of policy alone works with; its interface stands."""
    context: Any = SimpleNamespace(
        node="node1", store=store, felix=felix, keep=asyncio.ensure_future,
        settings=SimpleNamespace(datastore_seconds=5.0), check_store=lambda _: None,
        cluster=SimpleNamespace(require_ready=_nothing, find_node=_nothing),
        pod_source=SimpleNamespace(facts=_facts), journal=SimpleNamespace(drop=lambda _: None),
    )  # fmt: skip
    monkeypatch.setattr(policy_only, "check_node_name", lambda *_: None)
    monkeypatch.setattr(daemon_context, "check_node_known", lambda *_: None)
    monkeypatch.setattr(network_profile, "ensure", _nothing)
    ends = SimpleNamespace(mac="ee:00:00:00:00:01"), SimpleNamespace(name="veth1")
    monkeypatch.setattr(policy_only, "_ends", lambda *_: ends)
    return context


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize(
    ("commit", "answer"),
    [
        (conflict, ""),
        (away, ""),
        (fine, "no rules"),
        (fine, TimeoutError()),
        (fine, asyncio.CancelledError()),
    ],
)
def test_policy_only_a_repeated_add_that_fails_leaves_the_running_pod_its_policy(
    commit: Any, answer: object, repeated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD-07: felix hears no retraction, and the endpoint stays."""
    asked = request(policy_setup_timeout_seconds=1)
    attachment = attachment_of(asked, "node1")
    store, felix, undone = MemoryStore(), Felix(answer), list[str]()

    async def undo(_context: Any, _request: Any, unknown: bool) -> None:
        undone.append("unknown" if unknown else "undone")
        felix.retract(None)

    context = policy_only_context(store, felix, monkeypatch)
    monkeypatch.setattr(policy_only, "_undo", undo)

    async def story() -> None:
        if repeated:
            first = EndpointWriter(attachment, PodFacts(), "ee:00:00:00:00:01", interface="veth1")
            await store.commit([first.change(None, [ADDRESS])])
        store.before_commit = commit
        with pytest.raises((CNIError, DatastoreUnavailable, asyncio.CancelledError)):
            await policy_only.add(context, asked, 0, Trace("ADD"), PREVIOUS)
        if repeated:
            assert felix.told == ["offer", "keep"]
            assert not undone
            assert attachment.endpoint_key in store.entries
        else:
            assert felix.told == ["offer", "retract"]
            once = {conflict: [], away: ["unknown"], fine: ["undone"]}
            assert undone == once[commit], "a conflict wrote nothing"

    asyncio.run(story())


def test_policy_only_a_repeated_add_that_reads_nothing_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ADD-07: whether the pod runs is not known then, and nothing was written."""
    store, felix = MemoryStore(), Felix()

    async def reading(*_: Any) -> None:
        raise DatastoreUnavailable("no answer")

    store.get = reading  # type: ignore[assignment]
    context = policy_only_context(store, felix, monkeypatch)
    with pytest.raises(DatastoreUnavailable):
        asyncio.run(policy_only.add(context, request(), 0, Trace("ADD"), PREVIOUS))
    assert felix.told == []


@pytest.mark.parametrize("unknown", [False, True])
def test_policy_only_an_endpoint_that_may_come_to_light_is_remembered(
    unknown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-19."""
    remembered: list[Exception] = []

    async def remember(_context: Any, _request: Any, left: Any) -> None:
        remembered.extend(left)

    monkeypatch.setattr(datastore_release, "release", _nothing)
    monkeypatch.setattr(delete, "remember_undo", remember)
    context: Any = SimpleNamespace(node="node1", felix=Felix())
    asyncio.run(policy_only._undo(context, request(), unknown))
    assert bool(remembered) == unknown


def test_a_collection_leaves_containers_that_call_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CNI-85: one that called before its turn comes, or while the collection waited for it."""
    allocations = [
        (
            Allocation(parse_address(f"10.65.0.{n}"), f"net.c{n}", {"node": "node1"}, n),
            ip_network("10.65.0.0/28"),
        )
        for n in (1, 2, 3, 4)
    ]
    removed: list[str] = []
    called = {"c2"}

    @asynccontextmanager
    async def turn(container: str) -> AsyncIterator[None]:
        if container == "c3":
            called.add("c3")
        yield

    async def held(_context: Any) -> Any:
        return [], allocations

    async def remove(_context: Any, stale: Any) -> None:
        removed.append(stale.suspect.container_id)

    async def own(*_: Any, **__: Any) -> str:
        return ""

    monkeypatch.setattr(cni.verbs.garbage, "held_here", held)
    monkeypatch.setattr(cni.verbs.garbage, "_remove", remove)
    monkeypatch.setattr(cni.verbs.garbage, "why_foreign", own)
    context: Any = SimpleNamespace(
        node="node1", settings=SimpleNamespace(datastore_seconds=5.0),
        cluster=SimpleNamespace(require_ready=_nothing),
    )  # fmt: skip
    config = SimpleNamespace(name="net", valid_attachments=(Valid("c4", "eth0"), Valid("c4", "")))
    collected: Any = SimpleNamespace(config=config)
    asyncio.run(cni.verbs.garbage.collect(context, turn, called, collected))
    assert removed == ["c1"]

    async def foreign(*_: Any, **__: Any) -> str:
        return "another machine"

    monkeypatch.setattr(cni.verbs.garbage, "why_foreign", foreign)
    asyncio.run(cni.verbs.garbage.collect(context, turn, set(), collected))
    assert removed == ["c1"], "a machine that is not the node removes nothing"


def test_a_collection_knows_the_calls_in_progress_when_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CNI-85: their containers may be on no list of the runtime yet."""
    heard: list[set[str]] = []

    async def collect(_context: Any, _turn: Any, called: set[str], _request: Any) -> None:
        heard.append(set(called))

    monkeypatch.setattr(cni.verbs.garbage, "collect", collect)
    dispatcher: Any = SimpleNamespace(
        _locks=SimpleNamespace(busy=frozenset({"c1"}), acquire=None),
        watching=[],
        _context=None,
        collect=lambda *_: None,
    )
    asyncio.run(Dispatcher._collect(dispatcher, cast("Any", None), request()))
    assert heard == [{"c1"}]
    assert dispatcher.watching == []
