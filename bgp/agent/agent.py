"""The agent: events in, pure decisions, desired state out. All state lives in one event loop.

    datastore -> ClusterView -> peering.plan          -> speaker.configure
                             -> terms -> Routing      -> speaker.announce
    speaker   -> Rib, Helper -> Routing -> best paths -> Publisher -> felix

Nothing here waits for anything but events, so no two of them ever interleave within a
decision. A datastore that is away changes nothing: sessions and routes stay.
Tested in tests/bgp/test_agent.py with a speaker in memory, and in test_interop.py with
ExaBGP and BIRD.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from ipaddress import ip_network

from bgp.agent import status_document
from bgp.agent.conditions import conditions
from bgp.agent.felix_reports import FelixReports
from bgp.agent.followed import ours
from bgp.agent.progress import Progress
from bgp.agent.publish import Publisher
from bgp.agent.saved_decisions import PATIENCE, LastDecisions, SavedDecisions, decided
from bgp.agent.sources import Sources
from bgp.bird.birdctl import ControlServer
from bgp.cluster.resolving import HOPS_A_SECOND, PAUSE, Resolver
from bgp.cluster.services import ServiceSource
from bgp.cluster.view import Changed, ClusterView
from bgp.decide.decision_state import DecisionState
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.decide.routing import Routing
from bgp.peering import reflectors
from bgp.peering.passwords import PasswordSource
from bgp.peering.peering import Plan, Settings, order
from bgp.peering.planned import PlannedPeer
from bgp.sessions.graceful_restart import START_DEADLINE, InitialConvergence
from bgp.sessions.metrics import Metrics
from bgp.sessions.probing import SessionProber
from bgp.sessions.sessions import Sessions
from bgp.sessions.status import StatusDocument, Writer
from bgp.speaker.interface import Event, IPAddress, Speaker, SpeakerFailed
from libcalico.datastore.syncer import SyncBatch, Syncer
from libcalico.errors import MuslinError
from libcalico.local import node_api
from libcalico.model.base.meta import now_text
from libcalico.model.enforcement.lacking import Lacking

log = logging.getLogger(__name__)

EVERYTHING = Changed.PEERING | Changed.EXPORT | Changed.FILTERS


class SpeakerBroken(MuslinError):
    """The speaker cannot go on: exit, and let the supervisor start us afresh."""


def _now() -> float:
    """Seconds by the clock of the event loop."""
    return asyncio.get_running_loop().time()


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
        memory: SavedDecisions | None = None,
        handover: MakeBeforeBreak | None = None,
        service_source: ServiceSource | None = None,
        password_source: PasswordSource | None = None,
        service_patience: float = PATIENCE,
        resolver: Resolver | None = None,
    ) -> None:
        self.routing = Routing(publisher.current, publisher.publish)
        self.decisions = DecisionState(me, settings, self.routing)
        self.plan = Plan()
        self.felix = FelixReports()
        self.progress = Progress()
        self.lacking = Lacking(log)
        self.writer = Writer(self.describe)
        self.metrics = Metrics()
        self.speaker, self.publisher = speaker, publisher
        self.gate = InitialConvergence(_now(), start_deadline)
        self.sessions = Sessions(self.routing, self.gate, self.metrics)
        self.handover = handover or MakeBeforeBreak()
        self.doctor = SessionProber(self.sessions, self.writer.changed)
        self.control: ControlServer | None = None
        self.started = self.configured = now_text()
        self._memory = memory or SavedDecisions(None)
        before = self._memory.before
        self.felix.recall(self.view, before.borrowed)
        self.decisions.former.recall(before.reflectors, before.fresh)
        self.decisions.old_secrets = before.secrets if password_source else {}
        self.decisions.old_services = before.services if service_source else frozenset()
        self.sources = Sources(
            *(service_source, password_source, resolver),
            patience=service_patience,
            services_known=service_source is None,
        )
        self._timer = asyncio.Event()

    def work(self) -> list[Coroutine[None, None, None]]:
        """The tasks of the agent, besides `follow_datastore`."""
        tasks = [
            self.follow_speaker(),
            self.remember(),
            self.keep_time(),
            self.writer.run(),
            self.publisher.run(),
            self.doctor.run(),
        ]
        sources = self.sources
        if sources.resolver is not None:
            tasks.append(self.keep_resolving(sources.resolver))
        if self.control is not None:
            tasks.append(self.control.run())
        if sources.services is not None:
            tasks += [self.follow_services(sources.services), self._services_in_time()]
        if sources.passwords is not None:
            tasks.append(self.follow_passwords(sources.passwords))
        return tasks

    @property
    def view(self) -> ClusterView:
        """The cluster, as the datastore tells it."""
        return self.decisions.view

    @property
    def in_sync(self) -> bool:
        """The datastore has said everything once, and it is decided from that."""
        return self.progress.in_sync

    @property
    def connected(self) -> bool:
        """The datastore answers."""
        return self.sources.connected

    @property
    def published(self) -> int:
        """The number of prefixes published to felix."""
        return len(self.publisher.current)

    # -- the datastore, services, passwords

    async def follow_datastore(self, syncer: Syncer) -> None:
        """Apply the batches of the datastore, for ever."""
        self.sources.datastore = syncer
        async for batch in syncer.batches():
            await self.apply_batch(batch)

    async def apply_batch(self, batch: SyncBatch) -> None:
        """Apply one batch; decide once the snapshot is complete."""
        changed = Changed.NOTHING
        for update in batch.updates:
            value = update.entry.value if update.entry is not None else None
            changed |= self.view.apply(update.key, value)
            if ours(update.key, self.view.me):
                self.lacking.update(update.key, value)
            if why := self.view.broken.get(str(update.key)):
                log.error("left out, not usable: %s", why, extra={"object": str(update.key)})
        self.progress.complete = self.progress.complete or batch.in_sync
        await self._decide(changed)

    async def follow_services(self, source: ServiceSource) -> None:
        """Apply changes of services, for ever."""
        async for batch in source.batches():
            self.decisions.serve(batch)
            self.sources.services_known = self.sources.services_known or batch.in_sync
            await self._decide(Changed.EXPORT)

    async def _services_in_time(self) -> None:
        """Go on with the services of before the restart if Kubernetes does not answer."""
        await asyncio.sleep(self.sources.patience)
        if not self.sources.services_known:
            count = len(self.decisions.old_services)
            if count:
                message = "no word about services: going on with those of before"
                log.warning(message, extra={"n": count})
            else:
                log.info("no word about services yet: none is announced so far")
            self.sources.services_known = self.decisions.services_unread = True
            await self._decide(Changed.NOTHING)

    async def follow_addresses(self, updates: AsyncIterator[frozenset[IPAddress]]) -> None:
        """Follow the datastore's addresses: external host routes to near ones are doubted."""
        async for addresses in updates:
            self.decisions.datastore = addresses
            if self.in_sync:
                self.decisions.decide_terms(self.plan.peers, self.handover)
                self._timer.set()

    async def follow_passwords(self, source: PasswordSource) -> None:
        """Apply changes of passwords, for ever."""
        async for known in source.changes():
            self.decisions.unlock(known)
            await self._decide(Changed.PEERING)

    async def remember(self, patience: float = PATIENCE) -> None:
        """Restore the saved decisions (`bgp.agent.saved_decisions`) while the store is silent."""
        await asyncio.sleep(patience)
        last = self._memory.before
        if not self.in_sync and last != LastDecisions():
            log.warning("no word from the datastore: going on with the last decisions")
            self.decisions.take_filters(last.filters)
            await self._apply_plan(Plan(tuple(last.peers), local_as=last.local_as))
            self.routing.have(last.own, last.ranges)
            self._decide_terms()
            await self._tell_speaker()

    # -- decisions

    async def _decide(self, changed: Changed) -> None:
        """Decide what these changes affect, once the snapshot is complete."""
        if not self.progress.complete:
            return
        if self.sources.services is not None and self.decisions.announces_services:
            self.sources.services.require()
            if not (self.in_sync or self.sources.services_known):
                return  # without them a restart would withdraw their addresses
        if not self.in_sync:
            self.progress.in_sync, changed = True, EVERYTHING | Changed.IMPORT
        if Changed.FILTERS in changed:
            self.decisions.decide_filters()
        if Changed.PEERING in changed:
            plan = self.decisions.planned(_now())
            if self.sources.passwords is not None:
                self.sources.passwords.require(plan.secrets)
            await self._apply_plan(plan)
        if Changed.EXPORT in changed:
            self.decisions.decide_own()
        if changed & EVERYTHING:
            self._decide_terms()
        if Changed.IMPORT in changed:
            self.decisions.decide_owners()
        await self._tell_speaker()
        if changed:
            self._keep()

    def _keep(self) -> None:
        """Remember what is decided."""
        self._memory.save(decided(self.decisions, self.routing, self.plan))

    def _decide_terms(self) -> None:
        """Decide the terms of import and export; until the datastore is read, as before."""
        if self.in_sync:
            self.decisions.decide_terms(self.plan.peers, self.handover)
        else:
            self.decisions.recall(self._memory.before.terms, self.plan.peers)

    async def _tell_speaker(self) -> None:
        if self.routing.take_changed() or not self.progress.announced:
            routes = self.routing.routes()
            log.log(
                logging.DEBUG if self.progress.announced else logging.INFO,
                "announcing",
                extra={"routes": len(routes)},
            )
            self.progress.announced = True
            await self.speaker.announce(routes)
            self.writer.changed()

    async def _apply_plan(self, plan: Plan) -> None:
        for refused in set(plan.refused) - set(self.plan.refused):
            log.error("peering refused: %s", refused.reason, extra={"object": refused.source})
        fresh = {each.peer.address: each for each in plan.peers}
        peers_now = self.handover.plan(self.sessions.planned, fresh, self._exists, _now())
        await self._hold(peers_now, plan)

    def _exists(self, planned: PlannedPeer) -> bool:
        node = self.view.nodes.get(planned.node)
        return node is not None and planned.peer.address in node.addresses

    async def _hold(self, peers: Mapping[IPAddress, PlannedPeer], plan: Plan) -> None:
        """Hold exactly these sessions."""
        ordered = tuple(sorted(peers.values(), key=lambda each: order(each.peer.address)))
        old = self.plan.peers
        self.plan = replace(plan, peers=ordered)
        # A source says what it knows only after the first plan has asked it.
        unread = plan.secrets - self.decisions.known_passwords.values.keys()
        self.gate.lacking = bool(plan.refused and unread)
        recalled = self._memory.before.reflectors or {}
        reflecting = reflectors.cluster_ids(self.view) if self.in_sync else recalled
        self.sessions.hold({each.peer.address: each for each in ordered}, reflecting)
        if not self.sessions.clients.check(_now()):
            self.speaker.withhold(True)  # let go in `keep_time`
        self.routing.fix(
            {
                ip_network(each.peer.address): each.reachable_by
                for each in ordered
                if each.reachable_by is not None
            }
        )
        self._set_own()
        self.metrics.refused = len(plan.refused)
        definitions = [each.peer for each in ordered]
        if definitions != [each.peer for each in old]:
            log.info("peers", extra={"count": len(ordered)})
            self.configured = now_text()
            await self.speaker.configure(definitions)
        self._check_gate()
        self._timer.set()
        self.writer.changed()

    # -- speaker and time

    async def follow_speaker(self) -> None:
        """Handle the speaker's events, for ever. Raises `SpeakerBroken`.

        Announcements follow when no event waits (`keep_time`): one for many UPDATEs.
        """
        async for event in self.speaker.events():
            self.on_event(event)

    def on_event(self, event: Event) -> None:
        """Handle one event."""
        if isinstance(event, SpeakerFailed):
            raise SpeakerBroken("the speaker cannot be kept: see the log above")
        self.sessions.handle_event(event, _now())
        self._check_gate()
        self._timer.set()
        self.writer.changed()

    def _check_gate(self) -> None:
        if not self.gate.passed and self.gate.check(_now()):
            log.info("start complete", extra={"prefixes": self.published})
            self.publisher.complete()

    async def keep_time(self) -> None:
        """Expire stale paths, pass the start gate, end handovers when their time has come."""
        while True:
            now = _now()
            moments = (
                self.sessions.helper.next_deadline(),
                self.gate.next_check(),
                self.sessions.clients.next_check(),
                self.handover.next_check(now),
                self.decisions.former.next_check(),
            )
            wait = min((each for each in moments if each is not None), default=None)
            try:
                async with asyncio.timeout_at(wait):
                    await self._timer.wait()
            except TimeoutError:
                pass
            self._timer.clear()
            self.sessions.expired(_now())
            self._check_gate()
            if (over := self.decisions.former.next_check()) is not None and over <= _now():
                await self._decide(Changed.PEERING)
            await self._release()
            complete = self.sessions.clients.check(_now())
            if self.progress.announced:
                await self._tell_speaker()
                if complete and not self.progress.told_all:
                    self.progress.told_all = True
                    self.speaker.withhold(False)

    async def keep_resolving(self, resolver: Resolver, pause: float = PAUSE) -> None:
        """Ask again and again whether the next hops of the table can be reached, for ever."""
        while True:
            hops = [hop for hop in self.routing.rib.hops if not self.sessions.up(hop)]
            if resolver.look(hops):
                gone = ", ".join(sorted(map(str, resolver.unresolved)))
                log.warning("next hops without a way: %.500s", gone or "none any more")
                self.routing.choose(self.routing.rib.resolve(resolver.unresolved))
                self._timer.set()
                self.writer.changed()
            await asyncio.sleep(pause + len(hops) / HOPS_A_SECOND)

    async def _release(self) -> None:
        """End the sessions whose successors carry their routes."""
        kept = self.handover.kept
        if not kept:
            return
        rib = self.routing.rib

        def covered(address: IPAddress) -> bool:
            return all(rib.offered_by(net) - kept.keys() for net in rib.of(address))

        heard = self.handover.successors
        gone = self.handover.release(_now(), self.sessions.complete, covered)
        if gone:
            log.info("sessions end that left the plan", extra={"count": len(gone)})
            for address in sorted((each for each in gone if not gone[each]), key=order):
                log.warning(
                    "a session ends, and no other one carries all its routes",
                    extra={"peer": str(address)},
                )
            peers = {each.peer.address: each for each in self.plan.peers}
            for address in gone:
                del peers[address]
            await self._hold(peers, self.plan)
            self._keep()
        if gone or self.handover.successors != heard:
            self._decide_terms()

    # -- felix

    def on_felix_connected(self) -> None:
        """Forget refused paths: a felix that connects anew reports them again."""
        self.felix.connected()
        self.writer.changed()

    def on_felix(self, message: node_api.Message) -> None:
        """Handle a message of felix from `node.sock`."""
        if isinstance(message, node_api.RefusedPath):
            self.felix.refuse(message.prefix, message.reason)
            if message.reason:
                self.metrics.felix_refused += 1
            self.writer.changed()
        elif isinstance(message, node_api.Borrowed | node_api.BorrowedEnd):
            if self.felix.borrow(self.view, message) and self.in_sync:
                self.decisions.decide_lent()
                self._keep()
                self._timer.set()
        elif isinstance(message, node_api.Fact):
            self.felix.local_addresses = message.local_addresses
            self._set_own()
            if self.decisions.take_networks(message.networks):
                if self.in_sync:
                    self.decisions.decide_own()
                    self._keep()
                self._decide_terms()
                self.routing.judge_again()
            self._timer.set()

    def _set_own(self) -> None:
        own = self.felix.own_addresses(self.view)
        if self.routing.address(own) and self.in_sync:
            self.decisions.decide_terms(self.plan.peers, self.handover)

    # -- telling

    def describe(self) -> StatusDocument:
        """The content of the status file (`bgp.sessions.status`)."""
        return status_document.describe(self)

    def conditions(self) -> list[tuple[str, str]]:
        """Conditions for an operator: (object, reason)."""
        return conditions(self)
