"""A rule's protocol, messages and ports, held against a packet.

Tested in tests/felix/explain/misses/test_random.py, test_near.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from felix.calc.labels import WITH_PORTS, protocol_number
from felix.explain.flow import ICMP, ICMPV6, Packet, protocol_name
from felix.explain.misses import hints
from felix.explain.misses.faults import Fault
from felix.explain.misses.labelled import Labelled
from libcalico.conversion.network_policy import POLICY_PREFIX
from libcalico.model import EntityRule, ResourceKey, Rule
from libcalico.model.resources.rules import ICMPFields


def kind_faults(key: ResourceKey, rule: Rule, packet: Packet) -> Iterator[Fault]:
    """Of family, protocol, messages and http, what fails."""
    kind = packet.kind
    is_a = f"the packet is {protocol_name(kind.protocol)}"
    protocol = None if rule.protocol is None else protocol_number(rule.protocol)
    if rule.ipVersion not in (None, packet.version):
        yield Fault("ipVersion", str(rule.ipVersion), f"the packet is IPv{packet.version}")
    if protocol is not None and protocol != kind.protocol:
        # With ports that match as well, an author forgot a protocol.
        asks = bool(rule.source.ports or rule.destination.ports)
        match = asks and all(
            not entity.ports or _within(entity.ports, port)
            for entity, port in (
                (rule.source, kind.source_port),
                (rule.destination, kind.destination_port),
            )
        )
        kubernetes = key.name.startswith(POLICY_PREFIX) and protocol == 6
        hint = hints.of_protocol(rule, packet, match, kubernetes)
        yield Fault("protocol", str(rule.protocol), is_a, hint=hint)
    if rule.notProtocol is not None and protocol_number(rule.notProtocol) == kind.protocol:
        yield Fault("notProtocol", str(rule.notProtocol), is_a)
    same = protocol is None or protocol == kind.protocol
    message = f"type {kind.icmp_type} code {kind.icmp_code}"
    if rule.icmp is not None and same and not _icmp(rule.icmp, packet):
        yield Fault("icmp", _message(rule.icmp), message)
    excluded = rule.notICMP if same and kind.protocol in (ICMP, ICMPV6) else None
    if excluded is not None and excluded.type is not None and _icmp(excluded, packet):
        yield Fault("notICMP", _message(excluded), message)
    if rule.http is not None and rule.action.lower() == "allow":
        yield Fault("http", "methods and paths", "not looked at here: such a rule allows nothing")


def _icmp(asked: ICMPFields, packet: Packet) -> bool:
    kind = packet.kind
    return asked.type in (None, kind.icmp_type) and asked.code in (None, kind.icmp_code)


def _message(asked: ICMPFields) -> str:
    return f"type {asked.type}" + ("" if asked.code is None else f" code {asked.code}")


class SidePorts:
    """The ports of one side of a rule, and whether those of an endpoint are among them."""

    def __init__(self, side: str, entity: EntityRule, rule: Rule, packet: Packet) -> None:
        self._side, self._entity, self._packet = side, entity, packet
        kind = packet.kind
        self._port = kind.source_port if side == "source" else kind.destination_port
        number = 6 if rule.protocol is None else protocol_number(rule.protocol)
        self._meant = WITH_PORTS.get(number or 0, "")
        self._same = kind.protocol == number

    def holds(self, one: Labelled | None) -> bool:
        """Whether `ports` are met; named ones by this endpoint."""
        ports = self._entity.ports
        if not ports or _within(ports, self._port):
            return True
        return one is not None and self._gives(one, _names(ports))

    def _gives(self, one: Labelled, names: list[str]) -> bool:
        return self._same and any(
            port.name in names and port.protocol == self._meant and port.number == self._port
            for port in one.ports
        )

    def fault(self, behind: tuple[Labelled, ...]) -> Fault:
        """That `ports` are not met."""
        ports = self._entity.ports
        hint = ""
        destination = self._packet.kind.destination_port
        if self._side == "source" and _within(ports, destination):
            hint = hints.of_source_ports()
        elif _names(ports):
            hint = hints.of_named_port(_names(ports), behind, self._meant)
        word = "comes from" if self._side == "source" else "goes to"
        actual = f"the packet {word} port {self._port}"
        if not self._packet.kind.has_ports:
            actual = f"{protocol_name(self._packet.kind.protocol)} has no ports"
        return Fault(f"{self._side}.ports", ", ".join(map(str, ports)), actual, hint=hint)

    def excluded(self, behind: list[Labelled]) -> Iterator[Fault]:
        """The clause `notPorts` where it excludes the packet."""
        ports = self._entity.notPorts
        named = any(self._gives(one, _names(ports)) for one in behind)
        if ports and (_within(ports, self._port) or named):
            text = ", ".join(map(str, ports))
            yield Fault(f"{self._side}.notPorts", text, f"the packet has port {self._port}")


def _ranges(ports: list[int | str]) -> list[tuple[int, int]]:
    """The ranges among ports; names are left out."""
    ranges = []
    for entry in ports:
        low, colon, high = str(entry).partition(":")
        if low.isdigit() and (not colon or high.isdigit()):
            ranges.append((int(low), int(high or low)))
    return ranges


def _names(ports: list[int | str]) -> list[str]:
    return [str(entry) for entry in ports if not _ranges([entry])]


def _within(ports: list[int | str], port: int) -> bool:
    return any(low <= port <= high for low, high in _ranges(ports))
