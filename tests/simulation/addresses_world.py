"""Nodes, their calico-cni and calico-node, and kube-controllers over one store: who has an address.

Real are the whole daemon of calico-cni (allocator, collector, journal), of calico-node what keeps
the Node and gives signs of life, and the whole process of kube-controllers; each node has a
simulated machine of its own. Played are the runtime, the kubelets, operators, and a machine that
was cloned. `Ledger` knows which pods live, and looks at every change of a block.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from cni.node.daemon_context import Settings, check_node_known
from cni.node.records import Record
from cni.pods.endpoint import EndpointWriter, remover
from cni.pods.pod_source import PodFacts, RuntimePodSource
from cni.request.attachment import Attachment
from cni.request.errors import CNIError
from cni.server.daemon import Daemon
from controllers.process import Options, Process
from ipam.allocator.requests import Allocate, Release
from ipam.records.errors import IPAMError
from ipam.records.naming import pod_attributes
from libcalico.datastore.interface import Datastore
from libcalico.errors import MuslinError
from libcalico.local import framing
from libcalico.local.listening import serve_unix
from libcalico.local.node_api import Vanished
from libcalico.model.keys import ResourceKey
from node.identity import life, life_sign
from node.settings import environment
from node.start import addresses, node_object, own_node
from tests.simulation import cluster, edges
from tests.simulation.kernel.machine import Machine
from tests.simulation.kernel.state import Refused
from tests.simulation.ledger import Ledger, Pod
from tests.simulation.runner import Run
from tests.simulation.stores import http
from tests.simulation.stores.weather import Weather

POOL = "10.65.0.0/27"
GRACE = "30s"


@dataclass
class Node:
    """One machine that bears a node's name, and what of Calico runs on it."""

    world: World
    name: str
    address: str
    machine: Machine
    folder: Path
    weather: Weather
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    daemon: Daemon | None = None
    busy: set[str] = field(default_factory=set)
    line: framing.Connection | None = None
    """Of its calico-cni to felix."""

    def __post_init__(self) -> None:
        self.context = edges.WORLD.on(self.machine)
        self.context.run(self._wire)

    def _wire(self) -> None:
        space = self.machine.namespace
        eth0 = space.add_cable("eth0", "02:00:00:00:00:99", 1500, up=True)
        space.set_peer(eth0, up=True)
        space.add_address(eth0.index, IPv4Interface(self.address))

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task on this machine."""
        task = asyncio.get_running_loop().create_task(
            work, name=f"{name} of {self.name}", context=self.context.copy()
        )
        return task

    def start(self) -> None:
        """calico-cni and calico-node."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tasks = [self.begin(self._cni(), "cni"), self.begin(self._node(), "node")]
        for task in self.tasks:
            task.add_done_callback(self.world.heard)

    async def stop(self) -> None:
        """They are killed; links stay."""
        tasks, self.tasks, self.daemon = self.tasks, [], None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _cni(self) -> None:
        run = self.folder
        (run / "nodename").write_text(self.name)
        settings = Settings(
            run / "nodename", run / "mtu", run / "cni.sock", run / "node.sock",
            run / "endpoint-status", run / "pending", run / "status", host=run / "host",
            attachments=run / "attachments",
        )  # fmt: skip
        store = self.world.store(self.weather)
        daemon = Daemon(store, self.name, settings, RuntimePodSource())
        self.daemon = daemon
        felix = await serve_unix(run / "node.sock", self._felix)
        try:
            await daemon.run()
        finally:
            await felix.close()

    async def _felix(self, connection: framing.Connection) -> None:
        """felix, which tells of the endpoints that went, and of nothing else."""
        self.line = connection
        try:
            async for _ in connection:
                pass
        finally:
            if self.line is connection:
                self.line = None

    def vanished(self, key: ResourceKey, container: str) -> None:
        """felix hears that an endpoint went."""
        if self.line is not None:
            self.line.send_now(Vanished(key.namespace, key.name, container))

    async def _node(self) -> None:
        store = self.world.store(self.weather)
        chosen = environment.settings(
            {"IP": "autodetect", "CALICO_K8S_NODE_REF": self.name, "NO_DEFAULT_POOLS": "true"}
        )
        while True:
            try:
                await node_object.register(store, self.name, chosen, await addresses.look())
                break
            except MuslinError as error:
                self.world.run.trace.story(f"{self.name}: not registered: {error}")
                await asyncio.sleep(2)
        keeper = own_node.Keeper(
            store, self.name, chosen, warn=self._warn, makes=not self.world.cluster.kubernetes
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run())
            if not self.world.cluster.kubernetes:
                group.create_task(self._signs(store))

    async def _signs(self, store: Datastore) -> None:
        signs = life_sign.Signs(store, self.name, self._warn)
        while True:
            with contextlib.suppress(MuslinError):
                await signs.give()
            await asyncio.sleep(life.INTERVAL)

    def _warn(self, what: str, why: str) -> None:
        self.world.run.trace.story(f"{self.name}: warns of {what}: {why}")

    # -- the runtime ------------------------------------------------------------------------------

    async def add(self, name: str, fixed: tuple[IPv4Address, ...] = ()) -> None:
        """A pod starts here, or does not; `fixed`: with the address that it asks for."""
        daemon, world = self.daemon, self.world
        if daemon is None:
            return
        world.containers += 1
        container = f"{world.containers:064x}"
        attachment = Attachment(self.name, "k8s-pod-network", container, "eth0", "default", name)
        world.newest[str(attachment.endpoint_key)] = attachment
        await world.cluster.pod(name, self.name, {"app": "x"})
        pod = Pod(name, self.name, attachment.handle_id, attachment)
        writer = EndpointWriter(attachment, PodFacts(), "aa:bb:cc:dd:ee:01")
        story = world.run.trace.story
        story(f"{self.name}: ADD {name}")
        try:
            async with daemon.server.container_lock(container):
                await daemon.context.cluster.require_ready(3)
                check_node_known({"nodename": self.name}, daemon.context.cluster, self.name)
                allocation = Allocate(
                    attachment.handle_id,
                    pod_attributes(self.name, "default", name, time.time_ns()),
                    namespace="default",
                    companion=writer.companion(),
                    fixed=fixed,
                )
                ticket = daemon.context.allocator.submit(allocation)
                self._link(attachment, there=True)
                async with asyncio.timeout(10):
                    granted = await ticket.done
                pod.address = granted.addresses[0]
                context = daemon.context
                context.records.refuse_taken(granted.addresses, attachment)
                assert writer.written is not None
                link, addresses = attachment.host_interface, tuple(granted.addresses)
                context.records.remember(Record(attachment, link, addresses, writer.written.value))
                world.ledger.lives(pod)
            story(f"{self.name}: ADD {name} has {pod.address}")
            world.cluster.running(name, str(pod.address))
        except (MuslinError, CNIError, IPAMError, TimeoutError, Refused) as error:
            story(f"{self.name}: ADD {name} failed: {type(error).__name__} {error}")
            self._link(attachment, there=False)
            await self._release(attachment)
            await world.cluster.pod_gone(name, self.name)

    def _link(self, attachment: Attachment, *, there: bool) -> None:
        space, interface = self.machine.namespace, attachment.host_interface
        if there:
            link = space.add_cable(interface, "ee:ee:ee:ee:ee:ee", 1450, up=True)
            link.alias = attachment.mark
            return
        with contextlib.suppress(Refused):
            space.delete_link(space.named(interface))

    async def delete(self, pod: Pod) -> None:
        """A pod ends here."""
        self.world.run.trace.story(f"{self.name}: DEL {pod.name}")
        self.world.ledger.dies(pod)
        self._link(pod.attachment, there=False)
        await self._release(pod.attachment)
        await self.world.cluster.pod_gone(pod.name, self.name)

    async def _release(self, attachment: Attachment) -> None:
        """As a DEL does, again and again until it is done (the journal)."""
        for _ in range(40):
            daemon = self.daemon
            if daemon is not None:
                with contextlib.suppress(MuslinError, IPAMError, TimeoutError):
                    async with (
                        daemon.server.container_lock(attachment.container_id),
                        asyncio.timeout(5),
                    ):
                        daemon.context.records.drop(attachment)
                        release = Release(attachment.handle_id, companion=remover(attachment))
                        await daemon.context.allocator.perform(release)
                        return
            await asyncio.sleep(2)

    def lose_power(self) -> None:
        """All links go, and with them all pods."""
        space = self.machine.namespace
        for link in [one for one in space.links.values() if one.name.startswith("cali")]:
            space.delete_link(link)
        for pod in self.world.ledger.of(self.name):
            self.world.ledger.dies(pod)


@dataclass
class World:
    """The cluster of one seed."""

    run: Run
    cluster: cluster.Cluster
    nodes: dict[str, Node] = field(default_factory=dict)
    containers: int = 0
    clients: int = 0
    controllers: list[asyncio.Task[Any]] = field(default_factory=list)
    ending: bool = False
    renamed: bool = False
    starting: set[str] = field(default_factory=set)
    newest: dict[str, Attachment] = field(default_factory=dict)
    """The last attachment of each endpoint."""
    contested: set[IPv4Network] = field(default_factory=set)
    """Blocks that were deleted and that a pod elsewhere asks for: their claims stay."""
    clones: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.run.trace, self.cluster)
        self.weather = Weather(self.run.chance, slow=0.01)

    def store(self, weather: Weather) -> Datastore:
        """A client of its own."""
        return self.cluster.store(weather)

    def heard(self, task: asyncio.Task[Any]) -> None:
        """A part ended."""
        if not task.cancelled() and task.exception() is not None and not self.ending:
            self.run.trace.fail(f"{task.get_name()} ended: {task.exception()!r}")

    def heard_of(self, change: str) -> None:
        """A change of etcd: felix tells of each endpoint that goes, also where a DEL takes it."""
        if "/workloadendpoints/" not in change or not change.endswith(" None"):
            return
        for attachment in self.newest.values():
            key = attachment.endpoint_key
            if f"/{key.namespace}/{key.name} " in change:
                self.nodes[attachment.node].vanished(key, attachment.container_id)

    def add_node(self, name: str, address: str, *, machine: str = "") -> Node:
        """A machine more, perhaps a clone of another one's name."""
        made = Machine(self.run.machine.entered, log=self.run.trace.detail)
        made.host = machine or name
        made.boot = f"boot-{made.host}"
        edges.WORLD.machines.append(made)
        loop, chance = self.run.loop, self.run.chance

        def later(act: Callable[[], None]) -> None:
            loop.call_later(chance.random() * 0.02, act)

        made.namespace.later = later
        weather = Weather(chance, slow=chance.choice((0.002, 0.02, 0.2)))
        return Node(self, name, address, made, self.run.folder / (machine or name), weather)

    def start_controllers(self) -> None:
        """kube-controllers; a process that loses its lease ends and is started again."""
        self.controllers = [asyncio.create_task(self._controllers(), name="kube-controllers")]
        self.controllers[0].add_done_callback(self.heard)

    async def stop_controllers(self) -> None:
        """Killed."""
        tasks, self.controllers = self.controllers, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _controllers(self) -> None:
        options = Options(None, 0, native=self.cluster.kubernetes)
        while True:
            store = self.store(self.weather)
            self.clients += 1
            name = f"controllers{self.clients}"
            client = await http.client(self.cluster.api, self.weather, name, self.run.folder)
            process = Process(store, client, {"ENABLED_CONTROLLERS": "node"}, options)
            try:
                await process.run()
            except* MuslinError as group:
                self.run.trace.story(f"kube-controllers end: {group.exceptions[0]}")
            await asyncio.sleep(1)


async def run(run: Run) -> None:
    """One seed."""
    from tests.simulation import addresses_story

    await addresses_story.play(run)
