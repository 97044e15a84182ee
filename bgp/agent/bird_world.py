"""The agent as `bgp.bird.birdanswers` shows it: sessions as protocols, its table as routes.

Protocols have the names of Calico's templates (docs/reference/dataplane.md#peerings):
`Mesh_10_0_0_2`, `Global_...`, `Node_...`, dots and colons as `_`, with `_port_N` where a peer of
those two has a port of its own. Beside them stand `static1` (blocks and services of this node, and
ways to peers by `reachableBy`), `kernel1` (felix, which writes the kernel's routes) and `direct1`.
Tested in tests/bgp/test_birdctl.py.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from bgp.agent.bird_details import attributes, capabilities
from bgp.agent.status_document import sent
from bgp.bird import birdlines as out
from bgp.bird.world import ProtocolState, ShownRoute
from bgp.peering.planned import GLOBAL, MESH, NODE, PlannedPeer
from bgp.routes.bestpath import Candidate
from bgp.routes.local_routes import Kind
from bgp.speaker.interface import BGP_PORT, Family, IPAddress, IPNetwork
from libcalico.clusterinfo import our_version

if TYPE_CHECKING:
    from bgp.agent.agent import Agent

PREFIXES = {MESH: "Mesh", GLOBAL: "Global", NODE: "Node"}
_OWN = {Kind.HOST: ("kernel1", 10), Kind.CONNECTED: ("direct1", 240)}
_TYPES = {Kind.HOST: "inherit", Kind.CONNECTED: "device"}
_STATIC, _BGP = ("static1", 200), 100
_ORIGIN_MARKS = "ie?"


def protocol_name(planned: PlannedPeer) -> str:
    """The name of a session's protocol."""
    peer = planned.peer
    name = f"{PREFIXES[planned.kind]}_{peer.address}".replace(".", "_").replace(":", "_")
    if planned.kind != MESH and peer.port != BGP_PORT:
        name += f"_port_{peer.port}"
    return name


class AgentWorld:
    """One family of an agent; implements `bgp.bird.world.World`."""

    def __init__(self, agent: Agent, family: int) -> None:
        self._agent, self.family = agent, family
        self._ways: dict[IPAddress, tuple[str, str]] = {}
        self.version = f"Muslin-{our_version()}"

    def now(self) -> datetime:
        """Local time, as BIRD shows it."""
        return datetime.now().astimezone()

    def status(self) -> Iterable[tuple[str, str]]:
        """Words and values of `show status`."""
        agent = self._agent
        first = agent.plan.peers[0].peer if agent.plan.peers else None
        return [
            ("Router ID is", str(first.router_id) if first else "0.0.0.0"),
            ("Hostname is", platform.node()),
            ("Current server time is", out.stamp(self.now())),
            ("Last reboot on", out.stamp(_moment(agent.started))),
            ("Last reconfiguration on", out.stamp(_moment(agent.configured))),
        ]

    def recovering(self) -> str:
        """A text until all peers have sent End-of-RIB since our start, or the deadline passed."""
        return "" if self._agent.gate.passed else "Waiting for End-of-RIB of the peers"

    # -- protocols

    def protocols(self, details: bool) -> list[ProtocolState]:
        """BIRD's own ones first, then the sessions of this family in the order of addresses."""
        agent = self._agent
        born = _moment(agent.started)
        felix = "up" if agent.publisher.connected else "start"
        own = [
            ProtocolState("static1", "Static", "up", born, "-"),
            ProtocolState("kernel1", "Kernel", felix, born, "-"),
            ProtocolState("direct1", "Direct", "up", born, "-"),
        ]
        return own + [self._session(each, details) for each in self._sessions()]

    def _sessions(self) -> Iterator[PlannedPeer]:
        for planned in self._agent.plan.peers:
            if planned.peer.address.version == self.family:
                yield planned

    def _session(self, planned: PlannedPeer, details: bool) -> ProtocolState:
        agent = self._agent
        status = agent.sessions.status[planned.peer.address]
        word = "Passive" if status.info == "Active" else status.info
        diagnosis = agent.doctor.diagnoses.get(planned.peer.address)
        error = "" if status.up else diagnosis.text if diagnosis else status.error
        info = f"{word:14}{error}" if error else word
        return ProtocolState(
            name=protocol_name(planned),
            kind="BGP",
            state="up" if status.up else "start",
            since=_moment(status.since),
            info=info,
            details=tuple(self._details(planned, word, error)) if details else (),
        )

    def _details(self, planned: PlannedPeer, word: str, error: str) -> Iterator[str]:
        agent, peer = self._agent, planned.peer
        up = agent.sessions.status[peer.address].up
        heard = agent.sessions.helper.peer_open(peer.address)
        yield f"  BGP state:          {word}"
        yield f"    Neighbor address: {peer.address}"
        yield f"    Neighbor AS:      {peer.remote_as}"
        yield f"    Local AS:         {peer.local_as}"
        if up and heard is not None:
            yield f"    Neighbor ID:      {heard.router_id}"
            yield "    Neighbor capabilities"
            yield from capabilities(heard)
            kind = "internal" if peer.internal else "external"
            several = " add-path" if heard.add_path else ""
            wide = " AS4" if heard.four_octet_as else ""
            yield f"    Session:          {kind} multihop{several}{wide}"
            yield f"    Source address:   {peer.local_address}"
            hold = min(heard.hold_time or peer.hold_time, peer.hold_time)
            yield f"    Hold timer:       {hold}/{hold}"
        if error:
            yield f"    Last error:       {error}"
        for family in peer.families:
            version = 4 if family is Family.IPV4 else 6
            yield f"  Channel ipv{version}"
            yield f"    State:          {'UP' if up else 'DOWN'}"
            yield f"    Table:          master{version}"
            yield f"    Preference:     {_BGP}"
            chosen = ", ".join(planned.filters)
            yield f"    Input filter:   {chosen or 'ACCEPT'}"
            yield f"    Output filter:  {chosen or 'calico_export_to_bgp_peers'}"
            if up:
                received, _ = agent.routing.rib.count(peer.address)
                refused = sum(agent.routing.rib.refused(peer.address))
                exported = sent(agent, peer.address)
                yield (
                    f"    Routes:         {received - refused} imported, {refused} filtered, "
                    f"{exported} exported"
                )

    # -- routes

    def prefixes(self) -> list[IPNetwork]:
        """Every prefix that is known here."""
        self._ways.clear()  # interfaces may be others by now
        routing = self._agent.routing
        known = dict.fromkeys((*routing.own, *routing.fixed, *routing.rib.prefixes()))
        return [net for net in known if net.version == self.family]

    def routes(self, prefix: IPNetwork, details: bool = False) -> list[ShownRoute]:
        """The paths of a prefix, the best first."""
        routing = self._agent.routing
        shown = []
        kind = routing.own.get(prefix)
        if kind is not None:
            shown.append(self._own(prefix, kind, details))
        if (way := routing.fixed.get(prefix)) is not None:
            hops = tuple(self._way(ip_address(text)) for text in way.next_hops)
            fixed = self._own(prefix, Kind.BLOCK, details)
            shown.append(replace(fixed, target="unicast", hops=hops, primary=not shown))
        for path in routing.rib.taken(prefix):
            shown.append(self._learned(prefix, path, not shown, details))
        return shown

    def exported(self, protocol: str, prefix: IPNetwork) -> bool:
        """Whether a prefix is announced to the peer of a protocol."""
        address = next(
            (one.peer.address for one in self._sessions() if protocol_name(one) == protocol), None
        )
        return any(
            each.peers is None or address in each.peers
            for each in self._agent.routing.offered.get(prefix, ())
        )

    def _way(self, hop: IPAddress) -> tuple[str, str]:
        way = self._ways.get(hop)
        if way is None:
            way = self._ways[hop] = (str(hop), self._agent.decisions.towards(hop))
        return way

    def _own(self, prefix: IPNetwork, kind: Kind, details: bool) -> ShownRoute:
        protocol, preference = _OWN.get(kind, _STATIC)
        hops: tuple[tuple[str, str], ...] = ()
        if kind in _OWN and (interface := self._agent.decisions.towards(prefix)):
            hops = (("", interface),)
        return ShownRoute(
            prefix=prefix,
            protocol=protocol,
            since=_moment(self._agent.started),
            target="unicast" if kind in _OWN else "blackhole",
            hops=hops,
            preference=preference,
            details=((out.ROUTE_DETAIL, f"\tType: {_TYPES.get(kind, 'static')} univ"),)[:details],
        )

    def _learned(
        self, prefix: IPNetwork, path: Candidate, primary: bool, details: bool
    ) -> ShownRoute:
        agent, source = self._agent, path.source
        planned, status = (
            agent.sessions.planned.get(source.peer),
            agent.sessions.status.get(source.peer),
        )
        # A path outlives its session (graceful restart), never its peering.
        name = protocol_name(planned) if planned else f"BGP_{source.peer}"
        origin = _ORIGIN_MARKS[path.attributes.origin]
        hop: IPAddress = path.next_hop
        return ShownRoute(
            prefix=prefix,
            protocol=name,
            since=_moment(status.since if status else agent.started),
            sender="" if hop == source.peer else str(source.peer),
            hops=(self._way(hop),),
            primary=primary,
            preference=_BGP,
            mark=f"AS{path.attributes.as_path[-1]}{origin}" if path.attributes.as_path else origin,
            details=tuple(attributes(path)) if details else (),
        )


@lru_cache(maxsize=1024)
def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
