"""One node: the real felix between a simulated kernel, store, calico-cni and calico-bgp.

calico-cni is played with its real parts (the endpoint that is written, the line to felix, the cable
and its routes) in the order of an ADD and a DEL; the speaker with the real framing. Everybody acts
when the seed says so. Then all is quiet for a while, without a refresh as a rule, and the kernel is
compared with what the store and the pods ask for (`felix_wanted`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from cni.node.felix_client import FelixClient, Subject
from cni.pods.endpoint import EndpointWriter, remover
from cni.pods.pod_source import PodFacts
from cni.request.attachment import Attachment
from cni.veth import wiring
from felix.agent import Agent, Paths
from libcalico.datastore.interface import CommitConflict, Datastore, revision_of
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.process import paths
from linux.errors import KernelError
from linux.netlink import Socket
from tests.simulation import cluster, felix_wanted
from tests.simulation.kernel.rows import Route
from tests.simulation.kernel.state import KERNEL, MAIN, UNICAST, UNIVERSE
from tests.simulation.runner import Run
from tests.simulation.speaker import Speaker
from tests.simulation.stores.weather import Weather

NODE, NODE_ADDRESS = "node1", "10.99.0.1"
POOL, BLOCK = "10.65.0.0/16", "10.65.0.0/26"
REMOTE = {"10.65.1.0/26": "10.99.0.2", "10.65.2.0/26": "10.99.0.3"}
PODS = ("web", "db", "job")
QUIET = 16.0
ROUTES_READ = (0.1, 1, 3, 12, 90, 90, 90)
"""Seconds between two read-backs of the routes. With the first one there are some within ADDs, and
with the last ones what felix does not hear of stays wrong."""
EXCUSED = 12.0
"""Seconds after trouble in which an ADD may begin that fails."""
COLOURS = ("red", "blue", "green")


@dataclass
class Pod:
    """A pod as its runtime knows it. `asked`: wanted from the offer on, until its DEL begins;
    `deleted`: a DEL of it was done.
    """

    name: str
    container: str
    address: IPv4Address
    attachment: Attachment
    labels: dict[str, str]
    asked: bool = False
    stored: bool = False
    running: bool = False
    deleted: bool = False


@dataclass
class Node:
    """The world of one seed."""

    run: Run
    cluster: cluster.Cluster
    weather: Weather
    pods: dict[str, Pod] = field(default_factory=dict)
    disturbed: dict[str, float] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    containers: int = 0
    felix: asyncio.Task[object] | None = None
    agent: Agent | None = None
    policies: dict[str, dict[str, object]] = field(default_factory=dict)
    readable: dict[int, dict[str, object]] = field(default_factory=dict)
    garbage: set[str] = field(default_factory=set)
    operator: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One write at a time, so that the store has them in the order in which they are noted."""
    pool_disabled: bool = False
    restarting: bool = False
    past: list[Pod] = field(default_factory=list)
    troubles: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = self.run.chance
        self.undoing: asyncio.Task[None] | None = None
        self.speaker = Speaker(self.run, REMOTE)
        self.client = FelixClient(paths.NODE_SOCKET, paths.ENDPOINT_STATUS)
        self.host = Socket()
        self.store: Datastore = self.cluster.store(self.weather)
        self.environment = {
            **self.cluster.environment,
            "FELIX_NFTABLESMODE": "Disabled",
            "FELIX_IPTABLESBACKEND": "Legacy",
            "FELIX_IPV6SUPPORT": "false",
            "FELIX_ENDPOINTSTATUSPATHPREFIX": str(paths.RUN),
            "FELIX_HEALTHENABLED": "false",
            "FELIX_PROMETHEUSMETRICSENABLED": "false",
            "FELIX_ROUTEREFRESHINTERVAL": str(self.chance.choice(ROUTES_READ)),
            "FELIX_INTERFACEREFRESHINTERVAL": str(self.chance.choice((5, 20, 90))),
            "FELIX_IPTABLESREFRESHINTERVAL": str(self.chance.choice((7, 30, 180))),
            "FELIX_IPSETSREFRESHINTERVAL": str(self.chance.choice((9, 30, 90))),
        }

    # -- beginnings ------------------------------------------------------------------------------

    def build_machine(self) -> None:
        """The links and routes of a host."""
        space = self.run.machine.namespace
        eth0 = space.add_cable("eth0", "02:00:00:00:00:99", 1500, up=True)
        space.set_peer(eth0, up=True)
        space.add_address(eth0.index, IPv4Interface(f"{NODE_ADDRESS}/24"))
        gateway = IPv4Address("10.99.0.254")
        default = Route(IPv4Network("0.0.0.0/0"), 0, gateway, UNICAST, MAIN, KERNEL, UNIVERSE, 0)
        space.put_route(default, create=True, replace=False, exclusive=False)
        space.set_flags(space.links[1], up=True)

    async def build_cluster(self) -> None:
        """What is stored before felix starts."""
        made = self.cluster
        await made.ready()
        spec = {"cidr": POOL, "ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": True}
        await made.resource("IPPool", "pool", {**spec, "nodeSelector": "all()"})
        await made.node(NODE, f"{NODE_ADDRESS}/24")
        await made.block(BLOCK, NODE)
        for number, (cidr, address) in enumerate(REMOTE.items(), 2):
            await made.node(f"node{number}", f"{address}/24")
            await made.block(cidr, f"node{number}")
        if not made.kubernetes:
            open_ = {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]}
            await made.resource("Profile", "kns.default", open_)
            await made.resource("Profile", "ksa.default.default", {})

    def start_felix(self) -> None:
        """A felix, perhaps the next one."""
        files = (paths.NODE_SOCKET, paths.FELIX_CONFIG, paths.STATUS, paths.LAST_READABLE)
        where = Paths(*files, flow_accounting=paths.PRIVATE / "flow-accounting")
        agent = self.agent = Agent(NODE, self.environment, where, self.cluster.opener(self.weather))
        self.felix = asyncio.create_task(agent.run(), name="felix")
        self.felix.add_done_callback(self._felix_ended)

    def _felix_ended(self, task: asyncio.Task[object]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.run.trace.fail(f"felix ended: {task.exception()!r}")

    async def stop_felix(self) -> None:
        """As a kill would, but for what it does in `finally`."""
        assert self.felix is not None
        self.felix.cancel()
        await asyncio.wait([self.felix])

    # -- calico-cni --------------------------------------------------------------------------------

    def facts(self, pod: Pod) -> PodFacts:
        """What calico-cni knows of a pod."""
        return PodFacts(labels=dict(pod.labels))

    async def add(self, name: str) -> None:
        """An ADD from its beginning to its answer, or its undo; of a pod that runs: that of its
        newer sandbox, for which the older one's link has to go.
        """
        older = self.pods.get(name)
        self.containers += 1
        container = f"{self.containers:064x}"
        used = {pod.address for pod in self.pods.values()}
        free = [a for n in range(1, 7) if (a := IPv4Address("10.65.0.0") + n) not in used]
        labels = older.labels if older else {"colour": self.chance.choice(COLOURS)}
        attachment = Attachment(NODE, "k8s-pod-network", container, "eth0", "default", name)
        pod = Pod(name, container, self.chance.choice(free), attachment, labels)
        self.pods[name] = pod
        story = self.run.trace.story
        story(f"cni: ADD {name} {pod.address} {attachment.host_interface} {labels}")
        if older is None:
            await self.cluster.pod(name, NODE, labels)
        else:
            older.asked = older.running = False
            self.past.append(older)
        writer = EndpointWriter(attachment, self.facts(pod), "aa:bb:cc:dd:ee:01")
        subject = Subject("default", attachment.endpoint_key.name, container)
        change = writer.change(None, [pod.address])
        pod.asked = True
        began = self.run.clock.now

        def offer() -> None:
            self.client.offer(subject, writer.stored_bytes(), wired=True)

        # What felix says while an older sandbox's link stands is no word about the new one.
        early = offer if older is None else None
        if early is not None:
            early()
        again = next((one for one in reversed(self.past) if one.name == name), None)
        if again is not None and self.chance.random() < 0.5:
            self.undoing = asyncio.create_task(self.undo(again, within=0.3))
        commit = asyncio.create_task(self._store(writer, change, pod, early))
        try:
            await self._pause(0.002)
            if older is not None:
                remove, link = wiring.remove_stale, attachment.host_interface
                await asyncio.get_running_loop().run_in_executor(None, remove, link, None)
            ends = self._wire(pod)
            if older is not None:
                self.client.expect(subject)
                offer()
            await self._pause(0.002)
            revision = await commit
            pod.stored = True
            refusal = await self.client.in_force(subject, 20)
            if refusal:
                raise MuslinError(refusal)
            self._must_be_ruled(pod)
            wiring.add_host_routes(
                self.host, attachment.host_interface, ends.host, self.client.routes(subject)
            )
            self._must_be_led(pod)
        except (MuslinError, KernelError, TimeoutError) as error:
            story(f"cni: ADD {name} failed: {error}")
            excused = any(began - EXCUSED < time for time in self.troubles)
            if not (self.weather.away or excused):
                self.run.trace.fail(f"ADD {name} failed, and nothing was wrong: {error}")
            await asyncio.wait([commit])
            with contextlib.suppress(BaseException):
                commit.result()
            await self._unwind(pod)
            return
        self.client.stored(subject, revision)
        pod.running = True
        story(f"cni: ADD {name} done")
        await self._pause(0.05)
        self.cluster.running(name, str(pod.address))

    def _must_be_ruled(self, pod: Pod) -> None:
        """Felix has just said so."""
        lacking = felix_wanted.lacking_rules(self.run.machine, pod.attachment.host_interface)
        if lacking and self._calm(pod.name):
            self.run.trace.fail(
                f"felix said that {pod.name} is in force; the kernel lacks {lacking}"
            )

    def _must_be_led(self, pod: Pod) -> None:
        """The routes that felix left to us are written, and it has said that there is the rest."""
        if felix_wanted.route_to(self.run.machine, pod) is None and self._calm(pod.name):
            self.run.trace.fail(f"felix said that {pod.name} is in force; it has no route")

    async def _store(
        self, writer: EndpointWriter, change: object, pod: Pod, offer: Callable[[], None] | None
    ) -> int:
        while True:
            try:
                revision = await self.store.commit([change])  # type: ignore[list-item]
                return revision_of(revision, writer.key)
            except CommitConflict as conflict:
                current = conflict.current[writer.key]
                change = writer.change(current, [pod.address])
                if offer is not None:
                    offer()

    def _wire(self, pod: Pod) -> wiring.VethPair:
        spec = wiring.VethSpec(
            pod.attachment.host_interface, "eth0", pod.attachment.mark, "aa:bb:cc:dd:ee:01", 1450
        )
        ends = wiring.create(self.host, 0, spec)
        space = self.run.machine.namespace
        space.set_peer(space.named(spec.host_interface), up=True)
        return ends

    async def _unwind(self, pod: Pod) -> None:
        pod.asked = pod.running = False
        with contextlib.suppress(KernelError):
            wiring.remove(pod.attachment.host_interface, pod.attachment.mark)
        self.client.retract(self._subject(pod))
        await self._release(pod)
        if self.pods.get(pod.name) is pod:
            del self.pods[pod.name]
        await self.cluster.pod_gone(pod.name, NODE)

    def _subject(self, pod: Pod) -> Subject:
        return Subject("default", pod.attachment.endpoint_key.name, pod.container)

    async def delete(self, name: str) -> None:
        """A DEL of a running pod."""
        pod = self.pods[name]
        self.run.trace.story(f"cni: DEL {name}")
        pod.asked = pod.running = False
        await self._take_down(pod)
        self.past.append(pod)
        if self.pods.get(name) is pod:
            del self.pods[name]
        await self._pause(0.01)
        await self.cluster.pod_gone(name, NODE)
        self.run.trace.story(f"cni: DEL {name} done")

    async def undo(self, pod: Pod, within: float = 0.0) -> None:
        """A DEL of what is gone already, so many seconds later at most."""
        await self._pause(self.chance.choice((0.1, 1.0)) * within)
        self.run.trace.story(f"cni: DEL {pod.name} {pod.container[-4:]} again")
        await self._take_down(pod)

    async def _take_down(self, pod: Pod) -> None:
        removed = await asyncio.get_running_loop().run_in_executor(
            None, wiring.remove, pod.attachment.host_interface, pod.attachment.mark
        )
        await self._pause(0.002)
        self.client.retract(self._subject(pod), forgotten=removed)
        await self._pause(0.002)
        await self._release(pod)
        pod.deleted = True

    async def finish_deletes(self) -> None:
        """The runtime deletes the sandboxes that it replaced, late where nothing did before."""
        for pod in self.past:
            if not pod.deleted:
                await self.undo(pod)

    async def _release(self, pod: Pod) -> None:
        companion = remover(pod.attachment)
        while True:
            try:
                entry = await self.store.get(companion.key)
                change = companion.change(entry, ())
                if change is not None:
                    await self.store.commit([change])
                return
            except CommitConflict:
                continue
            except MuslinError:
                # The journal: later, again and again.
                await self._pause(1.0)

    # -- others -----------------------------------------------------------------------------------

    @property
    def felix_has_read(self) -> bool:
        """Whether this felix has read the datastore: before that it programs nothing."""
        return self.agent is not None and self.agent.calc.in_sync

    async def put_policy(self, name: str, to: str) -> None:
        """An operator says whom a colour takes packets from."""
        of = self.chance.choice((*COLOURS, ""))
        rule = {"action": "Allow", "source": {"selector": f"colour == '{of}'"}}
        spec = {
            "selector": f"colour == '{to}'",
            "types": ["Ingress"],
            "order": 10,
            "ingress": [rule] if of else [],
        }
        self.run.trace.story(f"operator: policy {name} {spec}")
        async with self.operator:
            revision = await self.cluster.resource("GlobalNetworkPolicy", name, spec)
            self.policies[name] = self.readable[revision] = spec
            self.garbage.discard(name)

    async def delete_policy(self, name: str) -> None:
        """An operator deletes it."""
        self.run.trace.story(f"operator: deletes policy {name}")
        async with self.operator:
            await self.cluster.delete(ResourceKey("GlobalNetworkPolicy", name))
            self.policies.pop(name, None)
            self.garbage.discard(name)

    def trouble(self) -> None:
        """Something that may make an ADD fail."""
        self.troubles.append(self.run.clock.now)

    def unhealed(self, seconds: float) -> float:
        """How long it is until every pod was left alone for so many seconds."""
        last = max(self.disturbed.values(), default=-seconds)
        return max(0.0, last + seconds - self.run.clock.now)

    def disturb(self, name: str) -> None:
        """Somebody else meddles with what is a pod's."""
        self.disturbed[name] = self.run.clock.now

    def meddle(self, network: IPv4Network) -> None:
        """Somebody else meddles with a route."""
        for name, pod in self.pods.items():
            if pod.address in network:
                self.disturb(name)

    def _calm(self, name: str) -> bool:
        return self.run.clock.now - self.disturbed.get(name, -100.0) > 5.0

    async def _pause(self, most: float) -> None:
        await asyncio.sleep(self.chance.random() * most)


async def run(run: Run) -> None:
    """One seed."""
    from tests.simulation import felix_story

    await felix_story.play(run)
