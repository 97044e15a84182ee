"""What exists in the model: hosts with a kernel and a disk, containers, the processes on them.

The kernel and the disk survive a crash of the process; a reboot empties the kernel. What the
container runtime believes (`Container.state`) is the truth that the invariants hold the
allocator to.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ipam.allocator.facts import Facts
from ipam.allocator.requests import Allocate, Companion, Release
from ipam.allocator.service import NodeAllocator
from ipam.collector.collector import Collector, Sweep
from ipam.collector.leak_evidence import LeakEvidence, Listed
from ipam.records.blocks import IPAddress, parse_address
from ipam.records.errors import IPAMError
from ipam.records.naming import pod_attributes
from libcalico import names
from libcalico.datastore.interface import ABSENT, Change, Delete, Entry, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.keys import ResourceKey
from tests.ipam.model.calls import SteppedStore
from tests.ipam.model.loop import StepLoop

NETWORK = "net"
ADDING, UP, FAILED, DELETING, GONE = "adding", "up", "failed", "deleting", "gone"


@dataclass(eq=False)
class Container:
    """One sandbox. `addresses` are what its ADD was told."""

    cid: str
    host: str
    pod: str
    families: tuple[int, ...]
    state: str = GONE
    addresses: frozenset[IPAddress] = frozenset()
    times: int = 0

    @property
    def handle_id(self) -> str:
        return names.handle_id(NETWORK, self.cid)

    @property
    def interface(self) -> str:
        return f"cali{self.pod}"

    @property
    def key(self) -> ResourceKey:
        name = names.workload_endpoint_name(self.host, "k8s", self.pod, "eth0")
        return ResourceKey("WorkloadEndpoint", name, "default")

    def writer(self) -> Companion:
        """Records addresses in the endpoint of the pod, whatever container had it."""

        def change(current: Entry | None, addresses: Sequence[IPAddress]) -> Change:
            value = WorkloadEndpoint(
                metadata=Metadata(name=self.key.name, namespace="default"),
                spec=WorkloadEndpointSpec(
                    node=self.host,
                    containerID=self.cid,
                    interfaceName=self.interface,
                    ipNetworks=[f"{a}/{a.max_prefixlen}" for a in addresses],
                ),
            )
            return Put(self.key, value, current.revision if current else ABSENT, current)

        def held(current: Entry | None) -> list[IPAddress]:
            if current is None or current.value.spec.containerID != self.cid:
                return []
            return [parse_address(text) for text in current.value.spec.ipNetworks]

        return Companion(self.key, change, held)

    def remover(self) -> Companion:
        """Removes the endpoint if it is still this container's."""

        def change(current: Entry | None, _: Sequence[IPAddress]) -> Change | None:
            if current is None or current.value.spec.containerID != self.cid:
                return None
            return Delete(self.key, current.revision)

        return Companion(self.key, change)


@dataclass(eq=False)
class Host:
    """A machine. `links` maps an interface to its container, `journal` lies on its disk."""

    name: str
    links: dict[str, str] = field(default_factory=dict)
    sandboxes: set[str] = field(default_factory=set)
    journal: set[str] = field(default_factory=set)
    partitioned: bool = False
    cri: bool = True
    process: Process | None = None


@dataclass(eq=False)
class Looked:
    """What stood in the blocks when a sweep looked first: (address, handle, sequence)."""

    at: float
    triples: frozenset[tuple[IPAddress, str, int | None]]


class Process:
    """One life of the daemon on a host."""

    def __init__(
        self,
        host: Host,
        loop: StepLoop,
        store: Any,
        submit: Any,
        triples: Callable[[], frozenset[tuple[IPAddress, str, int | None]]],
        did: Counter[str],
    ) -> None:
        self.host, self.alive, self.did = host, True, did
        self._loop, self._real, self._submit, self._triples = loop, store, submit, triples
        self._locks: dict[str, asyncio.Lock] = {}
        self.busy: dict[str, int] = {}
        self.looked: Looked | None = None
        self.sweeping = False
        self.swept: Sweep | None = None
        self.blind = False
        self.store = SteppedStore(store, self, "allocator", loop, submit)
        self.facts: Facts | None = None
        self.allocator = NodeAllocator(
            self.store, host.name, facts=lambda: self.facts, clock=loop.time_ns
        )
        self._tasks = {loop.start(self.allocator.run())}

    def run(self, work: Any) -> asyncio.Task[Any]:
        """A task that dies with the process."""
        task = self._loop.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and self.alive:
            raise AssertionError(f"a task of the model failed: {error!r}") from error

    def kill(self) -> None:
        """SIGKILL: nothing of it runs on (its tasks end without a store to talk to)."""
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self._loop.drain()

    @asynccontextmanager
    async def container_lock(self, cid: str) -> AsyncIterator[None]:
        """No two calls of one container at a time."""
        lock = self._locks.setdefault(cid, asyncio.Lock())
        self.busy[cid] = self.busy.get(cid, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self.busy[cid] -= 1
            if not self.busy[cid]:
                del self.busy[cid]

    async def add(self, container: Container) -> None:
        """CNI ADD, as the daemon does it."""
        host = self.host
        async with self.container_lock(container.cid):
            if container.state not in (ADDING,):
                return
            try:
                if container.cid in host.journal:
                    await self.allocator.perform(
                        Release(container.handle_id, companion=container.remover())
                    )
                container.times += 1
                attributes = pod_attributes(
                    host.name, "default", container.pod, self._loop.time_ns() + container.times
                )
                ticket = self.allocator.submit(
                    Allocate(
                        container.handle_id,
                        attributes,
                        families=container.families,
                        companion=container.writer(),
                    )
                )
                await ticket.tentative
                host.links[container.interface] = container.cid
                granted = await ticket.done
            except (DatastoreUnavailable, IPAMError) as error:
                if not self.alive:
                    raise
                self._unlink(container)
                container.state = FAILED
                if isinstance(error, DatastoreUnavailable):
                    host.journal.add(container.cid)
                return
            if not self.alive:
                raise asyncio.CancelledError
            container.addresses = frozenset(granted.addresses)
            container.state = UP
            self.did["granted"] += 1
            host.journal.discard(container.cid)

    def _unlink(self, container: Container) -> None:
        if self.host.links.get(container.interface) == container.cid:
            del self.host.links[container.interface]

    async def delete(self, container: Container) -> None:
        """CNI DEL: the cable, then the release, or a record in the journal."""
        async with self.container_lock(container.cid):
            if not self.alive:
                return
            container.state = DELETING
            self._unlink(container)
            self.host.sandboxes.discard(container.cid)
            try:
                await self.allocator.perform(
                    Release(container.handle_id, companion=container.remover())
                )
            except DatastoreUnavailable:
                if not self.alive:
                    raise
                self.host.journal.add(container.cid)
            container.state = GONE

    async def replay(self, container: Container, settled: Callable[[], bool]) -> None:
        """One record of the journal, which stays while a swallowed commit may still happen."""
        async with self.container_lock(container.cid):
            if container.cid not in self.host.journal or not self.alive:
                return
            self._unlink(container)
            try:
                await self.allocator.perform(
                    Release(container.handle_id, companion=container.remover())
                )
            except (DatastoreUnavailable, IPAMError):
                return
            if self.alive and settled():
                self.host.journal.discard(container.cid)

    async def sweep(self, listed: Listed | None) -> None:
        """The node's collector, once."""
        if self.sweeping:
            return
        self.sweeping, self.swept = True, None
        self.looked = None

        async def observe() -> LeakEvidence:
            known = None if self.blind or not self.host.cri else frozenset(self.host.sandboxes)
            return LeakEvidence(
                interfaces=None if self.blind else frozenset(self.host.links),
                sandboxes=known,
                sandboxes_configured=self.host.cri,
                busy=frozenset(self.busy),
            )

        store = SteppedStore(self._real, self, "collector", self._loop, self._note_look)
        collector = Collector(store, self.host.name, observe, container_lock=self.container_lock)
        try:
            self.swept = await collector.sweep(listed)
            self.did["swept"] += 1
            self.did["collected"] += len(self.swept.collected)
        except (DatastoreUnavailable, IPAMError):
            pass
        finally:
            self.sweeping = False

    def _note_look(self, call: Any) -> None:
        begin = call.begin

        def looking() -> Any:
            if self.looked is None and call.name == "list Block":
                self.looked = Looked(self._loop.time(), self._triples())
            return begin()

        call.begin, call.looked = looking, self.looked
        self._submit(call)


def container_id(number: int) -> str:
    """An id as containerd makes them."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:16]
