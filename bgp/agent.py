"""The agent: events in, pure decisions, wishes out. All state lives in one event loop.

    datastore -> ClusterView -> peering.plan  -> speaker.configure
                             -> export.routes -> speaker.announce
    speaker   -> Rib, Helper -> best paths    -> Publisher -> felix

Nothing here waits for anything but events, so no two of them ever interleave within a
decision. A datastore that is away changes nothing: sessions and routes stay.
Tested in tests/bgp/test_agent.py with a speaker in memory, and in test_interop.py with
ExaBGP and BIRD.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from bgp import export, peering
from bgp.bestpath import Candidate, Source
from bgp.graceful_restart import START_DEADLINE, Action, Helper, StartGate, Verb
from bgp.memory import PATIENCE, Memory
from bgp.metrics import Metrics
from bgp.peering import Plan, PlannedPeer, Settings
from bgp.publish import Publisher
from bgp.rib import Rib
from bgp.speaker.interface import (
    DownReason,
    EndOfRib,
    Event,
    IPAddress,
    IPNetwork,
    PathsReceived,
    PeerDown,
    PeerOpen,
    PeerProgress,
    PeerUp,
    Route,
    Speaker,
    SpeakerDown,
    SpeakerFailed,
    SpeakerUp,
)
from bgp.status import ESTABLISHED, PeerStatus, Writer
from bgp.view import Changed, ClusterView
from libcalico.datastore.interface import Selection
from libcalico.datastore.syncer import SyncBatch, Syncer
from libcalico.errors import MuslinError
from libcalico.local import node_api
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.lacking import Lacking

log = logging.getLogger(__name__)


class SpeakerBroken(MuslinError):
    """The speaker cannot go on: exit, and let the supervisor start us afresh."""


def selections() -> list[Selection]:
    """What BGP follows in the datastore."""
    families = ("Node", "BGPConfiguration", "BGPPeer", "IPPool", "BlockAffinity", "Block")
    return [Selection(family) for family in families]


def _ours(key: Key, me: str) -> bool:
    """Whether this agent names what an object asks for in vain."""
    if not isinstance(key, ResourceKey):
        return False
    mine = key.kind == "BGPConfiguration" and key.name in ("default", f"node.{me}")
    return mine or key.kind == "BGPPeer"


class Agent:
    """The BGP agent of the node `me`."""

    def __init__(
        self,
        me: str,
        speaker: Speaker,
        publisher: Publisher,
        settings: Settings,
        *,
        start_deadline: float = START_DEADLINE,
        memory: Memory | None = None,
    ) -> None:
        self.view = ClusterView(me)
        self.plan = Plan()
        self.routes: frozenset[Route] = frozenset()
        self.rib = Rib()
        self.helper = Helper()
        self.status: dict[IPAddress, PeerStatus] = {}
        self.felix_refused: dict[str, str] = {}
        self.in_sync = False
        self.lacking = Lacking(log)
        self.writer = Writer(self.describe)
        self.metrics = Metrics()
        self._speaker, self._publisher, self._settings = speaker, publisher, settings
        self._loop = asyncio.get_running_loop()
        self.gate = StartGate(self._loop.time(), start_deadline)
        self._sources: dict[IPAddress, Source] = {}
        self._planned: dict[IPAddress, PlannedPeer] = {}
        self._syncer: Syncer | None = None
        self._memory = memory or Memory(None)
        self._facts: list[str] = []
        self._speaker_up = False
        self._timer = asyncio.Event()

    # -- datastore

    async def follow_datastore(self, syncer: Syncer) -> None:
        """Take batches for ever."""
        self._syncer = syncer
        async for batch in syncer.batches():
            await self.take(batch)

    async def take(self, batch: SyncBatch) -> None:
        """Take one batch; decide once the picture is complete."""
        changed = Changed.NOTHING
        for update in batch.updates:
            value = update.entry.value if update.entry is not None else None
            changed |= self.view.apply(update.key, value)
            if _ours(update.key, self.view.me):
                self.lacking.update(update.key, value)
            if why := self.view.broken.get(str(update.key)):
                log.error("left out, not usable: %s", why, extra={"object": str(update.key)})
        if not batch.in_sync:
            return
        if not self.in_sync:
            self.in_sync, changed = True, Changed.PEERING | Changed.EXPORT
        if Changed.EXPORT in changed:
            await self._decide_export()
        if Changed.PEERING in changed:
            await self._decide_peering()
        self._memory.save(self.plan.peers, self.routes)

    async def remember(self, patience: float = PATIENCE) -> None:
        """Take up the last decisions if the datastore stays silent (`bgp.memory`)."""
        await asyncio.sleep(patience)
        last = None if self.in_sync else self._memory.load()
        if last is not None:
            log.warning("no word from the datastore: going on with the last decisions")
            await self._apply_routes(frozenset(last[1]))
            await self._apply_plan(Plan(tuple(last[0])))

    async def _decide_export(self) -> None:
        view = self.view
        routes = export.routes(view.affinities, view.mine, view.pools.values())
        await self._apply_routes(routes)

    async def _apply_routes(self, routes: frozenset[Route]) -> None:
        if routes != self.routes:
            self.routes = routes
            log.info("announcing", extra={"routes": len(routes)})
            await self._speaker.announce(routes)
            self.writer.changed()

    async def _decide_peering(self) -> None:
        await self._apply_plan(peering.plan(self.view, self._settings))

    async def _apply_plan(self, plan: Plan) -> None:
        for refused in set(plan.refused) - set(self.plan.refused):
            log.error("peering refused: %s", refused.reason, extra={"object": refused.source})
        old, self.plan = self._planned, plan
        self._planned = {each.peer.address: each for each in plan.peers}
        for address in old.keys() - self._planned.keys():
            self._act(self.helper.forget(address))
            self.status.pop(address, None)
            self._sources.pop(address, None)
        for address, planned in self._planned.items():
            if address not in old:
                self.status[address] = PeerStatus(_waiting(planned))
        self._set_own()
        self.metrics.refused.set(len(plan.refused))
        self.gate.expect(
            [(each.peer.address, family) for each in plan.peers for family in each.peer.families]
        )
        if self._planned != old:
            log.info("peers", extra={"count": len(self._planned)})
            await self._speaker.configure([each.peer for each in plan.peers])
        self._check_gate()
        self.writer.changed()

    # -- speaker

    async def follow_speaker(self) -> None:
        """Take events for ever. Raises `SpeakerBroken`."""
        async for event in self._speaker.events():
            self.on_event(event)

    def on_event(self, event: Event) -> None:
        """Take one event."""
        now = self._loop.time()
        if isinstance(event, PathsReceived):
            source = self._sources.get(event.peer)
            if source is not None:
                self._choose(self.rib.update(event, source))
        elif isinstance(event, EndOfRib):
            log.info("End-of-RIB", extra={"peer": event.peer, "family": event.family.value})
            self._act(self.helper.end_of_rib(event.peer, event.family))
            self.gate.end_of_rib(event.peer, event.family)
        elif isinstance(event, PeerOpen):
            self.helper.opened(event)
        elif isinstance(event, PeerUp):
            self._on_up(event, now)
        elif isinstance(event, PeerDown):
            self._on_down(event, now)
        elif isinstance(event, PeerProgress):
            self._on_progress(event)
        elif isinstance(event, SpeakerUp):
            self._speaker_up = True
        elif isinstance(event, SpeakerDown):
            self._on_speaker_down(event, now)
        elif isinstance(event, SpeakerFailed):
            raise SpeakerBroken("the speaker cannot be kept: see the log above")
        self._check_gate()
        self._timer.set()
        self.writer.changed()

    def _on_up(self, event: PeerUp, now: float) -> None:
        planned = self._planned.get(event.peer)
        if planned is None:
            return
        peer, message = planned.peer, self.helper.peer_open(event.peer)
        identifier = message.router_id if message else None
        self._sources[event.peer] = Source(
            peer=peer.address,
            internal=peer.internal,
            local_as=peer.local_as,
            remote_as=peer.remote_as,
            router_id=identifier or peer.router_id,
            own_router_id=peer.router_id,
            in_cluster=planned.in_cluster,
            allowed_local_as=planned.allowed_local_as,
        )
        self._act(self.helper.up(event.peer, peer.families, now))
        self.gate.up(event.peer, bool(message and message.restart_time is not None), now)
        self.status[event.peer].change(ESTABLISHED)
        self.metrics.ups.inc()
        log.info("session up", extra={"peer": event.peer})

    def _on_down(self, event: PeerDown, now: float) -> None:
        self._act(self.helper.down(event.peer, event.reason, now))
        self.metrics.downs.labels(event.reason.value).inc()
        planned = self._planned.get(event.peer)
        level = logging.INFO if planned is None else logging.WARNING
        log.log(level, "session down: %s", event.detail, extra={"peer": event.peer})
        if planned is not None and event.reason is not DownReason.REMOVED:
            self.status[event.peer].change(_waiting(planned), event.detail)

    def _on_progress(self, event: PeerProgress) -> None:
        status, planned = self.status.get(event.peer), self._planned.get(event.peer)
        if status is None or planned is None or status.up:
            return
        info = event.state if event.state == "OpenSent" else _waiting(planned)
        status.change(info, event.detail)

    def _on_speaker_down(self, event: SpeakerDown, now: float) -> None:
        self._speaker_up = False
        self.metrics.speaker_restarts.inc()
        if self._planned:
            log.warning("the speaker is down: %s", event.detail)
        self._act(self.helper.speaker_down(now))
        for address, planned in self._planned.items():
            self.status[address].change(_waiting(planned), event.detail)

    # -- decisions about paths

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if action.verb is Verb.MARK:
                self.rib.mark_stale(action.peer, action.family)
            elif action.verb is Verb.SWEEP:
                self._choose(self.rib.sweep(action.peer, action.family))
            else:
                self._choose(self.rib.drop(action.peer, action.family))

    def _choose(self, prefixes: Iterable[IPNetwork]) -> None:
        changes = []
        for prefix in prefixes:
            path = best_path(prefix, self.rib.best(prefix))
            if path != self._publisher.current.get(prefix):
                changes.append((prefix, path))
        if changes:
            self._publisher.publish(changes)

    def _check_gate(self) -> None:
        if not self.gate.passed and self.gate.check(self._loop.time()):
            log.info("start complete", extra={"prefixes": len(self._publisher.current)})
            self._publisher.complete()

    async def keep_time(self) -> None:
        """Expire stale paths and pass the start gate when their time has come."""
        while True:
            moments = (self.helper.next_deadline(), self.gate.next_check())
            wait = min((each for each in moments if each is not None), default=None)
            try:
                async with asyncio.timeout_at(wait):
                    await self._timer.wait()
            except TimeoutError:
                pass
            self._timer.clear()
            self._act(self.helper.expired(self._loop.time()))
            self._check_gate()

    # -- felix

    def on_felix(self, message: node_api.Message) -> None:
        """What felix says over `node.sock`."""
        if isinstance(message, node_api.RefusedPath):
            self.metrics.felix_refused.inc()
            self.felix_refused[message.prefix] = message.reason
            log.warning("felix refuses a path: %s", message.reason, extra={"net": message.prefix})
            if len(self.felix_refused) > 100:
                self.felix_refused.pop(next(iter(self.felix_refused)))
            self.writer.changed()
        elif isinstance(message, node_api.Fact):
            self._facts = message.local_addresses
            self._set_own()

    def _set_own(self) -> None:
        own = own_addresses(self.view, self._facts)
        if own != self.rib.own:
            self.rib.own = own
            self._choose(self.rib.prefixes())

    # -- telling

    def describe(self) -> dict[str, Any]:
        """The content of the status file (`bgp.status`)."""
        peers = [self._describe(planned) for planned in self.plan.peers]
        self.metrics.tell(peers, len(self._publisher.current), self.rib.rejected)
        first = self.plan.peers[0].peer if self.plan.peers else None
        speaker = "stopped" if first is None else "running" if self._speaker_up else "restarting"
        return {
            "router_id": str(first.router_id) if first else "",
            "local_as": first.local_as if first else 0,
            "speaker": speaker,
            "start_complete": self.gate.passed,
            "datastore": self._syncer is not None and self._syncer.connected,
            "felix": self._publisher.connected,
            "peers": peers,
            "refused": [{"peer": each.source, "reason": each.reason} for each in self.plan.refused],
            "felix_refused": self.felix_refused,
            "conditions": [
                {"object": subject, "reason": reason}
                for subject, reason in self.lacking.conditions()[:100]
            ],
        }

    def _describe(self, planned: PlannedPeer) -> dict[str, Any]:
        address = planned.peer.address
        status, message = self.status[address], self.helper.peer_open(address)
        received, stale = self.rib.count(address)
        graceful = message is not None and message.restart_time is not None
        keeping = self.helper.stale_until(address) is not None
        sent = getattr(self._speaker, "sent", None)
        return {
            "address": str(address),
            "type": planned.kind,
            "state": "up" if status.up else "start",
            "since": status.since,
            "info": status.text,
            "asn": planned.peer.remote_as,
            "received": received,
            "stale": stale,
            "sent": sent(address) if sent else 0,
            "graceful_restart": "keeping routes" if keeping else "yes" if graceful else "no",
        }


def _waiting(planned: PlannedPeer) -> str:
    return "Active" if planned.peer.passive else "Connect"


def own_addresses(view: ClusterView, facts: Iterable[str]) -> frozenset[IPAddress]:
    """This node's addresses: of the datastore, and those that felix sees."""
    me = view.nodes.get(view.me)
    seen = {ip_address(text) for text in facts}
    return frozenset(seen | set(me.addresses if me else ()))


def best_path(prefix: IPNetwork, best: list[Candidate]) -> node_api.Path | None:
    """What felix is told of a prefix: all equal next hops of one kind of origin."""
    if not best:
        return None
    first = best[0].source
    hops = {each.next_hop for each in best if each.source.in_cluster == first.in_cluster}
    return node_api.Path(
        prefix=str(prefix),
        next_hops=[str(hop) for hop in sorted(hops, key=lambda hop: (hop.version, int(hop)))],
        origin="node" if first.in_cluster else "external",
        peer=str(first.peer),
    )
