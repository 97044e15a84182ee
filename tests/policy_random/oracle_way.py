"""The oracle of a node with host endpoints: where on a packet's way which policy is asked.

Like oracle.py it imports nothing of the product. Written from the dataplane reference
(docs/reference/dataplane.md) and the data model (docs/reference/data-model.md#networkpolicy):

    doNotTrack      before connections are tracked; what it accepts is no connection's, is not
                    translated, and meets nothing else of the host: answers need rules of their own
    preDNAT         what came in, before addresses are translated; what it accepts meets neither
                    normal nor forward policy of the interface that it came by
    applyOnForward  what passes through, where it comes in and where it goes out
    normal          what the node itself receives and sends, failsafe ports always; last, profiles

Neither doNotTrack nor preDNAT decides about what none of its rules matches, and workloads are
judged by their own policy whatever was accepted before. What the node sends to one of its workloads
nobody judges; what a workload sends to its node, its own egress policy alone (here
defaultEndpointToHostAction is Return). Of an answer to what was not tracked the kernel says that
TCP and ICMP are invalid, and policy drops what is invalid; anything else begins a connection.
Checked against hand-written tables in test_oracle_way.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import ip_address

from tests.policy_random.oracle import (
    Address,
    Document,
    Endpoint,
    Flow,
    Oracle,
    Packet,
    Tiers,
)

ANSWERS = {8: 0, 13: 14, 128: 129}
"""ICMP and ICMPv6: what answers to which type."""
BY_ICMP = (1, 58)
TCP = 6
Door = tuple[str, int, int]
"""An end, a protocol, a port."""


class State(Enum):
    """What connection tracking says of a packet."""

    NEW = "new"
    ESTABLISHED = "established"
    INVALID = "invalid"
    UNTRACKED = "untracked"


@dataclass(frozen=True)
class Site:
    """A node and the ends of packets around it, each named NAMESPACE/NAME.

    `ways`: the interface by which an end is reached; the node itself has none, a workload is
    reached by its own. `translations`: which door becomes which. `failsafe_in`, `failsafe_out`:
    (protocol, port) that no policy of the host shuts.
    """

    addresses: Mapping[str, tuple[str, ...]]
    ways: Mapping[str, str]
    interfaces: Mapping[str, tuple[str, ...]]
    translations: Mapping[Door, Door]
    failsafe_in: frozenset[tuple[int, int]]
    failsafe_out: frozenset[tuple[int, int]]

    def address(self, title: str, version: int) -> Address:
        """Of an end, in one family."""
        found = map(ip_address, self.addresses[title])
        return next(one for one in found if one.version == version)


@dataclass(frozen=True)
class Travel:
    """A packet that came through: between which ends, and what tracking thought of it."""

    packet: Packet
    source: str
    destination: str
    state: State
    translated: bool


class Way:
    """One world on one node."""

    def __init__(self, documents: Iterable[Document], site: Site) -> None:
        self.oracle = Oracle(documents)
        self.site = site
        self.hosts = self._serving()
        self.stages: dict[str, dict[str, Tiers]] = {}
        for interface, host in self.hosts.items():
            self.stages[interface] = {
                name: [
                    (tier, denies and name in ("tiers", "forward"), policies)
                    for tier, denies, policies in self.oracle.ordered(chosen)
                ]
                for name, chosen in self.oracle.stages(host.title).items()
            }

    def _serving(self) -> dict[str, Endpoint]:
        """By interface: who names it before who expects an address of it, then by name."""
        named: dict[str, Endpoint] = {}
        expecting: dict[str, Endpoint] = {}
        documents = {d["metadata"]["name"]: d["spec"] for d in self.oracle.of("HostEndpoint")}
        for title in sorted(documents):
            spec, host = documents[title], self.oracle.hosts[title]
            if spec.get("interfaceName"):
                named.setdefault(spec["interfaceName"], host)
                continue
            for interface, own in self.site.interfaces.items():
                if {*own} & {*spec.get("expectedIPs", ())}:
                    expecting.setdefault(interface, host)
        return {
            name: one for name, one in (expecting | named).items() if name in self.site.interfaces
        }

    # -- a question and its answer -------------------------------------------------------------

    def answered(self, flow: Flow) -> bool:
        """Whether the flow's first packet arrives and its answer comes back."""
        ends = (
            self.site.address(flow.source, flow.version),
            self.site.address(flow.destination, flow.version),
        )
        there = self.travel(Packet(flow, *ends), flow.source, flow.destination, None)
        if there is None or self._door(there) in self.site.translations:
            # What should have been translated and was not finds nobody.
            return False
        back = self.travel(answer(there.packet), there.destination, there.source, there)
        # An answer that tracking does not know keeps the address that nobody asked.
        return back is not None and (not there.translated or back.state is State.ESTABLISHED)

    def _door(self, travel: Travel) -> Door:
        flow = travel.packet.flow
        return travel.destination, flow.protocol, flow.destination_port

    def travel(
        self, packet: Packet, source: str, destination: str, asked: Travel | None
    ) -> Travel | None:
        """A packet through the node, or None; `asked` is the question that it answers."""
        came, goes = self.site.ways[source], self.site.ways[destination]
        verdict = self._untracked(packet, came, goes)
        if verdict is False:
            return None
        accepted = verdict is True
        state = State.UNTRACKED if accepted else tracked(packet, asked)
        if came and not accepted and state is not State.ESTABLISHED:
            verdict = self._pre_dnat(packet, came, state)
            if verdict is False:
                return None
            accepted = verdict is True
        flow, translated = packet.flow, False
        door = self.site.translations.get((destination, flow.protocol, flow.destination_port))
        if door is not None and state is State.NEW:
            destination, translated = door[0], True
            goes = self.site.ways[destination]
            there = self.site.address(destination, flow.version)
            packet = Packet(replace(flow, destination_port=door[2]), packet.source, there)
        if not self._filter(packet, source, destination, state, accepted):
            return None
        return Travel(packet, source, destination, state, translated)

    def _filter(
        self, packet: Packet, source: str, destination: str, state: State, accepted: bool
    ) -> bool:
        came, goes = self.site.ways[source], self.site.ways[destination]
        from_workload = source in self.oracle.endpoints
        to_workload = destination in self.oracle.endpoints
        if not goes:
            if from_workload:
                return self._workload(source, packet, "egress", state)
            return accepted or self._normal(came, packet, "ingress", state)
        if not came:
            return accepted or to_workload or self._normal(goes, packet, "egress", state)
        if state is State.ESTABLISHED:
            return True
        return (
            (accepted or self._forward(came, packet, "ingress", state))
            and (not from_workload or self._workload(source, packet, "egress", state))
            and (not to_workload or self._workload(destination, packet, "ingress", state))
            and self._forward(goes, packet, "egress", state)
        )

    # -- the stations --------------------------------------------------------------------------

    def _untracked(self, packet: Packet, came: str, goes: str) -> bool | None:
        """The verdict of doNotTrack: where it comes in, or where the node sends it out."""
        interface = came or goes
        if interface not in self.hosts:
            return None
        into, out = self.site.failsafe_in, self.site.failsafe_out
        if not came:
            into, out = out, into
        flow = packet.flow
        # Without connections answers of what is always open are told by the port they come from.
        if (flow.protocol, flow.destination_port) in into or (
            flow.protocol,
            flow.source_port,
        ) in out:
            return None
        direction = "ingress" if came else "egress"
        return self._decided(interface, "untracked", packet, direction)

    def _pre_dnat(self, packet: Packet, came: str, state: State) -> bool | None:
        if came not in self.hosts or not any(p for _, _, p in self.stages[came]["pre_dnat"]):
            return None
        if state is State.INVALID:
            return False
        if (packet.flow.protocol, packet.flow.destination_port) in self.site.failsafe_in:
            return None
        return self._decided(came, "pre_dnat", packet, "ingress")

    def _normal(self, interface: str, packet: Packet, direction: str, state: State) -> bool:
        if interface not in self.hosts or state is State.ESTABLISHED:
            return True
        if state is State.INVALID:
            return False
        safe = self.site.failsafe_in if direction == "ingress" else self.site.failsafe_out
        if (packet.flow.protocol, packet.flow.destination_port) in safe:
            return True
        decided = self._decided(interface, "tiers", packet, direction)
        if decided is not None:
            return decided
        return self.oracle.behind(self.hosts[interface].profiles, packet, direction).allowed

    def _forward(self, interface: str, packet: Packet, direction: str, state: State) -> bool:
        if interface not in self.hosts:
            return True
        if state is State.INVALID:
            return False
        return self._decided(interface, "forward", packet, direction) is not False

    def _workload(self, title: str, packet: Packet, direction: str, state: State) -> bool:
        if state is State.ESTABLISHED:
            return True
        return (
            state is not State.INVALID and self.oracle.direction(title, packet, direction).allowed
        )

    def _decided(self, interface: str, stage: str, packet: Packet, direction: str) -> bool | None:
        found = self.oracle.through(self.stages[interface][stage], packet, direction)
        return None if found is None else found.allowed


def tracked(packet: Packet, asked: Travel | None) -> State:
    """What connection tracking says of a packet that it sees."""
    if asked is None:
        return State.NEW
    if asked.state is not State.UNTRACKED:
        return State.ESTABLISHED
    return State.INVALID if packet.flow.protocol in (TCP, *BY_ICMP) else State.NEW


def answer(packet: Packet) -> Packet:
    """What an end sends back."""
    flow = packet.flow
    kind = ANSWERS.get(flow.icmp_type, 0) if flow.protocol in BY_ICMP else 0
    turned = replace(
        flow,
        source=flow.destination,
        destination=flow.source,
        source_port=flow.destination_port,
        destination_port=flow.source_port,
        icmp_type=kind,
    )
    return Packet(turned, packet.destination, packet.source)
