"""CalicoNodeStatus: what a node reports of its BGP, for users without access to the node.

Each CalicoNodeStatus whose `spec.node` is this node gets its `status` written by it: the classes
that it asks for, when it appears or changes and then every `updatePeriodSeconds` (0: once it has
a report, it is frozen). What the report says is made by pure functions of the agent; a write
that fails is tried again at the next period, or soon where there is none.
Source: docs/reference/data-model.md#caliconodestatus.
Tested in tests/bgp/test_report.py and, with a real etcd, in tests/bgp/test_interop.py.

Every node hears of every report, as in Calico: many of them with short periods are load.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

from bgp.agent.bird_world import AgentWorld
from bgp.decide.routing import used_together
from bgp.peering.planned import GLOBAL, MESH, NODE, PlannedPeer
from bgp.routes.bestpath import Candidate
from bgp.routes.local_routes import Kind
from bgp.speaker.interface import IPNetwork
from libcalico.datastore.interface import CommitConflict, Datastore, Entry, Put, Selection
from libcalico.datastore.syncer import SyncBatch, Syncer
from libcalico.errors import MuslinError
from libcalico.model.base.meta import now_text
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.nodestatus import (
    BGPDaemonStatus,
    CalicoNodeAgentStatus,
    CalicoNodeBGPRouteStatus,
    CalicoNodeBGPStatus,
    CalicoNodePeer,
    CalicoNodeRoute,
    CalicoNodeRouteLearnedFrom,
    CalicoNodeStatus,
    CalicoNodeStatusStatus,
)

if TYPE_CHECKING:
    from bgp.agent.agent import Agent

log = logging.getLogger(__name__)

KIND = "CalicoNodeStatus"
TYPES = {MESH: "NodeMesh", GLOBAL: "GlobalPeer", NODE: "NodePeer"}
ROUTES = 10_000
"""Routes of a family in one report at most: etcd takes 1.5 MB."""
_LOOK = 1.0
RETRY = 10.0
"""Seconds until a write that failed is tried again, where no period says so."""
_EMPTY = CalicoNodeStatusStatus()


def report(agent: Agent, classes: list[str], now: str = "") -> CalicoNodeStatusStatus:
    """The status that a CalicoNodeStatus with these classes gets."""
    return CalicoNodeStatusStatus(
        lastUpdated=now or now_text(),
        agent=_daemons(agent) if "Agent" in classes else _EMPTY.agent,
        bgp=_sessions(agent) if "BGP" in classes else _EMPTY.bgp,
        routes=_routes(agent) if "Routes" in classes else _EMPTY.routes,
    )


def _daemons(agent: Agent) -> CalicoNodeAgentStatus:
    first = agent.plan.peers[0].peer if agent.plan.peers else None
    idle = first is None  # no peers: nothing has to run
    ready = agent.in_sync and agent.gate.passed and (idle or agent.sessions.speaker_up)
    daemon = BGPDaemonStatus(
        state="Ready" if ready else "NotReady",
        version=AgentWorld(agent, 4).version,
        routerID=str(first.router_id) if first else "",
        lastBootTime=agent.started,
        lastReconfigurationTime=agent.configured,
    )
    me = agent.view.nodes.get(agent.view.me)
    none = BGPDaemonStatus()
    return CalicoNodeAgentStatus(
        birdV4=daemon if me is not None and me.ipv4 else none,
        birdV6=daemon if me is not None and me.ipv6 else none,
    )


def _sessions(agent: Agent) -> CalicoNodeBGPStatus:
    peers: dict[int, list[CalicoNodePeer]] = {4: [], 6: []}
    for planned in agent.plan.peers:
        address = planned.peer.address
        status = agent.sessions.status[address]
        peers[address.version].append(
            CalicoNodePeer(str(address), TYPES[planned.kind], status.info, status.since)
        )
    up = {
        version: sum(each.state == "Established" for each in members)
        for version, members in peers.items()
    }
    return CalicoNodeBGPStatus(
        numberEstablishedV4=up[4],
        numberNotEstablishedV4=len(peers[4]) - up[4],
        numberEstablishedV6=up[6],
        numberNotEstablishedV6=len(peers[6]) - up[6],
        peersV4=peers[4],
        peersV6=peers[6],
    )


def _routes(agent: Agent) -> CalicoNodeBGPRouteStatus:
    routes: dict[int, list[CalicoNodeRoute]] = {4: [], 6: []}
    routing = agent.routing
    for prefix in dict.fromkeys((*routing.own, *routing.fixed, *routing.rib.prefixes())):
        if len(routes[prefix.version]) < ROUTES:
            routes[prefix.version] += _of_prefix(agent, prefix)
    return CalicoNodeBGPRouteStatus(routesV4=routes[4], routesV6=routes[6])


def _of_prefix(agent: Agent, prefix: IPNetwork) -> Iterator[CalicoNodeRoute]:
    routing = agent.routing
    kind = routing.own.get(prefix)
    if kind is not None:
        sources = {Kind.HOST: "Kernel", Kind.CONNECTED: "Direct"}
        interface = agent.decisions.towards(prefix) if kind in sources else ""
        learned = CalicoNodeRouteLearnedFrom(sources.get(kind, "Static"))
        yield CalicoNodeRoute("FIB", str(prefix), "", interface, learned)
    way = routing.fixed.get(prefix)
    for text in way.next_hops if way is not None else ():
        interface = agent.decisions.towards(ip_address(text))
        learned = CalicoNodeRouteLearnedFrom("Static")
        yield CalicoNodeRoute("FIB", str(prefix), text, interface, learned)
    used = kind is None and way is None and prefix in agent.publisher.current
    together = used_together(routing.rib.best(prefix)) if used else []
    in_use = {(each.source.peer, each.path_id) for each in together}
    for path in routing.rib.taken(prefix):
        fib = (path.source.peer, path.path_id) in in_use
        planned = agent.sessions.planned.get(path.source.peer)
        yield _learned(agent, prefix, path, "FIB" if fib else "RIB", planned)


def _learned(
    agent: Agent, prefix: IPNetwork, path: Candidate, kind: str, planned: PlannedPeer | None
) -> CalicoNodeRoute:
    mesh = planned is not None and planned.kind == MESH
    source = CalicoNodeRouteLearnedFrom("NodeMesh" if mesh else "BGPPeer", str(path.source.peer))
    hop = path.next_hop
    return CalicoNodeRoute(kind, str(prefix), str(hop), agent.decisions.towards(hop), source)


class Reporter:
    """Writes the reports of one node. Times are seconds, monotonic."""

    def __init__(self, agent: Agent, store: Datastore) -> None:
        self._agent, self._store = agent, store
        self._mine: dict[ResourceKey, Entry] = {}
        self._due: dict[ResourceKey, float] = {}

    async def run(self) -> None:
        """Follow the requests and answer them, until cancelled."""
        syncer = Syncer(self._store, [Selection(KIND)])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(syncer))
            group.create_task(self._answer())

    async def _follow(self, syncer: Syncer) -> None:
        async for batch in syncer.batches():
            self.apply_batch(batch, time.monotonic())

    def apply_batch(self, batch: SyncBatch, now: float) -> None:
        """Note which requests there are, and which of them changed."""
        for update in batch.updates:
            key, entry = update.key, update.entry
            if not isinstance(key, ResourceKey):
                continue
            before = self._mine.pop(key, None)
            if entry is None or entry.value.spec.node != self._agent.view.me:
                self._due.pop(key, None)
                continue
            self._mine[key], value = entry, entry.value
            # Our own writes come back here: only another request is answered at once.
            if value.spec.updatePeriodSeconds == 0 and value.status.lastUpdated:
                self._due.pop(key, None)  # frozen, also where it had a period until now
            elif before is None or before.value.spec != value.spec:
                self._due[key] = now

    async def _answer(self) -> None:
        while True:
            if self._agent.in_sync:
                for key in [key for key, due in self._due.items() if due <= time.monotonic()]:
                    await self._write(key)
            await asyncio.sleep(_LOOK)

    async def _write(self, key: ResourceKey) -> None:
        entry = self._mine.get(key)
        # First: a newer request may come while this one is answered, and is due at once.
        self._due.pop(key, None)
        if entry is None:
            return  # the request went while another one was answered
        value: CalicoNodeStatus = entry.value
        period: float | None = value.spec.updatePeriodSeconds
        status = report(self._agent, value.spec.classes)
        reported = msgspec.structs.replace(value, status=status)
        try:
            await self._store.commit([Put(key, reported, guard=entry.revision, base=entry)])
        except CommitConflict:
            self._due.setdefault(key, time.monotonic())
            return  # the newer request is on its way to us: it stays due
        except MuslinError as error:
            log.warning("a report cannot be written: %s", error, extra={"object": str(key)})
            period = period or RETRY
        if period and period > 0 and key in self._mine:
            self._due.setdefault(key, time.monotonic() + period)
