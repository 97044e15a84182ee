"""The collection of addresses against a plain model: every order of what happens to nodes and pods.

Real are the collection, the controller of nodes, what both share, and IPAM. Played are a store in
memory, the API, and both watches, which tell in order and late. The model knows which containers
live. After every event each of their addresses is allocated under its handle (LEAK-1, LEAK-5,
LEAK-6); once all is quiet nothing else is allocated, and no node is told as held.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from controllers.addresses.collection import Collection
from controllers.mirror.objects import NODES, Pod, PodIP, PodSpec, PodStatus
from controllers.nodes import node_existence
from controllers.nodes.node_view import NodeView
from controllers.nodes.nodes import Nodes
from ipam.allocator.hosts import release_host_affinities
from ipam.allocator.library_assign import AssignRequest, auto_assign
from ipam.allocator.release import release_by_handle
from ipam.records import blocks
from ipam.records.errors import IPAMError
from ipam.records.tunnel_kinds import VXLAN
from libcalico.datastore.interface import Change, CommitConflict, Delete, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.kubernetes.errors import ObjectNotFound, Unreachable
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Meta
from libcalico.kubernetes.objects import Node as KubernetesNode
from libcalico.model import HostEndpoint, HostEndpointSpec, Metadata, Node, NodeSpec
from libcalico.model.keys import AffinityKey, LifeSignKey, ResourceKey
from libcalico.model.resources.node import OrchRef
from libcalico.model.resources.status import LifeSign
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool
from tests.size import examples

GRACE = 120.0
HOSTS = {"n1": "n1", "n2": "kubernetes-2", "n3": "n3"}
"""Each Calico Node, and its name in Kubernetes."""
PODS = ("a", "b", "c")
ROUND, ROUNDS = 20.0, 40
"""Seconds between two looks when all is quiet, and how many there are."""


@dataclass
class Container:
    """A sandbox with its handles, and the addresses of each."""

    host: str
    handles: dict[str, set[str]] = field(default_factory=dict)
    first: str = ""


@dataclass
class Played:
    """A pod as the API has it, and the container that runs."""

    host: str
    told: str = ""
    evicted: bool = False
    container: Container | None = None


class World:
    """One cluster. `step` plays an event, and checks."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now, self.containers = 0.0, 0
        self.store = MemoryStore()
        self.store.before_commit, self.store.after_commit = self._before, self._after
        self.trouble: str = ""
        self.api_away = False
        self.kubernetes = set(HOSTS.values())
        self.down: set[str] = set()
        """Hosts whose machine is off."""
        self.pods: dict[str, Played] = {}
        self.untold: deque[Callable[[], None]] = deque()
        """What the watch of Nodes, of Kubernetes' nodes and of pods has not told yet."""
        client: Any = self
        self.view = NodeView(client, self.store)
        presence = node_existence.NodeExistence(self.store, client, clock=self.clock)
        self.part = Collection(
            self.view, client, self.store, grace=GRACE, clock=self.clock, presence=presence
        )
        self.nodes = Nodes(self.view, client, self.store, sync_labels=False, presence=presence)
        self.trace: list[str] = []

    def clock(self) -> float:
        return self.now

    # -- the store and the API ---------------------------------------------------------------------

    def _before(self, changes: Sequence[Change]) -> None:
        trouble = self.trouble
        if trouble in ("", "answer") or self.chance.random() < 0.5:
            return
        self.trouble = ""
        if trouble == "conflict":
            raise CommitConflict({c.key: self.store.entries.get(c.key) for c in changes})
        raise DatastoreUnavailable("played")

    def _after(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change.key, ResourceKey) and change.key.kind == "Node":
                value = change.value if isinstance(change, Put) else None
                self.untold.append(partial(self.view._node, change.key.name, value))
        if self.trouble == "answer" and self.chance.random() < 0.5:
            self.trouble = ""
            raise DatastoreUnavailable("played: the answer was lost")

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        """The API's answer."""
        if self.api_away:
            raise Unreachable("played")
        if resource is NODES:
            if name in self.kubernetes:
                return object()
        elif name in self.pods:
            return self._pod(name)
        raise ObjectNotFound(f"GET {name}", 404, "NotFound")

    def _pod(self, name: str) -> Pod:
        pod = self.pods[name]
        status = PodStatus(
            phase="Failed" if pod.evicted else "Running",
            reason="Evicted" if pod.evicted else "",
            podIP=pod.told,
            podIPs=[PodIP(pod.told)] if pod.told else None,
        )
        return Pod(
            metadata=Meta(name=name, namespace="s"),
            spec=PodSpec(nodeName=HOSTS[pod.host]),
            status=status,
        )

    def _tell_pod(self, name: str) -> None:
        key = Name("s", name)
        if name in self.pods:
            value = self._pod(name)
            self.untold.append(lambda: self.part._source.put(key, value))
        else:
            self.untold.append(lambda: self.part._source.gone(key))

    # -- events ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        await put_pool(self.store, "pool", "10.65.0.0/24", 29)
        for host in HOSTS:
            await self._register(host)
            name = Name("", HOSTS[host])
            self.view.put(name, KubernetesNode(metadata=Meta(name=HOSTS[host])))
        self.view._whole = self.view.reflector.has_listed = True
        self.part._source.reflector.has_listed = True
        self.see(True)
        self.hear()
        self.view._maybe_ready()
        for host in ("n1", "n2"):
            key = ResourceKey("HostEndpoint", host)
            await self.store.commit(
                [
                    Put(
                        key,
                        HostEndpoint(
                            metadata=Metadata(name=host), spec=HostEndpointSpec(node=host)
                        ),
                    )
                ]
            )
            self.view._endpoint(host, self.store.entries[key].value)

    def see(self, sees: bool) -> None:
        for reflector in (self.part._source.reflector, self.view.reflector):
            reflector.connected = sees

    def hear(self, count: int = 1000) -> None:
        while self.untold and count:
            self.untold.popleft()()
            count -= 1

    async def _register(self, host: str) -> None:
        key = ResourceKey("Node", host)
        if key not in self.store.entries:
            refs = [OrchRef(nodeName=HOSTS[host], orchestrator="k8s")]
            made = Node(metadata=Metadata(name=host), spec=NodeSpec(orchRefs=refs))
            await self.store.commit([Put(key, made)])
        if not self.handle_of_tunnel(host):
            request = AssignRequest(host, VXLAN.handle_id(host), VXLAN.attributes(host), num4=1)
            await auto_assign(self.store, request)

    def handle_of_tunnel(self, host: str) -> bool:
        return VXLAN.handle_id(host) in self.held().values()

    async def start(self, name: str, host: str) -> None:
        """A container of a pod starts; the one before is dead by now."""
        if host in self.down or ResourceKey("Node", host) not in self.store.entries:
            return
        pod = self.pods.get(name)
        if pod is None:
            pod = self.pods[name] = Played(host)
            self._tell_pod(name)
        if pod.host != host or pod.evicted:
            return
        if pod.container is not None:
            await self.end(name)
        self.containers += 1
        container = Container(host)
        for network in ("net", "other")[: self.chance.randint(1, 2)]:
            handle = f"{network}.c{self.containers}"
            attributes = {"node": host, "namespace": "s", "pod": name}
            got = await auto_assign(self.store, AssignRequest(host, handle, attributes, num4=1))
            container.handles[handle] = {str(one.ip) for one in got.ipv4}
            container.first = container.first or str(got.ipv4[0].ip)
        pod.container = container
        if self.chance.random() < 0.7:
            self.report(name)

    def report(self, name: str) -> None:
        """The kubelet tells the address of the pod's first network."""
        pod = self.pods[name]
        if pod.container is not None and pod.told != pod.container.first:
            pod.told = pod.container.first
            self._tell_pod(name)

    async def end(self, name: str) -> None:
        """A container dies, with a DEL or without one."""
        pod = self.pods[name]
        container, pod.container = pod.container, None
        if container is not None and self.chance.random() < 0.5:
            for handle in container.handles:
                await release_by_handle(self.store, handle)

    async def step(self, event: str, name: str = "", host: str = "") -> None:
        """One event, of a pod or a host, by chance where none is named."""
        chance = self.chance
        name, host = name or chance.choice(PODS), host or chance.choice(list(HOSTS))
        self.trace.append(f"{event} {name} {host}")
        happens = getattr(self, "pod_" + event, None)
        if happens is not None:
            if name in self.pods:
                await happens(name)
        else:
            await getattr(self, event)(host)
        await self.work(chance.choice(("", "", "away", "conflict", "answer")))
        self.check()

    async def add(self, host: str) -> None:
        name = self.chance.choice(PODS)
        await self.start(name, self.pods[name].host if name in self.pods else host)

    async def pod_delete(self, name: str) -> None:
        await self.end(name)
        del self.pods[name]
        self._tell_pod(name)

    async def pod_evict(self, name: str) -> None:
        await self.end(name)
        self.pods[name].evicted = True
        self._tell_pod(name)

    async def pod_report(self, name: str) -> None:
        self.report(name)

    async def hear_some(self, _: str) -> None:
        self.hear(self.chance.randint(1, 4))

    async def blind(self, _: str) -> None:
        self.see(not self.part._source.reflector.connected)

    async def away(self, _: str) -> None:
        self.api_away = not self.api_away

    async def delete_node(self, host: str) -> None:
        """An operator deletes the Node; its machine runs on."""
        await self.store.commit([Delete(ResourceKey("Node", host))])

    async def register(self, host: str) -> None:
        if host not in self.down:
            await self._register(host)

    async def leave(self, host: str) -> None:
        self.kubernetes.discard(HOSTS[host])
        self.untold.append(lambda: self.view.gone(Name("", HOSTS[host])))

    async def join(self, host: str) -> None:
        if host not in self.down:
            self.kubernetes.add(HOSTS[host])
            node = KubernetesNode(metadata=Meta(name=HOSTS[host]))
            self.untold.append(lambda: self.view.put(Name("", HOSTS[host]), node))

    async def sign(self, host: str) -> None:
        if host not in self.down:
            await self.store.commit([Put(LifeSignKey(host), LifeSign(bootID="a"))])

    async def no_sign(self, host: str) -> None:
        await self.store.commit([Delete(LifeSignKey(host))])

    async def on(self, host: str) -> None:
        self.down.discard(host)

    async def off(self, host: str) -> None:
        """A machine loses its power: its pods die, and Kubernetes deletes them with the node."""
        self.down.add(host)
        await self.store.commit([Delete(LifeSignKey(host))])
        for name in [one for one, pod in self.pods.items() if pod.host == host]:
            del self.pods[name]
            self._tell_pod(name)

    async def wait(self, _: str) -> None:
        """Time goes by; a kubelet tells and a watch hears within a minute."""
        seconds = self.chance.choice((11, 61, 61, 130))
        self.now += seconds
        if seconds > 60:
            for name in self.pods:
                self.report(name)
            self.hear()

    async def work(self, trouble: str) -> None:
        """A look, and what the controller of nodes has to do."""
        self.trouble = trouble
        for name in list(self.nodes.queue._waiting):
            self.nodes.queue._waiting.pop(name)
            if not await self.nodes._settle(name):
                self.nodes.queue.add(name)
        for name in self.nodes._doubtful:
            self.nodes.queue.add(name)
        try:
            await self.part.look()
        except (DatastoreUnavailable, CommitConflict, IPAMError):
            pass
        self.trouble = ""

    # -- what must hold ----------------------------------------------------------------------------

    def held(self) -> dict[str, str]:
        """Handles by address."""
        return {
            str(one.address): one.handle_id
            for block in self.store.blocks().values()
            for one in blocks.allocations(block)
        }

    def wanted(self) -> dict[str, str]:
        """The same of all containers that live."""
        return {
            address: handle
            for pod in self.pods.values()
            if pod.container is not None
            for handle, addresses in pod.container.handles.items()
            for address in addresses
        }

    def check(self) -> None:
        held = self.held()
        assert self.wanted().items() <= held.items(), self.trace
        for block in self.store.blocks().values():
            assert not blocks.problem(block)

    async def quiet(self) -> None:
        """All is well again, and time goes by."""
        self.api_away = False
        self.see(True)
        for host in HOSTS:
            await (self.leave(host) if host in self.down else self.join(host))
        for name, pod in list(self.pods.items()):
            await self.register(pod.host)
            if pod.container is None and not pod.evicted:
                await self.start(name, pod.host)
        for _ in range(ROUNDS):
            self.now += ROUND
            for host in HOSTS.keys() - self.down:
                await self._register(host)
            for name in self.pods:
                self.report(name)
            self.hear()
            for one in self.view.nodes.keys() | self.view.endpoints.keys():
                self.nodes.queue.add(one)
            await self.work("")
            self.check()
        held, wanted = self.held(), self.wanted()
        there = [one for one in HOSTS if one not in self.down]
        tunnels = {VXLAN.handle_id(one) for one in there}
        rest = {address: one for address, one in held.items() if address not in wanted}
        assert set(rest.values()) == tunnels, (rest, self.trace)
        assert len(rest) == len(there)
        assert self.part.nodes_held == 0, (self.part._presence.waiting, self.trace)
        claimed = {key.host for key in self.store.entries if isinstance(key, AffinityKey)}
        assert claimed <= set(there), (claimed, self.trace)


EVENTS = (
    ["add"] * 6 + ["delete", "hear_some", "wait"] * 3
    + ["evict", "report", "blind", "away", "delete_node", "register", "leave", "join"]
    + ["sign", "no_sign", "off", "on"]
)  # fmt: skip


async def _play(seed: int) -> None:
    world = World(seed)
    await world.begin()
    for _ in range(world.chance.randint(5, 40)):
        await world.step(world.chance.choice(EVENTS))
    await world.quiet()


def test_addresses_of_the_living_stay_and_all_others_come_back() -> None:
    for seed in range(examples(90)):
        asyncio.run(_play(seed))


@pytest.mark.parametrize("events", [["off n1", "delete_node n1"], ["off n1", "leave n1"]])
@pytest.mark.parametrize("comparison", [20.0, 300.0])
def test_a_node_that_is_gone_loses_all_however_often_everything_is_compared(
    events: list[str], comparison: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEAK-6: with a reconcilerPeriod below a minute a node with host endpoints was never gone."""
    monkeypatch.setattr(f"{__name__}.ROUND", comparison)

    async def play() -> None:
        world = World(0)
        await world.begin()
        await world.start("a", "n1")
        for event, host in map(str.split, events):
            await world.step(event, host=host)
        await world.quiet()

    asyncio.run(play())


def test_a_node_that_gave_everything_back_itself_is_not_told_as_held() -> None:
    async def play() -> None:
        world = World(0)
        await world.begin()
        await world.sign("n3")
        await world.delete_node("n3")
        world.hear()
        for _ in range(3):
            await world.wait("")
            await world.work("")
        assert world.part.nodes_held == 1
        await release_by_handle(world.store, VXLAN.handle_id("n3"))
        await release_host_affinities(world.store, "n3")
        await world.work("")
        assert world.part.nodes_held == 0

    asyncio.run(play())
