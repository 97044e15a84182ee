"""Every order of ADD, DEL and restart for the attachments of a few pods, against a plain model.

Real are the verbs ADD and DEL of `calico` and `calico-ipam`, their undo, the journal, what is
remembered of ADDs and DELs (`DelCache`, `Released`, `Records`), the allocator and IPAM. Played are
the kernel's links, felix, the runtime, and a store in memory that fails, loses answers, has rivals
and applies later what it swallowed. The runtime repeats ADDs and DELs, gives a pod a new sandbox
before the old one's DEL and leaves in the midst of an ADD; the daemon is killed.

At no commit does a living attachment lack its address, its endpoint, its link or felix' attention,
and no flow of it is forgotten: what an earlier sandbox's DEL or an undo takes is its own. When
every attachment had its DEL, and the journal was replayed, nothing is left of any.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cni.node import daemon_context, del_queue
from cni.node.del_cache import DelCache
from cni.node.del_queue import LATE_SECONDS, DelQueue
from cni.node.records import Records
from cni.node.released import FIRST, Released
from cni.pods.pod_requests import PREFIX
from cni.pods.pod_source import PodFacts
from cni.request.attachment import Attachment, attachment_of
from cni.request.errors import CNIError
from cni.request.request import Request, parse_request
from cni.server.dispatch import Dispatcher
from cni.socket.container_locks import ContainerLocks
from cni.socket.protocol import PendingDelete
from cni.socket.trace import Trace
from cni.verbs import add, delete, ipam_plugin, network_profile, pod_veth
from cni.verbs.pod_veth import PodVeth
from cni.veth import extra_routes, orphan_veths, pod_end, wiring
from ipam.allocator.service import NodeAllocator
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Change, CommitConflict, Entry, Listing, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.model.keys import Key, ResourceKey
from linux.errors import KernelError
from tests.cni.world import network_config
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool
from tests.size import examples

NODE = "node1"
ENDS = wiring.VethPair(1, 2, "ee:00:00:00:00:01", 1450)
REUSED = wiring.VethPair(1, 2, "ee:00:00:00:00:01", 1450, reused=True)
UNMANAGED = blocks.parse_address("192.0.2.7")
WANTS: tuple[dict[str, Any], ...] = (
    {},
    {"ipFamilies": ["IPv4", "IPv6"]},
    {"ipv4pools": ["b"]},
    {"ipAddrs": ["10.0.0.1"]},
    {"ipAddrs": ["10.0.0.1"]},
    {"ipAddrsNoIpam": [str(UNMANAGED)]},
)


class Store(MemoryStore):
    """One whose reads may fail, too."""

    def __init__(self, fails: Callable[[float], bool]) -> None:
        super().__init__()
        self.fails = fails

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        if self.fails(0.2):
            raise DatastoreUnavailable("played: a read")
        return await super().get_many(keys)

    async def list(self, selection: Selection) -> Listing:
        if self.fails(0.2):
            raise DatastoreUnavailable("played: a list")
        return await super().list(selection)


class Cluster:
    """Knows the node, and is never locked."""

    locked = False

    def facts(self, _: str) -> None:
        """Not known."""

    def __getattr__(self, _: str) -> Callable[..., Any]:
        async def at_once(*_: object) -> None:
            return None

        return at_once


@dataclass(eq=False)
class Container:
    """A sandbox: its attachments by interface, those of them that live, and whether it is over."""

    cid: str
    pod: str
    up: dict[str, frozenset[IPAddress]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    over: bool = False


class World:
    """One node, its runtime, and all that may go wrong. `line`: to a plugin on the host. `torn`: an
    operator deleted something that is not back yet.
    """

    line: Any = None
    torn = False

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance, self.folder = random.Random(seed), folder
        self.store = Store(self.fails)
        self.links: dict[str, str] = {}
        self.felix: dict[object, str] = {}
        self.late: list[Sequence[Change]] = []
        self.containers: list[Container] = []
        self.wants = {name: self.chance.choice(WANTS) for name in ("one", "two", "three")}
        self.trace: list[str] = []
        self.faults: list[str] = []
        """What a call met that goes on after any error; the next look tells it."""
        self.now, self.number = 1000.0, 0
        self.trouble = 0.0
        self.dead = False
        self.locks: dict[str, asyncio.Lock] = {}
        self.context: Any = None
        self.task: asyncio.Task[None] | None = None

    # -- what is played ----------------------------------------------------------------------------

    def fails(self, share: float = 1.0) -> bool:
        return self.dead or self.chance.random() < self.trouble * share

    def before(self, changes: Sequence[Change]) -> None:
        if self.dead:
            raise DatastoreUnavailable("the daemon is dead")
        if not self.fails():
            return
        kind = self.chance.choice(("conflict", "lost", "late"))
        self.trace.append(f"({kind})")
        if kind == "conflict":
            raise CommitConflict({c.key: self.store.entries.get(c.key) for c in changes})
        if kind == "late":
            self.late.append(changes)
        raise DatastoreUnavailable(f"played: {kind}")

    def after(self, _: Sequence[Change]) -> None:
        try:
            self.look()
        except AssertionError as error:
            self.faults.append(str(error))
        if self.fails(0.5):
            self.trace.append("(answer)")
            raise DatastoreUnavailable("played: the answer was lost")

    def remove_link(self, name: str, mark: str, **_: object) -> bool:
        if self.fails(0.3):
            raise KernelError(16, "played")
        if self.links.get(name) != mark:
            return False
        del self.links[name]
        return True

    async def removed(self, name: str, mark: str) -> bool:
        return self.remove_link(name, mark)

    async def make_link(self, veth: PodVeth, _: object) -> wiring.VethPair:
        if self.fails(0.3):
            raise KernelError(12, "played")
        await asyncio.sleep(0)
        if not self.dead:
            self.links[veth.spec.host_interface] = veth.spec.mark
        return ENDS

    def configure(self, *_: object) -> None:
        if self.fails(0.3):
            raise KernelError(12, "played")

    async def in_force(self, *_: object) -> str:
        await asyncio.sleep(0)
        if self.fails(0.3):
            raise TimeoutError
        return "played" if self.fails(0.3) else ""

    def tell(self, word: str) -> Callable[..., None]:
        def told(subject: object, *_: object, **__: object) -> None:
            if not self.dead:
                self.felix[subject] = word

        return told

    async def forget(self, addresses: Iterable[IPAddress]) -> None:
        living = {a for c in self.containers for own in c.up.values() for a in own}
        # Two pods may name one address that no pool gives.
        if wrong := living & set(addresses) - {UNMANAGED}:
            self.faults.append(f"flows of {sorted(map(str, wrong))} were forgotten")

    def record(self, request: Request) -> None:
        if not self.dead:
            DelQueue.record(self.context.journal, request)

    async def facts(self, request: Request) -> PodFacts:
        wanted = self.wants[attachment_of(request, NODE).pod]
        if request.ifname != "eth0":
            wanted = {}
        return PodFacts(annotations={PREFIX + k: json.dumps(v) for k, v in wanted.items()})

    # -- the daemon --------------------------------------------------------------------------------

    async def start(self) -> None:
        async def in_thread(work: Callable[..., object], *words: object) -> object:
            await asyncio.sleep(0)
            return work(*words)

        def keep(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
            return asyncio.ensure_future(work)

        allocator = NodeAllocator(self.store, NODE)
        journal = DelQueue(self.folder / "pending", self.replay)
        self.context = SimpleNamespace(
            node=NODE, host=None, keep=keep, check_store=lambda _: None, in_thread=in_thread,
            settings=SimpleNamespace(datastore_seconds=600.0, release_seconds=600.0),
            cluster=Cluster(), store=self.store, allocator=allocator, journal=journal,
            pod_source=SimpleNamespace(facts=self.facts),
            felix=SimpleNamespace(
                offer=self.tell("offer"), expect=lambda _: None, stored=self.tell("stored"),
                retract=self.tell("retract"), in_force=self.in_force, routes=lambda _: (),
                connected=True,
            ),
            records=Records(self.folder / "attachments"),
            del_cache=DelCache(), released=Released(lambda: self.now),
            flows=SimpleNamespace(forget=self.forget),
            veth_remover=SimpleNamespace(remove=self.removed),
        )  # fmt: skip
        journal.record = self.record  # type: ignore[method-assign]
        self.context.records.load()
        self.dispatcher = Dispatcher(self.context, ContainerLocks())
        self.task = asyncio.create_task(allocator.run())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def request(self, command: str, container: Container, ifname: str) -> Request:
        """`net2` is another main plugin's, with addresses of `calico-ipam`."""
        ours = ifname != "net2"
        config = network_config(
            {
                "type": "calico" if ours else "macvlan",
                "policy_setup_timeout_seconds": 1,
                "feature_control": {"ip_addrs_no_ipam": True},
            }
        )
        env = {
            "CNI_COMMAND": command, "CNI_CONTAINERID": container.cid, "CNI_NETNS": "/n",
            "CNI_IFNAME": ifname,
            "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={container.pod}",
        }  # fmt: skip
        return parse_request("calico" if ours else "calico-ipam", env, json.dumps(config))

    def lock(self, cid: str) -> asyncio.Lock:
        return self.locks.setdefault(cid, asyncio.Lock())

    async def replay(self, record: PendingDelete, file: Path) -> None:
        request = parse_request(record.argv0, {**record.env, "CNI_COMMAND": "DEL"}, record.stdin)
        async with self.lock(request.container_id):
            if file.exists():
                self.trace.append(f"replay {request.container_id} {request.ifname}")
                await self.dispatcher.replay(request)

    # -- what the runtime does ---------------------------------------------------------------------

    def living(self) -> list[tuple[Container, str]]:
        return [(c, ifname) for c in self.containers if not c.over for ifname in c.up]

    async def add(self, container: Container, ifname: str = "eth0") -> None:
        if container.over:
            return
        self.trace.append(f"add {container.cid} of {container.pod} {ifname}")
        container.called.add(ifname)
        request: Any = self.request("ADD", container, ifname)
        async with self.lock(container.cid):
            adding = self.dispatcher._add(self.line, request, 0, Trace("ADD"), 600.0)
            work = asyncio.create_task(adding)
            if self.chance.random() < self.trouble:
                for _ in range(self.chance.randrange(25)):
                    await asyncio.sleep(0)
                work.cancel()
            try:
                result = await work
            except (CNIError, asyncio.CancelledError) as error:
                self.trace.append(f"failed: {container.cid} {ifname} {error}")
                return
            own = frozenset(ip.address.ip for ip in result.ips)
            self.trace.append(f"{container.cid} {ifname} has {sorted(map(str, own))}")
            if ifname in container.up:
                assert own == container.up[ifname] or self.torn, self.trace
            container.up[ifname] = own
        self.look()

    async def delete(self, container: Container, ifname: str) -> None:
        self.trace.append(f"del {container.cid} {ifname}")
        async with self.lock(container.cid):
            container.up.pop(ifname, None)
            request = self.request("DEL", container, ifname)
            await self.dispatcher.delete(request, Trace("DEL"), self.line)

    # -- events ------------------------------------------------------------------------------------

    async def sandbox(self) -> None:
        """A pod gets a sandbox; an older one of it is dead, whether it had its DEL or not."""
        pod = self.chance.choice(sorted(self.wants))
        for older in self.containers:
            if older.pod == pod:
                older.over, older.up = True, {}
        self.number += 1
        container = Container(f"c{self.number}", pod)
        self.containers.append(container)
        await self.add(container)

    async def second(self) -> None:
        """A living container gets one more interface."""
        if living := self.living():
            await self.add(self.chance.choice(living)[0], self.chance.choice(("net1", "net2")))

    async def repeat(self) -> None:
        """ADD once more."""
        if living := self.living():
            await self.add(*self.chance.choice(living))

    async def end(self) -> None:
        """DEL of an interface that had an ADD, living or not, perhaps once more."""
        if self.containers:
            container = self.chance.choice(self.containers[-6:])
            await self.delete(container, self.chance.choice(sorted(container.called)))

    async def burst(self) -> None:
        """Several at once."""
        events = (self.sandbox, self.end, self.end, self.second, self.journal)
        await asyncio.gather(*(self.chance.choice(events)() for _ in range(3)))

    async def journal(self) -> None:
        await self.context.journal.replay_all()

    async def time(self) -> None:
        """Time passes; the store is awake by then."""
        await self.settle()
        self.now += self.chance.choice((5.0, LATE_SECONDS + 1, FIRST + 1))

    async def wake(self) -> None:
        """What the store swallowed is applied, where its guards still hold."""
        if self.late:
            self.trace.append("late")
            changes = self.late.pop(self.chance.randrange(len(self.late)))
            trouble, self.trouble = self.trouble, 0.0
            with suppress(CommitConflict):
                await self.store.commit(changes)
            self.trouble = trouble

    async def settle(self) -> None:
        while self.late:
            await self.wake()

    async def restart(self) -> None:
        """The daemon ends, or is killed in the midst of an ADD."""
        if self.chance.random() < 0.5:
            await self.killed()
        # What a killed daemon did not write is learned from the datastore (cni.verbs.recorded).
        self.context.records.flush()
        await self.settle()
        await self.stop()
        await self.start()
        self.trace.append("restarted")

    async def killed(self) -> None:
        self.number += 1
        container = Container(f"c{self.number}", "four", called={"eth0"}, over=True)
        self.wants["four"] = {}
        self.containers.append(container)
        request = self.request("ADD", container, "eth0")
        work = asyncio.create_task(
            add.add(self.context, request, 0, Trace("ADD"), 600.0, self.line)
        )
        for _ in range(self.chance.randrange(25)):
            await asyncio.sleep(0)
        self.dead = True
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        self.dead = False
        del self.wants["four"]
        self.trace.append(f"killed in the ADD of {container.cid}")

    # -- what must hold ----------------------------------------------------------------------------

    def held(self) -> dict[IPAddress, str]:
        return {
            one.address: one.handle_id
            for block in self.store.blocks().values()
            for one in blocks.allocations(block)
        }

    def endpoints(self) -> dict[str, Any]:
        return {
            key.name: entry.value
            for key, entry in self.store.entries.items()
            if isinstance(key, ResourceKey) and key.kind == "WorkloadEndpoint"
        }

    def attachment(self, container: Container, ifname: str) -> Attachment:
        return attachment_of(self.request("DEL", container, ifname), NODE)

    def look(self) -> None:
        held, endpoints, about = self.held(), self.endpoints(), self.trace
        assert not self.faults, (self.faults[0], about)
        for container, ifname in self.living():
            one, own = self.attachment(container, ifname), container.up[ifname]
            for address in own:
                if address != UNMANAGED:
                    assert held.get(address) == one.handle_id, (str(one), address, about)
            if ifname == "net2":
                continue
            endpoint = endpoints.get(one.endpoint_key.name)
            assert endpoint, (str(one), about)
            assert endpoint.spec.containerID == container.cid, (str(one), about)
            assert {blocks.parse_address(t) for t in endpoint.spec.ipNetworks} == own, about
            assert self.links.get(one.host_interface) == one.mark, (str(one), about)
            assert self.felix.get(delete.subject_of(one)) != "retract", (str(one), about)

    async def finish(self) -> None:
        self.trouble = 0.0
        for container in self.containers:
            for ifname in sorted(container.called):
                await self.delete(container, ifname)
        await self.settle()
        for _ in range(3):
            await self.journal()
            self.now += LATE_SECONDS + 1
        left = (self.held(), self.store.handles(), self.endpoints(), self.links)
        assert left == ({}, {}, {}, {}), (left, self.trace)
        assert self.context.journal.count() == 0, self.trace
        assert self.context.records.all() == [], self.trace
        await self.stop()


def played(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel and the clock are the world's."""
    put = monkeypatch.setattr
    for verb in (add, ipam_plugin):
        put(verb, "check_node_name", lambda *_: None)
    put(daemon_context, "check_node_known", lambda *_: None)
    put(network_profile, "is_wanted", lambda *_: False)
    put(pod_veth, "_node_mtu", lambda *_: 1450)
    put(PodVeth, "_make", lambda veth, pod: world.make_link(veth, pod))
    put(pod_end, "configure", world.configure)
    put(pod_end, "require_netns", lambda _: None)
    put(pod_end, "open_pod", lambda _: nullcontext(object()))
    put(extra_routes, "install", lambda *_: None)
    put(orphan_veths, "remove_in", lambda *_: False)
    put(wiring, "add_host_routes", lambda *_: None)
    put(wiring, "is_taken", lambda _, name: name in world.links)
    put(wiring, "remove", world.remove_link)
    put(
        wiring, "existing",
        lambda _, __, spec: REUSED if world.links.get(spec.host_interface) == spec.mark else None,
    )  # fmt: skip
    clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now,
                            monotonic_ns=lambda: int(world.now * 1e9))  # fmt: skip
    put(del_queue, "time", clock)


async def play(world: World, *more: Any) -> None:
    chance = world.chance
    await put_node(world.store, NODE)
    await put_pool(world.store, "a", "10.0.0.0/29", 30)
    await put_pool(world.store, "b", "10.1.0.0/30", 31)
    await put_pool(world.store, "six", "fd00::/126", 127)
    world.store.before_commit, world.store.after_commit = world.before, world.after
    await world.start()
    events: list[Any] = [
        world.second, world.repeat, world.burst, world.time, world.wake, world.restart,
        *[world.journal] * 2, *[world.sandbox] * 4, *[world.end] * 5, *more,
    ]  # fmt: skip
    for _ in range(chance.randint(5, 30)):
        world.trouble = chance.choice((0.0, 0.0, 0.2, 0.4))
        await chance.choice(events)()
        world.look()
    await world.finish()


def test_nothing_is_taken_from_the_living_and_nothing_left_of_the_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(examples(240)):
        world = World(seed, tmp_path / str(seed))
        played(world, monkeypatch)
        asyncio.run(play(world))


async def calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **wanted: Any) -> World:
    """A world of one pod, `one`, and no trouble."""
    world = World(0, tmp_path)
    world.wants["one"] = wanted
    played(world, monkeypatch)
    await put_node(world.store, NODE)
    await put_pool(world.store, "a", "10.0.0.0/29", 30)
    await world.start()
    world.containers.append(Container("c1", "one"))
    return world


@pytest.mark.asyncio
async def test_a_repeated_add_of_unknown_outcome_leaves_the_pod_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD-07: no DEL of it is remembered, which would end a pod that runs."""
    world = await calm(tmp_path, monkeypatch)
    (pod,) = world.containers
    await world.add(pod)
    world.store.before_commit = refusing
    await world.add(pod)
    assert world.context.journal.count() == 0
    world.store.before_commit = lambda _: None
    await world.journal()
    world.look()
    await world.finish()


@pytest.mark.asyncio
async def test_an_endpoint_that_comes_to_light_after_the_del_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-19 holds for addresses that no pool gave as well."""
    world = await calm(tmp_path, monkeypatch, ipAddrsNoIpam=[str(UNMANAGED)])
    (pod,) = world.containers

    def swallow(changes: Sequence[Change]) -> None:
        world.store.before_commit = lambda _: None
        world.late.append(changes)
        raise DatastoreUnavailable("played: late")

    world.store.before_commit = swallow
    await world.add(pod)
    await world.delete(pod, "eth0")
    await world.settle()
    assert world.endpoints()
    await world.finish()


@pytest.mark.parametrize("first", ["eth0", "net2"])
@pytest.mark.asyncio
async def test_interfaces_of_two_plugins_in_one_network_share_no_address(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-20, CNI-81: eth0 is `calico`'s, net2 another plugin's with `calico-ipam`; one handle."""
    world = await calm(tmp_path, monkeypatch)
    (pod,) = world.containers
    other = "net2" if first == "eth0" else "eth0"
    await world.add(pod, first)
    await world.add(pod, other)
    assert not pod.up[first] & pod.up[other]
    await world.add(pod, other)
    await world.delete(pod, first)
    world.look()
    await world.delete(pod, other)
    await world.finish()


def refusing(_: Sequence[Change]) -> None:
    """A store that takes no write."""
    raise DatastoreUnavailable("played: no answer")
