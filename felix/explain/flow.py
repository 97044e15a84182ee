"""What is asked about: the first packet of a connection, and kinds of such packets.

Tested in tests/felix/explain/test_explain.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from felix.calc.labels import PROTOCOLS, protocol_number
from libcalico.errors import InvalidValue

IPAddress = IPv4Address | IPv6Address
ICMP, TCP, UDP, ICMPV6, SCTP, UDPLITE = 1, 6, 17, 58, 132, 136
WITH_PORTS = frozenset({TCP, UDP, SCTP, UDPLITE})
ICMP_OF = {4: ICMP, 6: ICMPV6}
ECHO_OF = {4: 8, 6: 128}
SOME_SOURCE_PORT = 49152
"""The first port that a sender without a wish gets (RFC 6335)."""
_NAMES = {number: name for name, number in PROTOCOLS.items()}


@dataclass(frozen=True, slots=True)
class Kind:
    """All of a packet that addresses do not say."""

    protocol: int = TCP
    destination_port: int = 0
    source_port: int = SOME_SOURCE_PORT
    icmp_type: int = 0
    icmp_code: int = 0

    @property
    def has_ports(self) -> bool:
        """Whether its protocol knows ports."""
        return self.protocol in WITH_PORTS

    def __str__(self) -> str:
        text = protocol_name(self.protocol)
        if self.has_ports:
            text += f" port {self.destination_port}"
            if self.source_port != SOME_SOURCE_PORT:
                text += f" from port {self.source_port}"
        elif self.protocol in (ICMP, ICMPV6):
            text += f" type {self.icmp_type}"
            if self.icmp_code:
                text += f" code {self.icmp_code}"
        return text


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a connection."""

    source: IPAddress
    destination: IPAddress
    kind: Kind

    @property
    def version(self) -> int:
        """4 or 6."""
        return self.destination.version


def protocol_name(number: int) -> str:
    """`tcp` for 6, `protocol 253` for what has no name here."""
    return _NAMES.get(number, f"protocol {number}")


def read_protocol(text: str) -> int:
    """The number of a protocol as operators write it. Raises InvalidValue."""
    number = protocol_number(int(text) if text.isascii() and text.isdigit() else text)
    if number is None:
        known = ", ".join(PROTOCOLS)
        raise InvalidValue("--proto", text, f"one of {known}, or 1 to 255")
    return number


def kind_of(
    protocol: int,
    version: int,
    *,
    port: int | None = None,
    source_port: int | None = None,
    icmp: tuple[int | None, int | None] = (None, None),
) -> Kind:
    """A kind with what was given and likely values for the rest.

    Raises InvalidValue for what does not fit the protocol.
    """
    if protocol in (ICMP, ICMPV6) and protocol != ICMP_OF[version]:
        protocol = ICMP_OF[version]
    for name, value, most in (
        ("--port", port, 65535),
        ("--source-port", source_port, 65535),
        ("--icmp-type", icmp[0], 255),
        ("--icmp-code", icmp[1], 255),
    ):
        if value is not None and not 0 <= value <= most:
            raise InvalidValue(name, value, f"0 to {most}")
    if protocol in WITH_PORTS:
        if icmp != (None, None):
            raise InvalidValue("--icmp-type", icmp[0], f"{protocol_name(protocol)} has none")
        source = SOME_SOURCE_PORT if source_port is None else source_port
        return Kind(protocol, port or 0, source)
    if port is not None or source_port is not None:
        name = "--port" if port is not None else "--source-port"
        raise InvalidValue(name, port or source_port, f"{protocol_name(protocol)} has no ports")
    if protocol in (ICMP, ICMPV6):
        kind, code = icmp
        return Kind(
            protocol, 0, 0, ECHO_OF[version] if kind is None else kind, 0 if code is None else code
        )
    return Kind(protocol, 0, 0)
