"""The sessions as they are: what each event of the speaker means for status and routes.

It knows which sessions are up, their OPENs, and what graceful restart keeps. It does not decide
which sessions there are. The speaker applies a plan later, or never if it is changed back: a
session ends with an event, not with the plan that lacks it. Tested in tests/bgp/test_agent.py and
test_late_speaker.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from bgp.decide.routing import Routing
from bgp.peering.planned import PlannedPeer
from bgp.routes.bestpath import Source
from bgp.sessions.graceful_restart import Action, Helper, InitialConvergence, Verb
from bgp.sessions.metrics import Metrics
from bgp.sessions.status import ESTABLISHED, PeerStatus
from bgp.speaker.interface import (
    EndOfRib,
    Event,
    Family,
    IPAddress,
    PathsReceived,
    Peer,
    PeerDown,
    PeerOpen,
    PeerProgress,
    PeerUp,
    SpeakerDown,
    SpeakerUp,
)

log = logging.getLogger(__name__)


class Sessions:
    """All sessions of this node.

    `clients`: whether all those have spoken since our start that we reflect for, other reflectors
    left out: each would wait for the other.
    """

    def __init__(self, routing: Routing, gate: InitialConvergence, metrics: Metrics) -> None:
        self._routing, self._metrics = routing, metrics
        self.clients = gate.same_time()
        self._gates = (gate, self.clients)
        self.planned: dict[IPAddress, PlannedPeer] = {}
        self.status: dict[IPAddress, PeerStatus] = {}
        self.helper = Helper()
        self.speaker_up = self.speaker_idle = False
        self._begun = 0
        """How many sessions have come up since the start."""
        self._definitions: dict[IPAddress, Peer] = {}
        """By which definition the last session with a peer came up."""
        self._sources: dict[IPAddress, Source] = {}
        self._spoken: set[tuple[IPAddress, Family]] = set()

    def hold(
        self, planned: Mapping[IPAddress, PlannedPeer], reflectors: Collection[str] = ()
    ) -> None:
        """Set the planned sessions. `reflectors`: the names of the nodes that reflect."""
        old, self.planned = self.planned, dict(planned)
        for address in old.keys() - self.planned.keys():
            if self.up(address):
                self._know(address)  # until the speaker has ended it, or it is planned again
            else:
                self._forget(address)
        for address, each in self.planned.items():
            if address not in self.status:
                self.status[address] = PeerStatus(_waiting(each))
            elif old.get(address) != each:
                self._know(address)
        clients = [each for each in planned.values() if each.client and each.node not in reflectors]
        for gate, some in zip(self._gates, (planned.values(), clients), strict=True):
            gate.expect(
                [(each.peer.address, family) for each in some for family in each.peer.families]
            )

    def up(self, address: IPAddress) -> bool:
        """There is a session with this address, and it is Established."""
        status = self.status.get(address)
        return status is not None and status.up

    def complete(self, address: IPAddress) -> bool:
        """The session is up, and its peer has sent End-of-RIB for all families."""
        planned = self.planned.get(address)
        return planned is not None and all(
            (address, family) in self._spoken for family in planned.peer.families
        )

    def handle_event(self, event: Event, now: float) -> None:
        """Handle one event. Times are seconds, monotonic."""
        if isinstance(event, PathsReceived):
            source = self._sources.get(event.peer)
            if source is not None:
                self._routing.choose(self._routing.rib.update(event, source))
        elif isinstance(event, EndOfRib):
            log.info("End-of-RIB", extra={"peer": event.peer, "family": event.family.value})
            self._spoken.add((event.peer, event.family))
            self._act(self.helper.end_of_rib(event.peer, event.family))
            for gate in self._gates:
                gate.end_of_rib(event.peer, event.family)
        elif isinstance(event, PeerOpen):
            self.helper.opened(event)
        elif isinstance(event, PeerUp):
            self._on_up(event, now)
        elif isinstance(event, PeerDown):
            self._on_down(event, now)
        elif isinstance(event, PeerProgress):
            self._on_progress(event)
        elif isinstance(event, SpeakerUp):
            self.speaker_up, self.speaker_idle = True, False
        elif isinstance(event, SpeakerDown):
            self._on_speaker_down(event, now)

    def expired(self, now: float) -> None:
        """Drop what has waited long enough."""
        self._act(self.helper.expired(now))

    def _on_up(self, event: PeerUp, now: float) -> None:
        message = self.helper.peer_open(event.peer)
        self._definitions[event.peer] = event.definition
        self._know(event.peer)
        self._act(self.helper.up(event.peer, event.definition.families, now))
        for gate in self._gates:
            gate.up(event.peer, bool(message and message.restart_time is not None), now)
        self._begun += 1
        status = self.status.setdefault(event.peer, PeerStatus(""))
        status.session = self._begun
        status.change(ESTABLISHED)
        self._metrics.ups += 1
        self._metrics.peer_ups[str(event.peer)] += 1
        log.info("session up", extra={"peer": event.peer})

    def _know(self, address: IPAddress) -> None:
        """Tell the table of a session that came up; its older paths are judged again.

        The session's own part is as it came up, ours as it is planned now.
        """
        peer, planned = self._definitions.get(address), self.planned.get(address)
        if peer is None:
            return
        message = self.helper.peer_open(address)
        source = Source(
            peer=address,
            internal=peer.internal,
            local_as=peer.local_as,
            remote_as=peer.remote_as,
            router_id=(message.router_id if message else None) or peer.router_id,
            own_router_id=peer.router_id,
            leaving=planned is None,
        )
        if planned is not None:
            source = replace(
                source,
                in_cluster=planned.in_cluster,
                allowed_local_as=planned.allowed_local_as,
                node=planned.node,
                client=planned.client,
                own_cluster=planned.own_cluster,
                joins=planned.joins,
                filters=planned.filters,
            )
        if self._sources.get(address) != source:
            self._sources[address] = source
            self._routing.choose(self._routing.rib.source_changed(source))

    def _on_down(self, event: PeerDown, now: float) -> None:
        self._silent(event.peer)
        self._act(self.helper.down(event.peer, event.reason, now))
        self._metrics.downs[event.reason.value] += 1
        planned = self.planned.get(event.peer)
        level = logging.INFO if planned is None else logging.WARNING
        log.log(level, "session down: %s", event.detail, extra={"peer": event.peer})
        if planned is None:
            self._forget(event.peer)
        else:
            self.status[event.peer].change(_waiting(planned), event.detail)

    def _on_progress(self, event: PeerProgress) -> None:
        status, planned = self.status.get(event.peer), self.planned.get(event.peer)
        if status is None or planned is None or status.up:
            return
        info = event.state if event.state == "OpenSent" else _waiting(planned)
        status.change(info, event.detail)

    def _on_speaker_down(self, event: SpeakerDown, now: float) -> None:
        self.speaker_up, self.speaker_idle = False, event.idle
        for address in self.status:
            self._silent(address)
        if not event.idle:
            self._metrics.speaker_restarts += 1
            log.warning("the speaker is down: %s", event.detail)
        self._act(self.helper.speaker_down(now))
        for address in self.status.keys() - self.planned.keys():
            self._forget(address)
        for address, planned in self.planned.items():
            self.status[address].change(_waiting(planned), event.detail)

    def _forget(self, address: IPAddress) -> None:
        """Forget an address that has no session and is not planned."""
        self._act(self.helper.forget(address))
        for table in (self.status, self._definitions, self._sources):
            table.pop(address, None)
        self._silent(address)
        self._metrics.forget(str(address))

    def _silent(self, peer: IPAddress) -> None:
        self._spoken -= {(peer, family) for family in Family}
        for gate in self._gates:
            gate.down(peer)

    def _act(self, actions: Iterable[Action]) -> None:
        rib = self._routing.rib
        for action in actions:
            if action.verb is Verb.MARK:
                rib.mark_stale(action.peer, action.family)
            elif action.verb is Verb.SWEEP:
                self._routing.choose(rib.sweep(action.peer, action.family))
            else:
                self._routing.choose(rib.drop(action.peer, action.family))


def _waiting(planned: PlannedPeer) -> str:
    return "Active" if planned.peer.passive else "Connect"
