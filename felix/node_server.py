"""`node.sock`: the socket between felix and the other daemons of its node.

`bgp` sends paths, and receives this node's addresses, borrowed addresses and refused paths. `cni`
offers and retracts endpoints (`felix.offers`), and waits until they are in force. `calicoctl` asks
questions (`felix.questions`) and watches denied packets (`felix.reports.drops`).

Invariants:
  NSV-2  Only the connection that began the newest snapshot changes paths; when it ends, the
         paths stay (fail static).
  NSV-3  `InForce` without an error is sent only for exactly the container that was asked for, and
         not before its rules and sets are in the kernel. A peer that makes link and routes itself
         (`wired`) is sent the routes that are lacking. Link and routes are there by every event
         of the kernel before the answer: an older sandbox's link may have had the name.
  NSV-4  Once the datastore has been read, `bgp` is told all borrowed addresses when it connects,
         and each change; before that it is told of none.
Tested in tests/felix/agent/test_node_server.py.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import MappingProxyType

from felix.calc.endpoints import Endpoint
from felix.calc.sets.claimed_blocks import IPNetwork
from felix.dataplane.loop import Dataplane
from felix.flows.flow_logs import MARK, FlowLogs
from felix.node_peer import Peer
from felix.offers import Offers
from felix.questions import Questions
from felix.questions_afar import QuestionsAfar, table
from felix.reports.drops import Drops
from felix.telling import Telling
from libcalico.local.framing import Connection
from libcalico.local.listening import UnixServer, serve_unix
from libcalico.local.node_api import (
    Await,
    Borrowed,
    BorrowedEnd,
    Fact,
    Hello,
    InForce,
    Offer,
    Paths,
    PathsBegin,
    PathsEnd,
    RefusedPath,
    Retract,
    Stored,
    Unreleased,
    Vanished,
)
from libcalico.local.trace_messages import Ask, CountDrops, DropCounts, Told, WatchDrops
from libcalico.model import ResourceKey
from libcalico.process import paths, tasks
from libcalico.process.tasks import beside

IPAddress = IPv4Address | IPv6Address

log = logging.getLogger(__name__)


class NodeServer:
    """Felix's end of `node.sock`. The agent calls `publish` after each turn of the main loop."""

    def __init__(
        self,
        node: str,
        dataplane: Dataplane,
        environ: Mapping[str, str] = MappingProxyType({}),
        flow_accounting: Path = MARK,
        status: Path = paths.STATUS,
    ) -> None:
        self._plane = dataplane
        self._peers: set[Peer] = set()
        self._speaker: Peer | None = None
        self._server: UnixServer | None = None
        self._sent_refused: Mapping[str, str] = {}
        self._blocks_told = False
        self._fact = Fact()
        self._own_addresses: frozenset[IPAddress] = frozenset()
        self._networks: Mapping[str, str] = {}
        self._shadowed: Mapping[ResourceKey, str] = {}
        self.offers = Offers(node, dataplane)
        self._questions = Questions(node, dataplane)
        self.questions_afar = QuestionsAfar(node, table(status))
        self.telling = Telling(dataplane, self._questions.counts.across)
        self._drops = Drops(node, dataplane, self.telling)
        self.flow_logs = FlowLogs(node, dataplane, self.telling, environ, flow_accounting)
        self._answering: set[asyncio.Task[None]] = set()
        dataplane.on_ruled = self._ruled

    @property
    def speaker_connected(self) -> bool:
        """Whether a `bgp` that announced a snapshot is connected."""
        return self._speaker is not None

    async def start(self, path: Path = paths.NODE_SOCKET) -> None:
        """Listen. Raises `OSError`."""
        self._server = await serve_unix(path, self._serve, hello=Hello("felix"))

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        self.flow_logs.stop()
        self.telling.close()
        self.questions_afar.stop()
        if self._server is not None:
            await self._server.close()

    async def _serve(self, connection: Connection) -> None:
        peer = Peer(connection)
        self._peers.add(peer)
        log.info("connected", extra={"object": connection.process})
        peer.post("fact", self._fact)
        if self._blocks_told:
            self._tell_borrowed(peer, self._plane.calc.blocks.borrowed)
        try:
            async with beside(peer.deliver()):
                await connection.attend(functools.partial(self._receive, peer))
        finally:
            self._peers.discard(peer)
            self._drops.leave(peer)
            if self._speaker is peer:
                self._speaker = None
                log.warning("bgp is gone; its routes stay", extra={"object": connection.process})
            self.offers.leave(peer)

    def _receive(self, peer: Peer, message: object) -> None:
        match message:
            case PathsBegin():
                self._speaker = peer
                self._plane.routing.paths.begin()
                self._sent_refused = {}
            case Paths(updated, withdrawn) if peer is self._speaker:
                routing = self._plane.routing
                routing.paths_changed(routing.paths.change(updated, withdrawn))
            case PathsEnd() if peer is self._speaker:
                self._plane.routing.paths_changed(self._plane.routing.paths.end())
            case Offer():
                key = self.offers.offer(peer, message)
                if key in self.offers.refused:
                    for each in self._peers:
                        self._answer(each, (key,))
            case Retract():
                self.offers.retract(peer, message)
            case Unreleased(containers):
                # The set stays while `cni` is away: nothing is released then.
                self._plane.calc.endpoints.unreleased = frozenset(containers)
            case Stored():
                self.offers.stored(peer, message)
            case Await(namespace, name):
                key = ResourceKey("WorkloadEndpoint", name, namespace)
                peer.awaits[key] = message
                self._answer(peer, (key,))
                if key in peer.awaits and not message.wired:
                    self._plane.hear_now()
            case WatchDrops():
                self._drops.watch(peer)
            case Ask() | CountDrops():
                task = tasks.start(self._question(peer, message), "an answer")
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case _:
                pass

    async def _question(self, peer: Peer, question: Ask | CountDrops) -> None:
        answer: Told | DropCounts
        if isinstance(question, Ask):
            answer = await self._questions.ask(question)
        else:
            answer = await self._questions.count(question)
        peer.post(("answer", question.id), answer)

    def publish(self) -> None:
        """Send every peer what is new for it."""
        plane = self._plane
        own, networks = plane.view.own_addresses(), plane.view.networks()
        if own is not self._own_addresses or networks is not self._networks:
            fact = Fact(sorted(map(str, own)), dict(networks))
            if fact != self._fact:
                for peer in self._peers:
                    peer.post("fact", fact)
            self._fact, self._own_addresses, self._networks = fact, own, networks
        self._publish_borrowed()
        self._publish_vanished()
        if self._speaker is not None and plane.calc.ready:
            refused, previous = plane.routing.off_node.learned.complaints(), self._sent_refused
            if refused is not previous:
                self._sent_refused = refused
                for prefix in previous.keys() - refused.keys():
                    self._speaker.post(("refused", prefix), RefusedPath(prefix, ""))
                for prefix, reason in refused.items():
                    if previous.get(prefix) != reason:
                        self._speaker.post(("refused", prefix), RefusedPath(prefix, reason))
        shadowed, news = plane.state.shadowed, plane.state.news
        if shadowed is not self._shadowed:
            self._shadowed, news = shadowed, None
        for peer in self._peers:
            if peer.awaits:
                self._answer(peer, list(peer.awaits) if news is None else news)
        self.telling.published()
        self._drops.published()

    def _publish_vanished(self) -> None:
        for key, container_id in self._plane.calc.endpoints.take_vanished().items():
            for peer in self._peers:
                if peer.connection.process == "cni":
                    told = Vanished(key.namespace, key.name, container_id)
                    peer.post(("vanished", key), told)

    def _publish_borrowed(self) -> None:
        blocks = self._plane.calc.blocks
        if not blocks.started:
            return
        news: Iterable[IPNetwork] = blocks.take_news()
        if not self._blocks_told:
            self._blocks_told, news = True, blocks.borrowed
        elif not news:
            return
        for peer in self._peers:
            self._tell_borrowed(peer, news)

    def _tell_borrowed(self, peer: Peer, blocks: Iterable[IPNetwork]) -> None:
        """Post the borrowed addresses of these blocks. The end always comes last."""
        if peer.connection.process != "bgp":
            return
        borrowed = self._plane.calc.blocks.borrowed
        for cidr in blocks:
            users = {str(address): node for address, node in borrowed.get(cidr, {}).items()}
            peer.post(("borrowed", cidr), Borrowed(str(cidr), users))
        peer.post("borrowed end", BorrowedEnd())

    def _ruled(self, keys: list[ResourceKey]) -> None:
        """Answer the peers that wait for no more than the rules and sets of these endpoints."""
        for peer in self._peers:
            if peer.awaits:
                self._answer(peer, keys)

    @property
    def waits_for_links(self) -> bool:
        """Whether a peer waits for an event of the kernel about a link."""
        return any(not one.wired for peer in self._peers for one in peer.awaits.values())

    def _answer(self, peer: Peer, keys: Iterable[ResourceKey]) -> None:
        """Answer a peer for those of these endpoints that it awaits and that are decided."""
        for key in keys:
            awaited = peer.awaits.get(key)
            answer = self._in_force_answer(key, awaited) if awaited is not None else None
            if answer is not None:
                del peer.awaits[key]
                peer.post(("in_force", key), answer)

    def _in_force_answer(self, key: ResourceKey, awaited: Await) -> InForce | None:
        """The answer about an endpoint, None as long as there is none."""
        state, current = self._plane.state, self._plane.calc.endpoints.get(key)
        about = (key.namespace, key.name, awaited.container_id)

        def meant(endpoint: Endpoint | None) -> bool:
            # The endpoint in force must still be the current one: a change may be on its way.
            return (
                endpoint is not None
                and endpoint.container_id == awaited.container_id
                and endpoint == current
            )

        endpoint = state.in_force.get(key)
        if endpoint is not None and meant(endpoint):
            if self._plane.stands(endpoint):
                return InForce(*about, "", awaited.number)
            # The kernel may have removed link and routes meanwhile: the next turn judges that.
            # Where the turn cannot (not ready, failures), the end of that begins one: a kick after
            # each turn would never end.
            self._plane.touched.mark((endpoint.interface,))
            if self._plane.calc.ready and not state.failures:
                self._plane.kick_some()
        error = state.shadowed.get(key) or self.offers.refused.get(key, "")
        if error:
            return InForce(*about, error, awaited.number)
        ruled = self._plane.rules_programmed(key) if awaited.wired else None
        if ruled is not None and meant(ruled[0]):
            return InForce(*about, "", awaited.number, ruled[1])
        return None
