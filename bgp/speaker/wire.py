"""An UPDATE's bytes -> events, by RFC 4271 and the error handling of RFC 7606. Pure.

Each UPDATE ends in one of four ways (RFC 7606 section 2), the strongest that any error in the
message asks for:

  session reset      `Update.reset`: the message cannot be divided into its parts
  treat-as-withdraw  its prefixes become withdrawals: an attribute that routing needs is wrong
  attribute discard  the path counts without the attribute
  nothing            it is as it should be

`decode` never raises, for any bytes (hypothesis: tests/bgp/test_wire.py; real
sessions: tests/bgp/test_hostile.py). Equal attributes of consecutive messages are one object:
they cost time and memory once.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from bgp.speaker.attribute_values import Session
from bgp.speaker.attributes import Reset, Verdict, parse
from bgp.speaker.interface import (
    Announced,
    Attributes,
    EndOfRib,
    Family,
    IPAddress,
    IPNetwork,
    PathsReceived,
    Withdrawn,
)

_UNICAST = 1
_AFIS = {1: Family.IPV4, 2: Family.IPV6}
_NO_ATTRIBUTES = Attributes()

Path = tuple[IPNetwork, int]


@dataclass(slots=True)
class Update:
    """The content of one message. `faults`: what was wrong with it, for people."""

    events: list[PathsReceived | EndOfRib] = field(default_factory=list)
    reset: Reset | None = None
    faults: tuple[str, ...] = ()


class Decoder:
    """Decodes the UPDATEs of one session; remembers the attributes it saw last."""

    def __init__(self, peer: IPAddress, session: Session) -> None:
        self._peer, self._session = peer, session
        self._last: tuple[bytes, Verdict] | None = None

    def decode(self, body: bytes) -> Update:
        """Decode a message's body, without the 19 octets of the header."""
        try:
            return self._decode(body)
        except Reset as reset:
            return Update(reset=reset, faults=(str(reset),))

    def _decode(self, body: bytes) -> Update:
        withdrawn_field, attribute_field, nlri_field = _split(body)
        if not withdrawn_field and not nlri_field and (family := _end_of_rib(attribute_field)):
            return Update([EndOfRib(self._peer, family)])
        multiple4 = self._session.add_path4
        withdrawn = _prefixes(withdrawn_field, Family.IPV4, multiple4)
        reachable = _prefixes(nlri_field, Family.IPV4, multiple4)
        verdict = self._verdict(attribute_field)
        if verdict.cut and not reachable and not verdict.reach and self._session.has_ipv6:
            # What was to be withdrawn may lie behind the cut (RFC 7606 section 3 j).
            raise Reset(3, 1, "an attribute runs over the end before any prefix was named")
        announced: list[Announced] = []
        faults = list(verdict.faults)
        if reachable:
            fault = verdict.missing(mp=False)
            if fault:
                faults.append(fault)
            self._add(reachable, verdict.next_hop, bool(fault), verdict, announced, withdrawn)
        if verdict.reach:
            family, hop, fault, prefixes = self._reach(verdict.reach)
            fault = fault or verdict.missing(mp=True)
            if fault:
                faults.append(fault)
            if family is not None:
                self._add(prefixes, hop, bool(fault), verdict, announced, withdrawn)
        if verdict.unreach:
            withdrawn += self._unreach(verdict.unreach)
        if not announced and not withdrawn:
            return Update(faults=tuple(faults))
        event = PathsReceived(
            self._peer,
            verdict.attributes if announced else _NO_ATTRIBUTES,
            tuple(announced),
            tuple([Withdrawn(prefix, path_id) for prefix, path_id in withdrawn]),
        )
        return Update([event], faults=tuple(faults))

    def _verdict(self, raw: bytes) -> Verdict:
        """The attributes; those outside MP_REACH_NLRI are parsed once while they stay the same."""
        if self._last is not None and self._last[0] == raw:
            return self._last[1]
        verdict = parse(raw, self._session)
        if self._last is not None and self._last[1].attributes == verdict.attributes:
            verdict.attributes = self._last[1].attributes
        self._last = (raw, verdict)
        return verdict

    @staticmethod
    def _add(
        prefixes: list[Path],
        hop: IPAddress | None,
        faulty: bool,
        verdict: Verdict,
        announced: list[Announced],
        withdrawn: list[Path],
    ) -> None:
        if faulty or verdict.withdraw or hop is None:
            withdrawn += prefixes
        else:
            announced += [Announced(prefix, hop, path_id) for prefix, path_id in prefixes]

    def _reach(self, value: bytes) -> tuple[Family | None, IPAddress | None, str, list[Path]]:
        """MP_REACH_NLRI (RFC 4760 section 3): family, next hop, what is wrong with it, prefixes."""
        if len(value) < 5:
            raise Reset(3, 9, "MP_REACH_NLRI is too short")
        afi, safi, length = struct.unpack_from("!HBB", value)
        if len(value) < 5 + length:
            raise Reset(3, 9, "MP_REACH_NLRI: the next hop runs over the end")
        family = _AFIS.get(afi) if safi == _UNICAST else None
        if family is None:
            return None, None, "", []  # not negotiated: not ours
        raw, rest = value[4 : 4 + length], value[5 + length :]
        allowed = (4,) if family is Family.IPV4 else (16, 32)
        if length not in allowed:
            raise Reset(3, 9, f"MP_REACH_NLRI: a next hop of {length} octets")
        hop, fault = _next_hop(raw)
        return family, hop, fault, _prefixes(rest, family, self._multiple(family))

    def _unreach(self, value: bytes) -> list[Path]:
        if len(value) < 3:
            raise Reset(3, 9, "MP_UNREACH_NLRI is too short")
        afi, safi = struct.unpack_from("!HB", value)
        family = _AFIS.get(afi) if safi == _UNICAST else None
        return _prefixes(value[3:], family, self._multiple(family)) if family else []

    def _multiple(self, family: Family) -> bool:
        return self._session.add_path4 if family is Family.IPV4 else self._session.add_path6


def _split(body: bytes) -> tuple[bytes, bytes, bytes]:
    """The three fields (RFC 4271 section 4.3)."""
    if len(body) < 4:
        raise Reset(3, 1, "an UPDATE shorter than its two length fields")
    first = int.from_bytes(body[:2], "big")
    if 4 + first > len(body):
        raise Reset(3, 1, "the withdrawn routes run over the end")
    second = int.from_bytes(body[2 + first : 4 + first], "big")
    end = 4 + first + second
    if end > len(body):
        raise Reset(3, 1, "the path attributes run over the end")
    return body[2 : 2 + first], body[4 + first : end], body[end:]


def _end_of_rib(attributes: bytes) -> Family | None:
    """RFC 4724 section 2: an empty UPDATE, or one with nothing but an empty MP_UNREACH_NLRI."""
    if not attributes:
        return Family.IPV4
    if len(attributes) == 6 and attributes[1:3] == b"\x0f\x03":
        value = attributes[3:]
    elif len(attributes) == 7 and attributes[0] & 0x10 and attributes[1:4] == b"\x0f\x00\x03":
        value = attributes[4:]
    else:
        return None
    return _AFIS.get(int.from_bytes(value[:2], "big")) if value[2] == _UNICAST else None


def _next_hop(raw: bytes) -> tuple[IPAddress, str]:
    """The address, and what is wrong with it.

    Of an IPv6 pair the global one comes first (RFC 2545 section 3); where a speaker has only a
    link-local one it fills both.
    """
    hop: IPAddress = IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw[:16])
    if hop.is_unspecified or hop.is_multicast:
        return hop, f"next hop {hop}"
    return hop, ""


def _prefixes(data: bytes, family: Family, multiple: bool) -> list[Path]:
    """The prefixes of a field (RFC 4271 section 4.3, RFC 7911 section 3).

    Bits behind the length mean nothing. Multicast prefixes are ignored (RFC 4271 6.3).
    Raises `Reset`: where one prefix ends is not known when the one before is wrong.
    """
    prefixes: list[Path] = []
    version4 = family is Family.IPV4
    most = 32 if version4 else 128
    make = _network4 if version4 else _network6
    top, multicast = (28, 0xE) if version4 else (120, 0xFF)
    position, end, path_id = 0, len(data), 0
    while position < end:
        if multiple:
            if position + 4 >= end:
                raise Reset(3, 10, "a path identifier runs over the end")
            path_id = int.from_bytes(data[position : position + 4], "big")
            position += 4
        length = data[position]
        stop = position + 1 + (length + 7 >> 3)
        if length > most or stop > end:
            raise Reset(3, 10, f"a prefix of length {length}")
        number = int.from_bytes(data[position + 1 : stop], "big") << most - 8 * (
            stop - position - 1
        )
        unused = most - length
        number = number >> unused << unused
        if number >> top != multicast:
            prefixes.append((make(number, length), path_id))
        position = stop
    return prefixes


_MASKS4 = [IPv4Network((0, length)).netmask for length in range(33)]
_MASKS6 = [IPv6Network((0, length)).netmask for length in range(129)]


def _network4(number: int, length: int) -> IPv4Network:
    """A network whose host bits are known to be 0.

    The constructor takes 4 us and this 0.7, which is most of what a large table costs. What it
    leaves out is the special `hosts` of a /31 and /32, which no code here asks of a route.
    """
    network = IPv4Network.__new__(IPv4Network)
    network.network_address = IPv4Address(number)
    network.netmask = _MASKS4[length]
    network._prefixlen = length  # type: ignore[attr-defined]
    return network


def _network6(number: int, length: int) -> IPv6Network:
    network = IPv6Network.__new__(IPv6Network)
    network.network_address = IPv6Address(number)
    network.netmask = _MASKS6[length]
    network._prefixlen = length  # type: ignore[attr-defined]
    return network
