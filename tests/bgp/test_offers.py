"""Offers: what the lines make of each peer's table equals the plain definition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.attribute_values import Session
from bgp.speaker.encoding import Terms
from bgp.speaker.exabgp.command_lines import Command
from bgp.speaker.exabgp.offers import Hearing, Offers
from bgp.speaker.interface import EndOfRib, Family, IPAddress, PathsReceived, Route
from bgp.speaker.wire import Decoder

PEERS = [IPv4Address(f"10.0.0.{number}") for number in range(2, 6)]
OWN4, OWN6 = IPv4Address("10.0.0.1"), IPv6Address("fd00::1")
NETS = ["10.65.0.0/26", "10.65.0.64/26", "fd65::/64", "10.66.0.0/16"]


def hearing(address: IPAddress, number: int = 0) -> Hearing:
    """Two kinds of terms, two sets of families."""
    index = PEERS.index(IPv4Address(int(address)))
    terms = Terms(index < 2, 0 if index < 2 else 64512, True, OWN4, OWN6)
    families = frozenset({Family.IPV4} if index % 2 else Family)
    return Hearing(number or index + 1, families, terms)


audiences = st.none() | st.frozensets(st.sampled_from(PEERS))


@st.composite
def wishes(draw: st.DrawFn) -> list[Route]:
    """Routes of which no two offer a prefix to the same peer."""
    found = []
    for net in NETS:
        audience = draw(audiences)
        med = draw(st.sampled_from([None, 1, 2]))
        if draw(st.booleans()):
            found.append(Route(ip_network(net), peers=audience, med=med))
            others = frozenset(PEERS) - (audience or frozenset())
            if audience is not None and others and draw(st.booleans()):
                found.append(Route(ip_network(net), peers=others, med=7))
    return found


class Tables:
    """What the peers make of the lines, by the number of their session."""

    def __init__(self) -> None:
        self.med: dict[int, dict[str, int | None]] = {}
        self.ended: dict[int, set[Family]] = {}
        self._decoders: dict[int, Decoder] = {}

    def begin(self, heard: Hearing) -> None:
        self.med[heard.number], self.ended[heard.number] = {}, set()
        session = Session(heard.terms.internal, has_ipv6=Family.IPV6 in heard.families)
        self._decoders[heard.number] = Decoder(PEERS[0], session)

    def take(self, commands: Iterable[Command]) -> set[str]:
        """Returns the prefixes that were withdrawn."""
        gone: set[str] = set()
        for words, numbers in commands:
            word, text = words.split()
            assert word == "send"
            for number in numbers:
                stream = bytes.fromhex(text)
                while stream:
                    length = int.from_bytes(stream[16:18], "big")
                    for event in self._decoders[number].decode(stream[19:length]).events:
                        gone |= self._hear(number, event)
                    stream = stream[length:]
        return gone

    def _hear(self, number: int, event: PathsReceived | EndOfRib) -> set[str]:
        table = self.med[number]
        if isinstance(event, EndOfRib):
            self.ended[number].add(event.family)
            return set()
        for gone in event.withdrawn:
            assert table.pop(str(gone.prefix), "none") != "none", "withdrawn, never announced"
        for path in event.announced:
            table[str(path.prefix)] = event.attributes.med
        return {str(path.prefix) for path in event.withdrawn}


def right(routes: list[Route], address: IPAddress) -> dict[str, int | None]:
    return {
        str(route.prefix): route.med
        for route in routes
        if (route.peers is None or address in route.peers)
        and Family.of(route.prefix) in hearing(address).families
    }


@given(st.lists(st.one_of(wishes(), st.sampled_from(PEERS)), max_size=12))
def test_every_peer_hears_its_own(steps: list[list[Route] | IPv4Address]) -> None:
    """Whatever comes and goes; a route that is replaced is never withdrawn in between, and a new
    session is told all, then End-of-RIB for what it carries.
    """
    offers, tables = Offers(), Tables()
    routes: list[Route] = []
    up: dict[IPAddress, Hearing] = {}
    for step, number in zip(steps, range(10, 99), strict=False):
        if isinstance(step, IPv4Address):
            if step in up:
                offers.down(step)
                del up[step]
                continue
            up[step] = hearing(step, number)
            tables.begin(up[step])
            tables.take(offers.up(step, up[step]))
            assert tables.ended[number] == up[step].families
        else:
            before, routes = routes, step
            gone = tables.take(offers.change(step))
            if all(route.peers is None for route in before + step):
                assert not gone & {str(route.prefix) for route in step}
        assert offers.conditions() == []
        for address, heard in up.items():
            wish = right(routes, address)
            assert tables.med[heard.number] == wish
            assert offers.sent(address) == len(wish)


def test_end_of_rib_waits_and_is_told_once() -> None:
    """OFR-2: to the sessions that lack it and still are, behind all that was announced."""
    offers, tables = Offers(), Tables()
    assert offers.withhold(True) == []
    first, second, third = (hearing(address) for address in PEERS[:3])
    for address, heard in zip(PEERS, (first, second, third), strict=False):
        tables.begin(heard)
        tables.take(offers.up(address, heard))
    offers.down(PEERS[2])
    tables.take(offers.change([Route(ip_network("10.65.0.0/26"))]))
    assert not any(tables.ended.values())
    tables.take(offers.withhold(False))
    assert tables.ended == {1: first.families, 2: second.families, 3: set()}
    assert offers.withhold(False) == []
    again = hearing(PEERS[2], 7)
    tables.begin(again)
    tables.take(offers.up(PEERS[2], again))
    assert tables.ended[7] == again.families


def test_a_change_costs_what_it_changes() -> None:
    """One route more among a thousand is one line for all peers that hear it alike."""
    offers = Offers()
    for address in PEERS[:2]:
        list(offers.up(address, hearing(address)))
    many = [Route(ip_network((number << 8, 24))) for number in range(1000)]
    offers.change(many)
    (command,) = offers.change([*many, Route(ip_network("10.65.0.0/26"))])
    assert command.sessions == (1, 2)
    assert len(command.line) < 200


def test_a_peer_that_asks_hears_all_once_more() -> None:
    """Of the family it asks for; with enhanced route refresh (RFC 7313) begin and end are said."""
    offers, tables, address = Offers(), Tables(), PEERS[0]
    heard = hearing(address)
    nets = ["10.65.0.0/26", "10.66.0.0/16", "fd65::/64"]
    offers.change([Route(ip_network(net)) for net in nets])
    tables.begin(heard)
    tables.take(offers.up(address, heard))
    tables.med[heard.number].clear()
    tables.take(offers.again(address, Family.IPV4, enhanced=False))
    assert set(tables.med[heard.number]) == set(nets[:2])
    (command,) = offers.again(address, Family.IPV6, enhanced=True)
    stream = bytes.fromhex(command.words.split()[1])
    assert stream[18:23] == bytes([5, 0, 2, 1, 1])
    assert stream[-5:] == bytes([5, 0, 2, 2, 1])
    assert list(offers.again(PEERS[1], Family.IPV4, enhanced=False)) == []
    list(offers.up(PEERS[1], hearing(PEERS[1])))
    assert list(offers.again(PEERS[1], Family.IPV6, enhanced=False)) == []


def test_what_a_peer_cannot_be_told_is_a_condition() -> None:
    """OFR-1: of each peer that it was meant for; until it is told, withdrawn, or the session ends.

    The earlier route for the prefix is withdrawn.
    """
    offers, tables = Offers(), Tables()
    for address in PEERS:
        tables.begin(hearing(address))
        tables.take(offers.up(address, hearing(address)))
    net, other = ip_network("10.65.1.0/26"), ip_network("10.65.2.0/26")
    good, beside = Route(net), Route(other)
    bad = replace(good, communities=("70000:1",), peers=frozenset(PEERS[:3]))
    tables.take(offers.change([good, beside]))
    gone = tables.take(offers.change([bad, beside]))
    assert gone == {str(net)}
    subjects = dict(offers.conditions())
    assert set(subjects) == {f"BGP peer {address}" for address in PEERS[:3]}
    why = subjects[f"BGP peer {PEERS[0]}"]
    assert str(net) in why
    assert "community 70000:1" in why
    assert offers.sent(PEERS[0]) == 1
    assert list(tables.med[1]) == [str(other)]
    offers.down(PEERS[0])
    assert set(dict(offers.conditions())) == {f"BGP peer {each}" for each in PEERS[1:3]}
    offers.change([replace(good, peers=frozenset(PEERS[1:2])), beside])
    assert offers.conditions() == []
    many = [
        Route(ip_network(((10 << 24) + (number << 8), 24)), communities=("x",))
        for number in range(1500)
    ]
    offers.change(many)
    why = dict(offers.conditions())[f"BGP peer {PEERS[1]}"]
    assert " and 997 more" in why
    offers.clear()
    assert offers.conditions() == []
