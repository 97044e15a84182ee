"""Pods that name their address or their pool, beside those that take what comes, against a model.

Real are two nodes' allocators. Played are a store that fails, loses answers, applies what it
swallowed later and has rivals, and operators who edit pools, reservations and settings, remove
nodes' labels and sweep what has cooled. The model knows who holds what, and no block.

At no commit is an address held twice, nor a living pod's freed. What comes by itself is of a pool
that serves the pod, and not reserved, nor still cooling. What was asked for by name is given or
refused, and refused only while another has it. A pod is refused for want of addresses only where
none is free for it. When all pods have gone nothing is held.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from ipam.admin.check import check
from ipam.allocator.cooling import sweep_cooled
from ipam.allocator.requests import Allocate, Granted
from ipam.allocator.service import NodeAllocator
from ipam.records import blocks, snapshot
from ipam.records.blocks import IPAddress
from ipam.records.errors import (
    AddressInUse,
    IPAMError,
    NoPool,
    NotInPool,
    NotOwner,
)
from libcalico.datastore.interface import Change, CommitConflict, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.model import IPAMConfig, IPReservation, IPReservationSpec, Metadata
from libcalico.model.keys import IPAMConfigKey, IPNetwork, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import allocate, put_node, put_pool, release
from tests.size import examples

HOSTS = ("n1", "n2")
POOLS = {"a": "10.0.0.0/29", "b": "10.1.0.0/30", "six": "fd00::/126"}
SIZES = {"a": 30, "b": 31, "six": 127}
SECOND = 1_000_000_000


@dataclass
class PoolState:
    """What an operator has written of a pool."""

    cidr: IPNetwork
    disabled: bool = False
    only: str = ""
    manual: bool = False

    def serves(self, host: str) -> bool:
        return not self.disabled and not self.manual and self.only in ("", host)


@dataclass
class Pod:
    """One that lives, with its addresses."""

    host: str
    addresses: frozenset[IPAddress]


@dataclass
class World:
    """The store, what an operator has set, and which pods live."""

    chance: random.Random
    strict: bool
    cooldown: int
    store: MemoryStore = field(default_factory=MemoryStore)
    pools: dict[str, PoolState] = field(default_factory=dict)
    reserved: list[IPNetwork] = field(default_factory=list)
    living: dict[str, Pod] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    released: dict[IPAddress, int] = field(default_factory=dict)
    late: list[tuple[int, Sequence[Change]]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    now: int = 1_700_000_000 * SECOND
    number: int = 0
    known: dict[IPAddress, str] = field(default_factory=dict)
    requests: dict[str, Allocate] = field(default_factory=dict)
    allocators: dict[str, NodeAllocator] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    planned_at: int = 0
    """When the commit that is applied was planned, if not now."""
    troubled: bool = False
    quiet: bool = True
    """Whether no call since the last look met trouble."""

    # -- the store ---------------------------------------------------------------------------------

    def before(self, changes: Sequence[Change]) -> None:
        if not self.troubled or self.chance.random() > 0.25:
            return
        self.quiet = False
        kind = self.chance.choice(("conflict", "lost", "late"))
        if kind == "conflict":
            raise CommitConflict({c.key: self.store.entries.get(c.key) for c in changes})
        if kind == "late":
            self.late.append((self.now, changes))
        raise DatastoreUnavailable(f"played: {kind}")

    def after(self, _: Sequence[Change]) -> None:
        self.look()
        held, before, self.known = self.held(), self.known, self.held()
        self.released |= dict.fromkeys(before.keys() - held.keys(), self.planned_at or self.now)
        for address in held.keys() - before.keys():
            named = address in self.requests[held[address]].fixed
            assert named or not self.cooling(address), (address, self.trace)
            self.released.pop(address, None)
        if self.troubled and self.chance.random() < 0.1:
            self.quiet = False
            raise DatastoreUnavailable("played: the answer was lost")

    async def wake(self) -> None:
        """What the store swallowed is applied, where its guards still hold."""
        if self.late:
            self.trace.append("late")
            self.planned_at, changes = self.late.pop(self.chance.randrange(len(self.late)))
            try:
                await self.store.commit(changes)
            except CommitConflict:
                pass
            finally:
                self.planned_at = 0

    # -- what is held ------------------------------------------------------------------------------

    def held(self) -> dict[IPAddress, str]:
        return {
            one.address: one.handle_id.removeprefix("net.")
            for block in self.store.blocks().values()
            for one in blocks.allocations(block)
        }

    def look(self) -> None:
        about = self.trace
        held = self.held()
        for name, pod in self.living.items():
            for address in pod.addresses:
                assert held.get(address) == name, (name, address, about)
        for block in self.store.blocks().values():
            assert not blocks.problem(block), about

    def cooling(self, address: IPAddress) -> bool:
        since = self.released.get(address)
        return since is not None and self.now - since < self.cooldown * SECOND

    def usable(self, request: Allocate, host: str, family: int) -> list[PoolState]:
        if named := request.requested.get(family):
            return [p for n, p in self.pools.items() if n in named and not p.disabled]
        return [p for p in self.pools.values() if p.cidr.version == family and p.serves(host)]

    def is_reserved(self, address: IPAddress) -> bool:
        return any(address.version == r.version and address in r for r in self.reserved)

    def free(self, request: Allocate, host: str, family: int) -> list[IPAddress]:
        """The addresses that a pod could have: with strict affinity those of the node's blocks."""
        held = self.held()
        stored = {k.cidr: v for k, v in self.store.blocks().items()}
        found = []
        for pool in self.usable(request, host, family):
            for address in pool.cidr:
                block = next((b for c, b in stored.items() if address in c), None)
                if address in held or self.is_reserved(address) or self.cooling(address):
                    continue
                if self.strict and block and block.owner != f"host:{host}":
                    continue
                found.append(address)
        return found

    # -- events ------------------------------------------------------------------------------------

    async def pool(self) -> None:
        name = self.chance.choice(list(POOLS))
        state = self.pools[name] = PoolState(
            ip_network(POOLS[name]),
            self.chance.random() < 0.15,
            self.chance.choice(("", "", "", "n1", "n2")),
            self.chance.random() < 0.1,
        )
        await self.write_pool(name, state)

    async def write_pool(self, name: str, state: PoolState) -> None:
        selector = f"here == '{state.only}'" if state.only else "all()"
        mode = "Manual" if state.manual else "Automatic"
        await put_pool(
            self.store, name, POOLS[name], SIZES[name],
            nodeSelector=selector, disabled=state.disabled, assignmentMode=mode,
        )  # fmt: skip

    async def reserve(self) -> None:
        texts = self.chance.choice(
            ([], ["10.0.0.0/31"], ["10.0.0.2", "10.1.0.3"], ["10.0.0.4/30"], ["fd00::1"])
        )
        self.reserved = [ip_network(text) for text in texts]
        value = IPReservation(
            metadata=Metadata(name="r"), spec=IPReservationSpec(reservedCIDRs=texts)
        )
        await self.store.commit([Put(ResourceKey("IPReservation", "r"), value)])

    async def time(self) -> None:
        self.now += self.chance.choice((1, 7, 90)) * SECOND

    async def sweep(self) -> None:
        await sweep_cooled(self.store, lambda: self.now)

    def wanted(self) -> dict[str, Any]:
        chance = self.chance
        kind = chance.choice(("auto", "auto", "dual", "pool", "fixed", "fixed", "fixed two"))
        four = ip_address(chance.choice(("10.0.0.0", "10.1.0.0"))) + chance.randrange(5)
        if kind == "fixed":
            return {"fixed": (four,)}
        if kind == "fixed two":
            return {"fixed": (four, ip_address("fd00::") + chance.randrange(4)), "families": (4, 6)}
        if kind == "pool":
            return {"requested": {4: (chance.choice(("a", "b")),)}}
        return {"families": (4, 6) if kind == "dual" else (4,)}

    async def add(self) -> None:
        host = self.chance.choice(HOSTS)
        name = self.new_name()
        self.requests[name] = allocate(name, **self.wanted())
        self.trouble()
        await self.ask(host, name)

    def new_name(self) -> str:
        self.number += 1
        return f"pod{self.number}"

    def trouble(self) -> None:
        self.troubled, self.quiet = self.chance.random() < 0.4, True

    async def ask(self, host: str, name: str) -> None:
        request = self.requests[name]
        self.trace.append(f"{host} {name} {request.fixed or request.requested or request.families}")
        before = self.living.get(name)
        try:
            granted = await self.allocators[host].perform(request)
        except DatastoreUnavailable:
            if not before:
                self.doubtful.add(name)
        except IPAMError as error:
            self.trace.append(f"{name}: {error}")
            assert before is None, self.trace
            if self.quiet:
                self.check_refusal(host, name, error)
        else:
            self.take(host, name, granted, before)
        finally:
            self.troubled = False

    def take(self, host: str, name: str, granted: Granted, before: Pod | None) -> None:
        request, got = self.requests[name], frozenset(granted.addresses)
        self.trace.append(f"{name} has {sorted(map(str, got))}")
        if before:
            assert got == before.addresses, self.trace
            return
        assert sorted(a.version for a in got) == sorted(request.families), self.trace
        self.doubtful.discard(name)
        self.living[name] = Pod(host, got)
        self.look()
        if request.fixed:
            assert got == frozenset(request.fixed), self.trace
        elif self.quiet and granted.fresh:
            for address in got:
                serving = self.usable(request, host, address.version)
                assert any(address in pool.cidr for pool in serving), self.trace
                assert not self.is_reserved(address), self.trace

    def check_refusal(self, host: str, name: str, error: IPAMError) -> None:
        request, held = self.requests[name], self.held()
        pools = [pool for pool in self.pools.values() if not pool.disabled]
        if isinstance(error, AddressInUse):
            assert held.keys() & set(request.fixed), self.trace
        elif isinstance(error, NotInPool):
            assert any(not any(a in p.cidr for p in pools) for a in request.fixed), self.trace
        elif isinstance(error, NotOwner):
            assert self.strict, self.trace
            assert request.fixed, self.trace
        elif isinstance(error, NoPool):
            assert not all(self.usable(request, host, f) for f in request.families), self.trace
        else:
            assert not request.fixed, self.trace
            assert not all(self.free(request, host, f) for f in request.families), self.trace

    async def again(self) -> None:
        if names := sorted({*self.living, *self.doubtful}):
            name = self.chance.choice(names)
            host = self.living[name].host if name in self.living else self.chance.choice(HOSTS)
            self.trouble()
            await self.ask(host, name)

    async def burst(self) -> None:
        """Several at once, on both nodes; some go while others come."""
        gone = self.chance.sample(sorted(self.living), min(2, len(self.living)))
        jobs = [self.remove(name) for name in gone]
        for _ in range(self.chance.randint(2, 4)):
            name = self.new_name()
            self.requests[name] = allocate(name, **self.wanted())
            jobs.append(self.ask(self.chance.choice(HOSTS), name))
        self.quiet = False
        self.chance.shuffle(jobs)
        await asyncio.gather(*jobs)

    async def delete(self) -> None:
        if names := sorted({*self.living, *self.doubtful}):
            self.trouble()
            await self.remove(self.chance.choice(names))

    async def remove(self, name: str) -> None:
        host = self.living[name].host if name in self.living else self.chance.choice(HOSTS)
        self.trace.append(f"{host} gives back {name}")
        self.living.pop(name, None)
        self.doubtful.add(name)
        try:
            await self.allocators[host].perform(release(name))
        except DatastoreUnavailable:
            return
        finally:
            self.troubled = False

    async def restart(self) -> None:
        await self.stop()
        self.allocators = {
            host: NodeAllocator(self.store, host, clock=lambda: self.now) for host in HOSTS
        }
        self.tasks = [asyncio.create_task(one.run()) for one in self.allocators.values()]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def end(self) -> None:
        """All pods go, after all that was swallowed has come to light."""
        while self.late:
            await self.wake()
        for name in sorted({*self.living, *self.doubtful}):
            await self.remove(name)
        assert self.held() == {}, self.trace
        assert self.store.handles() == {}, self.trace
        report = check(await snapshot.read(self.store))
        assert report.problems == (), (report.problems, self.trace)
        await self.stop()


async def play(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance, strict=chance.random() < 0.3, cooldown=chance.choice((0, 0, 30)))
    store = world.store
    for host in HOSTS:
        await put_node(store, host, here=host)
    config = IPAMConfig(
        strict_affinity=world.strict, auto_allocate_blocks=True, ipCooldownSeconds=world.cooldown
    )
    await store.commit([Put(IPAMConfigKey(), config)])
    for name, cidr in POOLS.items():
        world.pools[name] = PoolState(ip_network(cidr))
        await world.write_pool(name, world.pools[name])
    store.before_commit, store.after_commit = world.before, world.after
    await world.restart()
    events: list[Any] = [
        world.pool, world.reserve, world.time, world.sweep, world.restart, world.wake, world.burst,
        *[world.again] * 2, *[world.delete] * 5, *[world.add] * 7,
    ]  # fmt: skip
    for _ in range(chance.randint(5, 40)):
        await chance.choice(events)()
    await world.end()


def test_what_was_asked_for_is_given_or_truly_refused() -> None:
    for seed in range(examples(300)):
        asyncio.run(play(seed))


async def quiet_world() -> World:
    """Two nodes and the pool `a`, and no trouble."""
    world = World(random.Random(0), strict=False, cooldown=0)
    for host in HOSTS:
        await put_node(world.store, host, here=host)
    await put_pool(world.store, "a", POOLS["a"], SIZES["a"])
    await world.restart()
    return world


@pytest.mark.asyncio
async def test_a_named_address_is_given_once_another_node_has_given_it_back() -> None:
    """A pod that names its address moves to the node that has the address' block."""
    world = await quiet_world()
    one, two = (world.allocators[host] for host in HOSTS)
    wanted = (ip_address("10.0.0.1"),)
    await one.perform(allocate("claims", fixed=(ip_address("10.0.0.0"),)))
    await two.perform(allocate("old", fixed=wanted))
    with pytest.raises(AddressInUse, match=r"in use by handle net\.old"):
        await one.perform(allocate("new", fixed=wanted))
    await two.perform(release("old"))
    assert (await one.perform(allocate("new", fixed=wanted))).addresses == wanted
    await world.stop()


@pytest.mark.parametrize("wanted", [{}, {"fixed": (ip_address("10.0.0.1"),)}])
@pytest.mark.asyncio
async def test_a_pod_keeps_its_address_also_where_no_pool_would_give_it_one(wanted: Any) -> None:
    """CNI-32: the ADD is repeated after the pool was disabled; another pod is still refused."""
    world = await quiet_world()
    one = world.allocators["n1"]
    before = await one.perform(allocate("web", **wanted))
    await put_pool(world.store, "a", POOLS["a"], SIZES["a"], disabled=True)
    again = await one.perform(allocate("web", **wanted))
    assert (again.addresses, again.fresh) == (before.addresses, False)
    with pytest.raises(IPAMError, match="is disabled"):
        await one.perform(allocate("more", **wanted))
    await world.stop()


@pytest.mark.asyncio
async def test_a_request_given_up_before_its_turn_takes_nothing() -> None:
    """Its caller was told that nothing had begun, so nothing would be given back."""
    world = await quiet_world()
    one = world.allocators["n1"]
    await one.perform(allocate("first"))
    async with one._turn:
        ticket = one.submit(allocate("web"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (one._queue, ticket.started) == ([], False)
        ticket.abandon()
    await one.perform(release("first"))
    assert world.held() == {}
    await world.stop()
