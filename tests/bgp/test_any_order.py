"""The whole agent after any history: all that it tells is what an agent that starts now would tell.

Events of the datastore, felix, services, passwords, the kernel and the speaker come in any order.
After each of them everything that leaves the agent is compared with a second agent, which hears
only what stands now: first all settings, in another order, then the sessions with their paths.
Handovers and former reflectors are given no time here: they have models of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from random import Random
from typing import Any, cast

from bgp.agent.agent import Agent
from bgp.agent.publish import Publisher
from bgp.agent.report import report
from bgp.agent.saved_decisions import decided, decode, encode
from bgp.cluster.services import Endpoint, ServiceBatch, ServiceKey, ServiceSource, ServiceView
from bgp.cluster.view import Changed
from bgp.decide.former_reflectors import FormerReflectors
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.peering.passwords import Passwords, PasswordSource, SecretRef
from bgp.peering.peering import Settings
from bgp.speaker.interface import (
    Announced,
    Attributes,
    DownReason,
    EndOfRib,
    Family,
    IPAddress,
    IPNetwork,
    PathsReceived,
    Peer,
    PeerDown,
    PeerOpen,
    PeerUp,
    Route,
    Speaker,
    SpeakerDown,
    SpeakerUp,
    Withdrawn,
)
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.local.node_api import Borrowed, BorrowedEnd, Fact
from libcalico.model.keys import AffinityKey, Key
from libcalico.model.resources.ipam import BlockAffinity
from tests.bgp.agents import node, resource
from tests.size import examples

Change = tuple[Key, Any]
BLOCKS = [ip_network(text) for text in ("10.65.1.0/26", "10.65.2.0/26", "10.65.9.9/32")]
NETS = [
    *BLOCKS,
    *(ip_network(text) for text in ("10.65.2.5/32", "198.51.100.7/32", "0.0.0.0/0")),
    *(ip_network(text) for text in ("10.0.0.3/32", "240.0.0.5/32", "10.0.0.254/32")),
]
HOSTS = ["n1", "n2", "n3"]
ROUTER = ip_address("10.0.0.254")
HOPS = [ip_address(f"10.0.0.{number}") for number in (1, 2, 3, 22)] + [ROUTER]
LABEL, TOR = {"labels": {"rr": "yes"}}, {"peerIP": str(ROUTER), "asNumber": 64500}


def password(name: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": "key"}}


def configuration(name: str = "default", automatic: str = "", **spec: Any) -> Change:
    more = {"annotations": {"muslin/automatic-reflectors": automatic}} if automatic else {}
    return resource("BGPConfiguration", name, spec, **more)


def rule(action: str, **more: Any) -> dict[str, Any]:
    return {"action": action, **more}


INSIDE = {"cidr": "10.65.0.0/16", "matchOperator": "In"}
RANGE = [{"cidr": "198.51.100.0/24"}]
TAGS = [{"cidr": "10.65.0.0/16", "communities": ["64512:1"]}]
OBJECTS: list[Change] = [
    *(node(number) for number in (1, 2, 3)),
    node(1, annotations={"muslin/bgp-drain": "true"}),
    node(1, ipv4Address="10.0.0.22/24", asNumber=64600),
    node(1, routeReflectorClusterID="1.0.0.1"),
    node(1, labels={"node.kubernetes.io/exclude-from-external-load-balancers": "true"}),
    node(2, ipv4Address="10.0.0.3/24"),
    node(2, asNumber=64600, **LABEL),
    node(3, routeReflectorClusterID="1.0.0.3", **LABEL),
    node(3, ipv4Address="fd00::3/64"),
    node(4, ipv4Address="10.0.0.2/24"),
    configuration(nodeToNodeMeshEnabled=False),
    configuration(automatic="above=1 count=1"),
    configuration(automatic="soon", asNumber=64700, listenPort=1790),
    configuration(serviceLoadBalancerIPs=RANGE, serviceLoadBalancerAggregation="Disabled"),
    configuration(serviceExternalIPs=RANGE, prefixAdvertisements=TAGS),
    configuration(ignoredInterfaces=["eth1"], ipv4NormalRoutePriority=512),
    configuration(nodeMeshPassword=password("mesh")),
    configuration("node.n2", listenPort=1790),
    resource("BGPPeer", "a", TOR),
    resource("BGPPeer", "a", {**TOR, "filters": ["f"], "numAllowedLocalASNumbers": 1}),
    resource("BGPPeer", "b", {**TOR, "filters": ["f", "g"], "node": "n1"}),
    resource("BGPPeer", "b", {**TOR, "reachableBy": "10.0.0.9", "nextHopMode": "Keep"}),
    resource("BGPPeer", "b", {**TOR, "password": password("tor"), "localASNumber": 64999}),
    resource("BGPPeer", "c", {"peerSelector": "all()", "filters": ["f"]}),
    resource("BGPPeer", "c", {"peerSelector": "rr == 'yes'"}),
    resource("BGPPeer", "c", {"peerIP": "10.0.0.3", "asNumber": 64512, "node": "n1"}),
    resource("BGPFilter", "f", {"importV4": [rule("Reject", **INSIDE)]}),
    resource("BGPFilter", "f", {"exportV4": [rule("Reject", **INSIDE, peerType="iBGP")]}),
    resource("BGPFilter", "f", {"importV4": [rule("Accept", interface="eth*")]}),
    resource("BGPFilter", "f", {"importV4": [rule("Perhaps")]}),
    resource("BGPFilter", "g", {}),
    resource("IPPool", "p", {"cidr": "10.65.0.0/16"}),
    resource("IPPool", "p", {"cidr": "10.65.0.0/16", "disabled": True, "ipipMode": "Always"}),
    resource("IPPool", "p", {"cidr": "10.65.2.0/24", "disableBGPExport": True}),
    resource("IPPool", "q", {"cidr": "240.0.0.0/8"}),
    *(
        (AffinityKey(host, block), BlockAffinity(state=state))
        for host in HOSTS
        for block in BLOCKS
        for state in ("confirmed", "pending")
    ),
]
BEGIN = [
    *(node(number) for number in (1, 2, 3)),
    resource("BGPPeer", "a", {**TOR, "filters": ["f"]}),
    resource("BGPFilter", "f", {}),
    resource("IPPool", "p", {"cidr": "10.65.0.0/16"}),
    (AffinityKey("n1", BLOCKS[0]), BlockAffinity()),
    (AffinityKey("n2", BLOCKS[1]), BlockAffinity()),
]
NETWORKS: list[dict[str, str]] = [
    {},
    {"10.0.0.0/24": "eth0", "10.0.0.1/32": "lo", "10.65.1.1/32": "tunl0"},
    {"10.0.0.0/24": "eth1", "192.0.2.0/24": "eth0"},
]
PATHS = [
    Attributes(),
    Attributes(local_pref=0, communities=("65535:0",)),
    Attributes(as_path=(64500, 64512), as_path_length=2, med=5),
    Attributes(cluster_list=("1.0.0.1",), originator_id=IPv4Address("10.0.0.1")),
    Attributes(communities=("65535:65281",)),
]


def service(local: bool, hosts: Collection[str], last: int) -> ServiceView:
    return ServiceView(
        "LoadBalancer",
        (ip_address("10.96.0.7"),),
        load_balancer_ips=(ip_address(f"198.51.100.{last}"),),
        local=local,
        endpoints=frozenset(Endpoint(host, 4) for host in hosts),
        sliced=bool(hosts) or not local,
    )


SERVICES = [None, service(True, HOSTS[:1], 7), service(True, HOSTS[1:], 7), service(False, [], 8)]
TOLD = frozenset({SecretRef("mesh", "key"), SecretRef("tor", "key")})
PASSWORDS = [
    Passwords(dict.fromkeys(TOLD, "x")),
    Passwords({SecretRef("tor", "key"): "y"}, {SecretRef("mesh", "key"): "there is none"}),
    Passwords({}, dict.fromkeys(TOLD, "there is none")),
]


class Told:
    """A speaker that holds what it was told last."""

    peers: tuple[Peer, ...] = ()
    routes: frozenset[Route] = frozenset()

    async def configure(self, peers: Collection[Peer]) -> None:
        self.peers = tuple(peers)

    async def announce(self, routes: Collection[Route]) -> None:
        self.routes = frozenset(routes)

    def withhold(self, withheld: bool) -> None:
        pass

    def conditions(self) -> list[tuple[str, str]]:
        return []


class Source:
    """Of services and passwords: they are told by hand."""

    problem = ""

    def require(self, *_: object) -> None:
        pass


@dataclass
class Session:
    """A session with a peer: as it came up, and what is held of its paths."""

    definition: Peer
    opened: PeerOpen
    up: bool = True
    spoken: bool = False
    own_fault: bool = False
    paths: dict[tuple[IPNetwork, int], tuple[Attributes, IPAddress]] = field(default_factory=dict)
    stale: set[tuple[IPNetwork, int]] = field(default_factory=set)

    def sweep(self) -> None:
        for key in self.stale:
            del self.paths[key]
        self.stale = set()


class World:
    """An agent of n1, and what stands now."""

    def __init__(self) -> None:
        self.store: dict[Key, Any] = {}
        self.fact: Fact | None = None
        self.lent: dict[str, dict[str, str]] = {}
        self.services: dict[ServiceKey, ServiceView] = {}
        self.passwords = Passwords()
        self.datastore: frozenset[IPAddress] = frozenset()
        self.unresolved: frozenset[IPAddress] = frozenset()
        self.sessions: dict[IPAddress, Session] = {}
        self.agent = self.fresh()

    def fresh(self) -> Agent:
        agent = Agent(
            "n1",
            cast("Speaker", Told()),
            Publisher(Path("/nonexistent/node.sock")),
            Settings(),
            handover=MakeBeforeBreak(linger=0.0, limit=0.0),
            service_source=cast("ServiceSource", Source()),
            password_source=cast("PasswordSource", Source()),
        )
        agent.sources.services_known = True
        agent.decisions.former = FormerReflectors(limit=0.0)
        return agent

    async def begin(self) -> None:
        """Three sessions are up and have told something."""
        await self.store_these(BEGIN)
        await self.settled()
        for _ in range(3):
            await self.up(0, 1)
        for number in range(3):
            await self.paths(511 + 512 * number, 5)
        await self.settled()

    async def store_these(self, changes: list[Change]) -> None:
        for key, value in changes:
            self.store[key] = value
        await say(self.agent, changes)

    # -- one event each

    async def object(self, one: int, two: int) -> None:
        changes = [OBJECTS[one % len(OBJECTS)], OBJECTS[two % len(OBJECTS)]]
        await self.store_these(list(dict(changes).items()))

    async def deletion(self, one: int, _: int) -> None:
        keys = sorted(self.store, key=str)
        if keys:
            key = keys[one % len(keys)]
            del self.store[key]
            await say(self.agent, [(key, None)])

    async def facts(self, one: int, two: int) -> None:
        addresses = [str(hop) for number, hop in enumerate(HOPS[:3]) if two >> number & 1]
        self.fact = Fact(addresses, NETWORKS[one % len(NETWORKS)])
        self.agent.on_felix(self.fact)

    async def borrowing(self, one: int, two: int) -> None:
        block = BLOCKS[one % len(BLOCKS)]
        address = str(block[5 % block.num_addresses])
        users = {address: HOSTS[two % 3]} if two % 4 else {}
        self.lent[str(block)] = users
        self.agent.on_felix(Borrowed(str(block), users))

    async def another_felix(self, one: int, _: int) -> None:
        """It names the borrowed addresses of some blocks only."""
        left = {str(block) for place, block in enumerate(BLOCKS) if one >> place & 1}
        self.lent = {block: users for block, users in self.lent.items() if block in left}
        self.felix(self.agent)

    async def services_change(self, one: int, two: int) -> None:
        key, value = ("ns", f"s{two % 2}"), SERVICES[one % len(SERVICES)]
        self.services.pop(key, None)
        if value is not None:
            self.services[key] = value
        self.agent.decisions.serve(ServiceBatch(((key, value),)))
        await self.agent._decide(Changed.EXPORT)

    async def secrets(self, one: int, _: int) -> None:
        self.passwords = PASSWORDS[one % len(PASSWORDS)]
        self.agent.decisions.unlock(self.passwords)
        await self.agent._decide(Changed.PEERING)

    async def addresses(self, one: int, _: int) -> None:
        self.datastore = chosen(one)

        async def told() -> Any:
            yield self.datastore

        await self.agent.follow_addresses(told())

    async def ways(self, one: int, _: int) -> None:
        self.unresolved = chosen(one)
        self.agent.routing.choose(self.agent.routing.rib.resolve(self.unresolved))

    async def up(self, one: int, two: int) -> None:
        held = [peer for peer in told(self.agent).peers if not self.is_up(peer.address)]
        if not held:
            return
        peer = held[one % len(held)]
        families = frozenset(peer.families if two % 3 else ())
        time = 120 if families else None
        opened = PeerOpen(
            peer.address, peer.remote_as, IPv4Address("1.1.1.1"), 90, time, families, families
        )
        session = self.sessions.setdefault(peer.address, Session(peer, opened))
        if not families and not session.own_fault:
            session.sweep()
        session.definition, session.opened, session.up = peer, opened, True
        for event in (opened, PeerUp(peer.address, peer)):
            self.agent.on_event(event)

    async def paths(self, one: int, two: int) -> None:
        for address, session in self.some_session(one):
            hop = HOPS[two % len(HOPS)] if two % 3 == 0 else address
            attributes, path_id = PATHS[two % len(PATHS)], two % 4 // 3
            nets = [net for number, net in enumerate(NETS) if one >> number & 1]
            for net in nets:
                session.paths[net, path_id] = (attributes, hop)
                session.stale.discard((net, path_id))
            announced = tuple(Announced(net, hop, path_id) for net in nets)
            self.agent.on_event(PathsReceived(address, attributes, announced))

    async def withdrawal(self, one: int, two: int) -> None:
        for address, session in self.some_session(one):
            key = (NETS[two % len(NETS)], one % 2)
            session.paths.pop(key, None)
            session.stale.discard(key)
            gone = (Withdrawn(*key),)
            self.agent.on_event(PathsReceived(address, Attributes(), (), gone))

    async def end_of_rib(self, one: int, _: int) -> None:
        for address, session in self.some_session(one):
            session.sweep()
            session.spoken = True
            self.agent.on_event(EndOfRib(address, Family.of(address)))

    async def down(self, one: int, two: int) -> None:
        for address, _ in self.some_session(one):
            notified = DownReason.NOTIFICATION_RECEIVED
            self.end(address, DownReason.CLOSED if two % 3 else notified)

    async def reload(self, _: int, __: int) -> None:
        """The speaker does what it was told: it ends what is planned otherwise by now."""
        wanted = {peer.address: peer for peer in told(self.agent).peers}
        for address, session in list(self.sessions.items()):
            if session.up and address not in wanted:
                self.end(address, DownReason.REMOVED)
            elif session.up and wanted[address] != session.definition:
                self.end(address, DownReason.CLOSED)

    async def crash(self, _: int, __: int) -> None:
        for session in self.sessions.values():
            if session.up:
                session.up, session.spoken, session.own_fault = False, False, True
                session.stale = set(session.paths)
        self.agent.on_event(SpeakerDown("crash"))
        self.agent.on_event(SpeakerUp())

    async def expiry(self, _: int, __: int) -> None:
        for session in self.sessions.values():
            session.sweep()
        self.agent.sessions.expired(float("inf"))

    # -- what helps

    def is_up(self, address: IPAddress) -> bool:
        return address in self.sessions and self.sessions[address].up

    def some_session(self, number: int) -> list[tuple[IPAddress, Session]]:
        """One that is up, of IPv4; none: there is none."""
        ups = [each for each in self.sessions.items() if each[1].up and each[0].version == 4]
        return [ups[number % len(ups)]] if ups else []

    def end(self, address: IPAddress, reason: DownReason) -> None:
        session = self.sessions[address]
        session.up = session.spoken = session.own_fault = False
        session.sweep()
        if reason is not DownReason.CLOSED or not session.opened.restart_time:
            session.paths = {}
        session.stale = set(session.paths)
        self.agent.on_event(PeerDown(address, reason))

    def felix(self, agent: Agent) -> None:
        """A felix connects and says all it knows."""
        agent.on_felix_connected()
        for block, users in self.lent.items():
            agent.on_felix(Borrowed(block, users))
        agent.on_felix(BorrowedEnd())

    async def settled(self) -> None:
        """What time brings; a peer that has no session and is not planned is forgotten."""
        await settle(self.agent)
        planned = self.agent.sessions.planned
        for address in [each for each in self.sessions if each not in planned]:
            if not self.sessions[address].up:
                del self.sessions[address]

    async def begun_now(self) -> Agent:
        """An agent that hears only what stands now."""
        agent = self.fresh()
        if self.fact is not None:
            agent.on_felix(self.fact)
        self.felix(agent)
        agent.decisions.serve(ServiceBatch(tuple(self.services.items())))
        agent.decisions.unlock(self.passwords)
        agent.decisions.datastore = self.datastore
        agent.routing.rib.resolve(self.unresolved)
        await say(agent, sorted(self.store.items(), key=lambda each: str(each[0]), reverse=True))
        await settle(agent)
        planned = agent.sessions.planned
        for address, session in self.sessions.items():
            came_up(agent, address, session, session.stale if address in planned else ())
        agent.on_event(SpeakerDown("its stale paths stay"))
        agent.on_event(SpeakerUp())
        for address, session in self.sessions.items():
            if session.up:
                kept = session.stale if address in planned else set()
                came_up(agent, address, session, session.paths.keys() - kept)
                if session.spoken:
                    agent.on_event(EndOfRib(address, Family.of(address)))
        await settle(agent)
        return agent


def chosen(number: int) -> frozenset[IPAddress]:
    return frozenset(hop for place, hop in enumerate(HOPS) if number >> place & 1)


def told(agent: Agent) -> Told:
    return cast("Told", agent.speaker)


async def say(agent: Agent, changes: list[Change]) -> None:
    updates = [Update(key, value and Entry(key, value, 1, b"")) for key, value in changes]
    await agent.apply_batch(SyncBatch(updates, True))


def came_up(
    agent: Agent, address: IPAddress, session: Session, keys: Collection[tuple[IPNetwork, int]]
) -> None:
    for event in (session.opened, PeerUp(address, session.definition)):
        agent.on_event(event)
    for net, path_id in keys:
        attributes, hop = session.paths[net, path_id]
        agent.on_event(PathsReceived(address, attributes, (Announced(net, hop, path_id),)))


async def settle(agent: Agent) -> None:
    """What `keep_time` does after an event."""
    await agent._release()
    await agent._tell_speaker()


def outputs(agent: Agent) -> dict[str, Any]:
    """All that leaves an agent, but for moments and the history of sessions."""
    status = deepcopy(agent.describe())
    for peer in status["peers"]:
        for name in ("since", "session", "info", "error", "graceful_restart"):
            peer.pop(name)  # type: ignore[misc]
    for condition in status["conditions"]:
        if condition["object"] == "route reflector":  # it names prefixes as they came
            condition["reason"] = " ".join(sorted(condition["reason"].split(":")[0].split(", ")))
    status["conditions"].sort(key=str)
    routes = report(agent, ["Routes"], "now").routes
    saved = encode(decided(agent.decisions, agent.routing, agent.plan))
    assert encode(decode(saved)) == saved
    return {
        "status": {**status, "start_complete": None, "speaker": None},
        "configured": told(agent).peers,
        "announced": told(agent).routes,
        "felix": agent.publisher.current,
        "routes": sorted(map(str, (*routes.routesV4, *routes.routesV6))),
        "saved": saved,
        "own": agent.routing.own,
        "next hops": dict(agent.routing.rib.hops),
        "peerings refused": agent.metrics.refused,
        "handed over": agent.routing.terms.successors,
    }


EVENTS: list[Callable[[World, int, int], Any]] = [
    *[World.object] * 8, *[World.deletion] * 3, World.facts, *[World.borrowing] * 2,
    World.another_felix, *[World.services_change] * 2, World.secrets, World.addresses, World.ways,
    *[World.up] * 5, *[World.paths] * 6, *[World.withdrawal] * 2, World.end_of_rib, World.down,
    *[World.reload] * 2, World.crash, World.expiry,
]  # fmt: skip
STEPS = 12


async def live(seed: int) -> None:
    """One history; a failure names its seed and its events."""
    chance, world, lived = Random(seed), World(), list[str]()
    await world.begin()
    for _ in range(STEPS):
        event, one, two = chance.choice(EVENTS), chance.randrange(512), chance.randrange(512)
        lived.append(f"{event.__name__} {one} {two}")
        await event(world, one, two)
        await world.settled()
        fresh = outputs(await world.begun_now())
        for name, found in outputs(world.agent).items():
            assert found == fresh[name], f"seed {seed}: {name} after {lived}"


def test_any_order_of_events_gives_what_stands_now() -> None:
    for seed in range(examples(60)):
        asyncio.run(live(seed))
