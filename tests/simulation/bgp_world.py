"""Three nodes' calico-bgp over one store: what each tells its peers and its felix.

Real are the agents whole, with their syncers, and their line to felix; the speakers hold sessions
in memory (tests/bgp/memory_speaker.py) and hear of everything late. Felix is played: it keeps what
it is told, says late which addresses nodes borrow, dies and comes back. When all is quiet, each
felix has been told exactly the blocks and borrowed addresses of the other nodes, and each peer
exactly the node's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import Random
from typing import Any

from bgp.agent.agent import Agent
from bgp.agent.followed import selections
from bgp.agent.publish import Publisher
from bgp.peering.peering import Settings
from bgp.speaker.interface import Event, Peer
from libcalico.datastore.syncer import Syncer
from libcalico.local import framing, node_api
from libcalico.local.listening import UnixServer, serve_unix
from libcalico.model.keys import AffinityKey, BlockKey, ResourceKey
from libcalico.process.tasks import beside
from tests.bgp.memory_speaker import Fabric, MemorySpeaker
from tests.simulation import bgp_settings, cluster
from tests.simulation.runner import Run
from tests.simulation.stores.weather import Weather

POOL = "10.65.0.0/16"
NODES = {f"n{number}": f"10.99.0.{number}" for number in (1, 2, 3)}
BLOCKS = tuple(f"10.65.{number}.0/26" for number in range(6))
QUIET = 260.0
"""Longer than a start may take, and than a session is kept for its successors."""
RELOAD = 2.0
"""How long a speaker takes at most to do what it is told."""
LATE = 0.5
"""How long felix takes at most to hear of endpoints that come and go, in seconds."""
WHOLE = 0.15
"""How often quiet lasts as long as it may."""


class LateSpeaker(MemorySpeaker):
    """Hears of everything a little later, and does what it is told later still."""

    def __init__(self, fabric: Fabric, chance: Random) -> None:
        super().__init__(fabric)
        self._chance = chance
        self._wish: Collection[Peer] = ()
        self._reload: asyncio.Task[None] | None = None

    async def configure(self, peers: Collection[Peer]) -> None:
        """A reload takes its time; one that was wished meanwhile follows it."""
        self._wish = peers
        if self._reload is None or self._reload.done():
            self._reload = asyncio.create_task(self._fulfil())

    async def _fulfil(self) -> None:
        done: Collection[Peer] | None = None
        while done is not self._wish:
            await asyncio.sleep(self._chance.random() * RELOAD)
            done = self._wish
            await super().configure(done)

    async def close(self) -> None:
        """Ends the speaker and drops its last wish."""
        if self._reload is not None:
            self._reload.cancel()
            await asyncio.wait([self._reload])
        await super().close()

    async def events(self) -> AsyncIterator[Event]:
        """In order, late."""
        async for event in super().events():
            await asyncio.sleep(self._chance.random() * 0.01)
            yield event

    def offered(self) -> dict[str, set[str]]:
        """What every peer that is up was offered last."""
        return {
            str(address): {str(route.prefix) for route in routes}
            for address, routes in self._up.items()
        }


class Felix:
    """Keeps what a speaker tells, as felix does: a snapshot counts when it is complete.

    `borrowed`: the borrowed addresses of each block, as endpoints in the store say it to all.
    """

    def __init__(
        self, path: Path, address: str, borrowed: Mapping[str, Mapping[str, str]], chance: Random
    ) -> None:
        self._path, self._address, self._borrowed = path, address, borrowed
        self._chance = chance
        self._news: dict[str, None] = {}
        self._wake = asyncio.Event()
        self.table: dict[str, list[str]] = {}
        self.complete = False
        self._server: UnixServer | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await serve_unix(self._path, self._serve)

    async def stop(self) -> None:
        """Die; the next one has heard of nothing."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()
        self.table, self.complete = {}, False

    def lent(self, block: str) -> None:
        """The borrowed addresses of a block are others now."""
        self._news[block] = None
        self._wake.set()

    async def _lend(self, connection: framing.Connection) -> None:
        self._news = dict.fromkeys(self._borrowed)
        while True:
            await asyncio.sleep(self._chance.random() * LATE)
            while self._news:
                block = next(iter(self._news))
                del self._news[block]
                users = dict(self._borrowed.get(block, {}))
                await connection.send(node_api.Borrowed(block, users))
            await connection.send(node_api.BorrowedEnd())
            await self._wake.wait()
            self._wake.clear()

    async def _serve(self, connection: framing.Connection) -> None:
        fact = node_api.Fact([self._address], {"10.99.0.0/24": "eth0"})
        await connection.send(fact)
        async with beside(self._lend(connection)):
            await self._hear(connection)

    async def _hear(self, connection: framing.Connection) -> None:
        fresh: dict[str, list[str]] = {}
        told = False
        async for message in connection:
            match message:
                case node_api.PathsBegin():
                    fresh, told = {}, False
                case node_api.Paths(updated, withdrawn):
                    fresh.update({path.prefix: path.next_hops for path in updated})
                    for prefix in withdrawn:
                        fresh.pop(prefix, None)
                case node_api.PathsEnd():
                    told = True
            if told:
                self.table, self.complete = dict(fresh), True


@dataclass
class Node:
    """One node."""

    world: World
    name: str
    address: str
    felix: Felix
    weather: Weather
    agent: Agent | None = None
    speaker: LateSpeaker | None = None
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def start(self) -> None:
        """Its calico-bgp."""
        run = self.world.run
        self.speaker = LateSpeaker(self.world.fabric, run.chance)
        publisher = Publisher(run.folder / self.name / "node.sock")
        agent = self.agent = Agent(self.name, self.speaker, publisher, Settings())
        publisher.on_message = agent.on_felix
        publisher.on_connected = agent.on_felix_connected
        store = self.world.cluster.store(self.weather)
        syncer = Syncer(store, selections())
        works = [*agent.work(), agent.follow_datastore(syncer)]
        self.tasks = [asyncio.create_task(work, name=f"bgp of {self.name}") for work in works]
        for task in self.tasks:
            task.add_done_callback(self.world.heard)

    async def stop(self) -> None:
        """It dies, and its sessions with it."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.speaker is not None:
            await self.speaker.close()
            self.world.fabric.speakers.pop(IPv4Address(self.address), None)


@dataclass
class World:
    """The cluster of one seed. `claims`: which node has which block, by the store; `lent`: the
    addresses that nodes borrowed, by block.
    """

    run: Run
    cluster: cluster.Cluster
    fabric: Fabric = field(default_factory=Fabric)
    nodes: dict[str, Node] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    lent: dict[str, dict[str, str]] = field(default_factory=dict)
    settings: bgp_settings.Settings = field(default_factory=bgp_settings.Settings)

    def lend(self, block: str, users: dict[str, str]) -> None:
        """The borrowed addresses of a block are these now."""
        self.lent[block] = users
        if not users:
            del self.lent[block]
        for node in self.nodes.values():
            node.felix.lent(block)

    def heard(self, task: asyncio.Task[Any]) -> None:
        """A part ended."""
        if not task.cancelled() and task.exception() is not None:
            self.run.trace.fail(f"{task.get_name()} ended: {task.exception()!r}")


Act = Callable[[World], Awaitable[None]]


async def run(run: Run) -> None:
    """One seed."""
    chance, trace = run.chance, run.trace
    made = cluster.make(chance.random() < 0.5, chance, trace.detail)
    world = World(run, made)
    trace.story(f"seed {run.seed}: {type(made).__name__}")
    await made.ready()
    spec = {"cidr": POOL, "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()"}
    await made.resource("IPPool", "pool", spec)
    for name, address in NODES.items():
        await made.node(name, f"{address}/24")
        (run.folder / name).mkdir()
        felix = Felix(run.folder / name / "node.sock", address, world.lent, chance)
        weather = Weather(chance, slow=chance.choice((0.002, 0.05)))
        node = world.nodes[name] = Node(world, name, address, felix, weather)
        await felix.start()
        node.start()
    for _ in range(chance.randint(5, 14)):
        await asyncio.sleep(chance.choice((0.0, 0.02, 1.0, 8.0)) * chance.random())
        await _one(world)
    for node in world.nodes.values():
        node.weather.away = False
    trace.story("quiet")
    await _settle(world)
    for node in world.nodes.values():
        await node.stop()
        await node.felix.stop()


async def _one(world: World) -> None:
    acts: list[tuple[int, Act]] = [
        (6, _claim), (3, _unclaim), (1, _pool), (2, _felix), (2, _restart), (2, _flap),
        (2, _outage), (1, _compact), (1, _node), (3, _settings), (4, _lend),
    ]  # fmt: skip
    chosen = world.run.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
    await chosen(world)


async def _claim(world: World) -> None:
    free = [cidr for cidr in BLOCKS if cidr not in world.claims]
    if free:
        cidr, owner = world.run.chance.choice(free), world.run.chance.choice(sorted(NODES))
        world.run.trace.story(f"{owner} claims {cidr}")
        world.claims[cidr] = owner
        await world.cluster.block(cidr, owner)


async def _lend(world: World) -> None:
    if not world.claims:
        return
    cidr = world.run.chance.choice(sorted(world.claims))
    users = dict(world.lent.get(cidr, {}))
    address = str(IPv4Network(cidr)[world.run.chance.randint(1, 3)])
    if users.pop(address, None) is None:
        others = sorted(NODES.keys() - {world.claims[cidr]})
        users[address] = world.run.chance.choice(others)
    world.run.trace.story(f"of {cidr}, {users or 'nothing'} is borrowed")
    world.lend(cidr, users)


async def _settings(world: World) -> None:
    run = world.run
    await world.settings.change(world.cluster, run.chance, BLOCKS, run.trace.story)


async def _unclaim(world: World) -> None:
    if world.claims:
        cidr = world.run.chance.choice(sorted(world.claims))
        owner = world.claims.pop(cidr)
        world.run.trace.story(f"{owner} gives {cidr} up")
        if cidr in world.lent:
            world.lend(cidr, {})
        await world.cluster.delete(BlockKey(IPv4Network(cidr)))
        await world.cluster.delete(AffinityKey(owner, IPv4Network(cidr)))


async def _pool(world: World) -> None:
    disabled = world.run.chance.random() < 0.5
    world.run.trace.story(f"operator: pool disabled {disabled}")
    spec = {"cidr": POOL, "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()"}
    await world.cluster.resource("IPPool", "pool", {**spec, "disabled": disabled})


def _any(world: World) -> Node:
    return world.nodes[world.run.chance.choice(sorted(world.nodes))]


async def _felix(world: World) -> None:
    node = _any(world)
    world.run.trace.story(f"felix of {node.name} starts anew")
    await node.felix.stop()
    await asyncio.sleep(world.run.chance.random())
    await node.felix.start()


async def _restart(world: World) -> None:
    node = _any(world)
    world.run.trace.story(f"bgp of {node.name} starts anew")
    await node.stop()
    await asyncio.sleep(world.run.chance.random() * 3)
    node.start()


async def _flap(world: World) -> None:
    node = _any(world)
    world.run.trace.story(f"all sessions of {node.name} end, and begin again")
    assert node.speaker is not None
    node.speaker.crash()


async def _outage(world: World) -> None:
    node = _any(world)
    world.run.trace.story(f"the store is away for {node.name}")
    node.weather.away = True
    await asyncio.sleep(world.run.chance.random() * 5)
    node.weather.away = False


async def _compact(world: World) -> None:
    world.run.trace.story("the store forgets its history")
    world.cluster.compact()


async def _node(world: World) -> None:
    name = world.run.chance.choice(sorted(NODES))
    world.run.trace.story(f"the Node {name} goes, and comes back")
    if world.cluster.kubernetes:
        world.cluster.api.delete(f"/api/v1/nodes/{name}")
    else:
        await world.cluster.delete(ResourceKey("Node", name))
    await asyncio.sleep(world.run.chance.random() * 4)
    await world.cluster.node(name, f"{NODES[name]}/24")


async def _settle(world: World) -> None:
    """Quiet, until everybody was told what the store says; some seeds wait for all of it."""
    whole = world.run.chance.random() < WHOLE
    began = world.run.clock.now
    while True:
        await asyncio.sleep(20)
        wrong = list(_wrong(world))
        if world.run.clock.now - began >= QUIET or not (wrong or whole):
            break
    for text in wrong:
        world.run.trace.fail(text)


def _wrong(world: World) -> Iterator[str]:
    """What somebody was told and is not so, by the store."""
    settings = world.settings
    passing = settings.passes(world.claims)
    borrowed = {address: user for users in world.lent.values() for address, user in users.items()}
    for name, node in world.nodes.items():
        wanted = {
            cidr: [NODES[owner]]
            for cidr, owner in world.claims.items()
            if owner != name and cidr in passing
        }
        wanted |= {
            f"{address}/32": [NODES[user]]
            for address, user in borrowed.items()
            if user != name and settings.sessions
        }
        table = dict(node.felix.table)
        for found in (wanted, table):
            found.pop(settings.doubtful, None)
        if not node.felix.complete:
            yield f"quiet: felix of {name} was never told everything"
        if table != wanted:
            yield f"quiet: felix of {name} was told {_shown(table, wanted)}"
        own = settings.passes([cidr for cidr, owner in world.claims.items() if owner == name])
        if settings.sessions:
            own |= {f"{address}/32" for address, user in borrowed.items() if user == name}
        assert node.speaker is not None
        told = node.speaker.offered()
        for other, address in NODES.items():
            if other == name:
                continue
            if (address in told) != settings.sessions:
                yield f"quiet: {name} speaks with {sorted(told)}, and is to: {settings.sessions}"
            elif (told.get(address, set()) ^ own) - {settings.doubtful}:
                yield f"quiet: {name} told {other} {told.get(address)}, wanted: {own}"


def _shown(table: dict[str, list[str]], wanted: dict[str, list[str]]) -> str:
    lacking = sorted(wanted.keys() - table.keys())
    more = sorted(table.keys() - wanted.keys())
    other = sorted(k for k in table.keys() & wanted.keys() if table[k] != wanted[k])
    return f"lacking {lacking}, too much {more}, otherwise {other}"
