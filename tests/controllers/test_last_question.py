"""Before anything is taken away, store and API are asked once more, and their doubts count.

What is followed says that a pod or a node is gone; here the last answer says something else, or
nothing (LEAK-2, LEAK-4, LEAK-5, NOD-1, NOD-2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest

from controllers.addresses.collection import Collection
from controllers.addresses.leaks import GAP
from controllers.mirror.objects import PODS, Pod, PodSpec, PodStatus
from controllers.nodes.node_existence import NodeExistence
from controllers.nodes.node_view import NodeView
from controllers.nodes.nodes import Nodes, endpoint_change
from ipam.admin import node_removal
from ipam.allocator.library_assign import AssignRequest, auto_assign
from ipam.allocator.release import release_by_handle
from ipam.records import blocks
from libcalico.datastore.interface import CommitConflict, Delete, Entry, Put
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Busy, ObjectNotFound, Unreachable
from libcalico.kubernetes.names import Name
from libcalico.model import (
    HostEndpoint,
    HostEndpointSpec,
    Metadata,
    Node,
    NodeSpec,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import AffinityKey, ResourceKey
from libcalico.model.resources.node import OrchRef
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool

GRACE = 60.0
GONE = ObjectNotFound("GET it", 404, "NotFound")
DOUBTS = (Unreachable("away"), Busy("GET it", 429))
NODE = ResourceKey("Node", "n1")


class Api:
    """An API that has one answer for pods and one for nodes."""

    def __init__(self) -> None:
        self.pod: object = GONE
        self.node: object = object()

    async def get(self, resource: object, *_: str) -> Any:
        answer = self.pod if resource is PODS else self.node
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    """A collection that thinks it sees everything, of a cluster with one node and no pod."""

    def __init__(self) -> None:
        self.store, self.api, self.now = MemoryStore(), Api(), 0.0
        client = cast("Client", self.api)
        self.view = NodeView(client, self.store)
        self.presence = NodeExistence(self.store, client, grace=0.0)
        self.part = Collection(
            self.view, client, self.store,
            grace=GRACE, clock=lambda: self.now, presence=self.presence,
        )  # fmt: skip
        self.reflectors = (self.view.reflector, self.part._source.reflector)
        for reflector in self.reflectors:
            reflector.connected = reflector.has_listed = True

    async def begin(self, *, num4: int, num6: int = 0) -> None:
        """The node, and addresses of a pod without endpoint."""
        await put_pool(self.store, "four", "10.71.0.0/24", 29)
        await put_pool(self.store, "six", "fd71::/112", 125)
        node = Node(
            metadata=Metadata(name="n1"),
            spec=NodeSpec(orchRefs=[OrchRef(nodeName="k1", orchestrator="k8s")]),
        )
        await self.store.commit([Put(NODE, node)])
        self.view.nodes, self.view.kubernetes = {"n1": node}, {"k1": {}}
        attributes = {"node": "n1", "pod": "web", "namespace": "gc"}
        request = AssignRequest("n1", "net.c1", attributes, num4=num4, num6=num6)
        await auto_assign(self.store, request)

    async def look_twice(self, apart: float = GRACE + 1) -> None:
        await self.part.look()
        self.now += apart
        await self.part.look()

    @property
    def held(self) -> set[str]:
        found = [one for block in self.store.blocks().values() for one in blocks.allocations(block)]
        return {str(one.address) for one in found}

    @property
    def claims(self) -> int:
        return sum(isinstance(key, AffinityKey) for key in self.store.entries)


def pod(node: str, *addresses: str) -> Pod:
    status = PodStatus(podIP=addresses[0] if addresses else "")
    notes = {"cni.projectcalico.org/podIPs": ",".join(addresses)}
    metadata = msgspec.structs.replace(
        Pod().metadata, name="web", namespace="gc", annotations=notes
    )
    return Pod(metadata=metadata, spec=PodSpec(nodeName=node), status=status)


@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        (GONE, False),
        *((doubt, True) for doubt in DOUBTS),
        (pod("k1"), True),
        (pod("k1", "10.71.0.1"), True),
        (pod("k2", "10.71.0.1"), False),
    ],
)
def test_the_api_has_the_last_word_on_a_pod(answer: object, stays: bool) -> None:
    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        held = world.held
        if isinstance(answer, Pod) and answer.status.podIP:
            (answer.status.podIP,) = held
            answer.metadata.annotations = {}
        world.api.pod = answer
        await world.look_twice()
        assert world.held == (held if stays else set())

    asyncio.run(story())


def test_a_handle_stays_while_its_pod_has_one_of_its_addresses() -> None:
    async def story() -> None:
        world = World()
        await world.begin(num4=1, num6=1)
        held = world.held
        world.api.pod = pod("k1", next(one for one in held if "." in one))
        await world.look_twice()
        assert world.held == held

    asyncio.run(story())


@pytest.mark.parametrize("newest", ["c0", "c1"])
def test_a_new_sandbox_keeps_its_address_while_kubernetes_tells_the_old_ones(newest: str) -> None:
    """LEAK-7: the DEL of the old one is lost, and the kubelet is silent for the whole grace."""

    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        attributes = {"node": "n1", "pod": "web", "namespace": "gc"}
        (told,) = world.held
        await auto_assign(world.store, AssignRequest("n1", "net.c0", attributes, num4=1))
        (other,) = world.held - {told}
        spec = WorkloadEndpointSpec(
            orchestrator="k8s", workload="gc.web", node="n1", containerID=newest, pod="web",
            endpoint="eth0", ipNetworks=[f"{other if newest == 'c0' else told}/32"],
        )  # fmt: skip
        key = ResourceKey("WorkloadEndpoint", "n1-k8s-web-eth0", "gc")
        metadata = Metadata(name=key.name, namespace=key.namespace)
        await world.store.commit([Put(key, WorkloadEndpoint(metadata=metadata, spec=spec))])
        world.api.pod = pod("k1", told)
        world.part._pods.put(Name("gc", "web"), pod("k1", told))
        await world.look_twice()
        assert world.held == ({told, other} if newest == "c0" else {told})

    asyncio.run(story())


def test_a_pod_that_the_watch_missed_keeps_its_addresses_of_other_networks() -> None:
    """LEAK-7: Kubernetes tells those of its first network alone."""

    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        held = world.held
        world.api.pod = pod("k1", "10.99.0.1")
        await world.look_twice()
        assert world.held == held

    asyncio.run(story())


@pytest.mark.parametrize("answer", [object(), *DOUBTS])
def test_a_node_that_is_missed_by_the_watch_alone_keeps_all(answer: object) -> None:
    """LEAK-5: neither addresses nor claims go, be it the store or the API that still has it."""

    async def story() -> None:
        for gone_from in ("store", "kubernetes"):
            world = World()
            await world.begin(num4=1)
            world.api.node = answer
            held, claims = world.held, world.claims
            (world.view.nodes if gone_from == "store" else world.view.kubernetes).clear()
            await world.look_twice(GAP + 1)
            assert world.held == held
            await release_by_handle(world.store, "net.c1")
            await world.look_twice(GAP + 1)
            assert world.claims == claims
            world.api.node = GONE
            await world.look_twice(GAP + 1)
            assert world.claims == 0, "else this shows nothing"

    asyncio.run(story())


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("trouble", ["connected", "broken"])
def test_who_does_not_see_all_nodes_and_pods_judges_nothing(which: int, trouble: str) -> None:
    """LEAK-4."""

    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        held = world.held
        blind = False if trouble == "connected" else {("gc", "web"): "cannot be read"}
        setattr(world.reflectors[which], trouble, blind)
        await world.look_twice()
        assert world.held == held
        assert world.part.looks == 0

    asyncio.run(story())


@contextmanager
def rival(store: MemoryStore, key: Any, change: Any) -> Iterator[None]:
    """Another process writes `key` right before the next commit that touches it."""

    def act(changes: Any) -> None:
        if any(each.key == key for each in changes):
            store.before_commit = lambda _: None
            store.revision += 1
            entry = store.entries[key]
            store.entries[key] = Entry(key, change(entry.value), store.revision, b"")

    store.before_commit = act
    yield
    store.before_commit = lambda _: None


def test_a_node_is_removed_only_when_it_is_gone_for_good_and_as_it_was_seen() -> None:
    """NOD-1."""

    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        part = Nodes(
            world.view, cast("Client", world.api), world.store, presence=world.presence,
            sync_labels=False,
        )  # fmt: skip
        world.view.kubernetes.clear()
        for answer in (object(), *DOUBTS):
            world.api.node = answer
            await part._node("n1")
            assert NODE in world.store.entries
        world.api.node = GONE
        world.view.reflector.has_listed = False
        await part._node("n1")
        assert NODE in world.store.entries, "Kubernetes' nodes were not listed yet"
        assert world.held
        world.view.reflector.has_listed = True
        entry = world.store.entries[NODE]
        with rival(world.store, NODE, lambda value: value), pytest.raises(CommitConflict):
            await node_removal.remove(world.store, entry)
        assert NODE in world.store.entries, "it was written meanwhile: it registered again"
        await part._node("n1")
        assert NODE not in world.store.entries

    asyncio.run(story())


def test_host_endpoints_of_others_are_neither_changed_nor_deleted() -> None:
    """NOD-2."""
    key = ResourceKey("HostEndpoint", "n1-auto-hep")
    theirs = HostEndpoint(metadata=Metadata(name=key.name), spec=HostEndpointSpec(node="n1"))
    mark = {"projectcalico.org/created-by": "calico-kube-controllers"}
    ours = HostEndpoint(metadata=Metadata(name=key.name, labels=mark), spec=theirs.spec)
    assert endpoint_change(key, ours, Entry(key, theirs, 7, b"")) is None
    assert endpoint_change(key, None, Entry(key, theirs, 7, b"")) is None
    assert endpoint_change(key, None, Entry(key, ours, 7, b"")) == Delete(key, 7)
    changed = HostEndpoint(metadata=ours.metadata, spec=HostEndpointSpec(node="n2"))
    put = endpoint_change(key, changed, Entry(key, ours, 7, b""))
    assert isinstance(put, Put)
    assert put.guard == 7
