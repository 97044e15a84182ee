"""UPDATEs that we write: read back by our own reader, and byte for byte as ExaBGP writes them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker import encoding
from bgp.speaker.attribute_values import Session
from bgp.speaker.encoding import Terms
from bgp.speaker.interface import (
    EndOfRib,
    Family,
    IPNetwork,
    Origin,
    PathsReceived,
    Route,
)
from bgp.speaker.wire import Decoder
from tests.support import bgp_wire as wire

PEER = IPv4Address("10.0.0.2")
OWN4, OWN6 = IPv4Address("10.0.0.1"), IPv6Address("fd00::1")
INSIDE = Terms(True, 0, True, OWN4, OWN6)
OUTSIDE = replace(INSIDE, internal=False, local_as=64512)
OLD = replace(OUTSIDE, four_octet_as=False)

numbers = st.integers(1, 2**32 - 1)
octet = st.integers(0, 255)
pairs = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(lambda it: f"{it[0]}:{it[1]}")
triples = st.tuples(numbers, numbers, numbers).map(lambda it: f"{it[0]}:{it[1]}:{it[2]}")
addresses4 = st.integers(1, 0xDFFFFFFF).map(IPv4Address)
nets4 = st.tuples(st.integers(0x0A000000, 0x0AFFFFFF), st.integers(8, 32)).map(
    lambda it: IPv4Network(it, strict=False)
)
nets6 = st.tuples(st.integers(0, 2**120), st.integers(0, 128)).map(
    lambda it: IPv6Network(((0xFD << 120) | it[0] if it[1] >= 8 else 0, it[1]), strict=False)
)


def several(of: st.SearchStrategy[str], most: int = 4) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(of, max_size=most, unique=True).map(tuple)


@st.composite
def tables(draw: st.DrawFn) -> list[Route]:
    """Routes of few sets of attributes, each prefix once."""
    nets = draw(st.lists(st.one_of(nets4, nets6), unique=True, max_size=20))
    kinds = draw(
        st.lists(
            st.builds(
                Route,
                st.just(IPv4Network("0.0.0.0/0")),
                local_pref=st.none() | numbers,
                med=st.none() | numbers,
                communities=several(pairs),
                large_communities=several(triples),
                as_path=st.lists(numbers, max_size=5).map(tuple),
                origin=st.sampled_from(Origin),
                extended_communities=several(
                    st.binary(min_size=8, max_size=8).map(lambda raw: "0x" + raw.hex())
                ),
                originator_id=st.none() | addresses4,
                cluster_list=several(addresses4.map(str)),
            ),
            min_size=1,
            max_size=3,
        )
    )
    return [replace(draw(st.sampled_from(kinds)), prefix=net) for net in nets]


def read(messages: list[bytes], terms: Terms) -> list[PathsReceived]:
    """What a peer makes of them; every message is whole and of a right length."""
    session = Session(terms.internal, terms.four_octet_as, has_ipv6=True)
    decoder = Decoder(PEER, session)
    found: list[PathsReceived] = []
    for message in messages:
        assert message[:16] == wire.MARKER
        assert len(message) == int.from_bytes(message[16:18], "big") <= 4096
        assert message[18] == wire.UPDATE
        update = decoder.decode(message[19:])
        assert update.reset is None
        assert update.faults == ()
        found += [event for event in update.events if isinstance(event, PathsReceived)]
    return found


@given(tables(), st.sampled_from([INSIDE, OUTSIDE, OLD]))
def test_a_peer_reads_what_was_offered(routes: list[Route], terms: Terms) -> None:
    """Attributes by kind of peer (RFC 4271 5.1.2, 5.1.5; RFC 4456; RFC 6793)."""
    unfit: list[tuple[IPNetwork, str]] = []
    found = read(list(encoding.announce(routes, terms, unfit)), terms)
    assert unfit == []
    table = {path.prefix: (path, event) for event in found for path in event.announced}
    assert not any(event.withdrawn for event in found)
    assert sum(len(event.announced) for event in found) == len(routes) == len(table)
    for route in routes:
        path, event = table[route.prefix]
        own: object = OWN4 if route.prefix.version == 4 else OWN6
        assert path.next_hop == own
        got = event.attributes
        assert got.origin is route.origin
        assert (got.med, got.communities) == (route.med, route.communities)
        assert got.large_communities == route.large_communities
        assert got.extended_communities == route.extended_communities
        if terms.internal:
            assert got.as_path == route.as_path
            assert got.local_pref == (100 if route.local_pref is None else route.local_pref)
            assert (got.originator_id, got.cluster_list) == (
                route.originator_id,
                route.cluster_list,
            )
        else:
            assert got.as_path == (64512, *route.as_path)
            assert (got.local_pref, got.originator_id, got.cluster_list) == (None, None, ())


@given(st.lists(st.one_of(nets4, nets6), unique=True, max_size=30))
def test_what_is_taken_back(nets: list[IPNetwork]) -> None:
    found = read(list(encoding.withdraw(nets)), INSIDE)
    assert {each.prefix for event in found for each in event.withdrawn} == set(nets)


def test_prefixes_share_messages_up_to_their_limit() -> None:
    """10,000 blocks with equal attributes are 13 messages; of IPv6, which ExaBGP sends one by one,
    27 carry as many.
    """
    four = [Route(IPv4Network((0x0A000000 + 64 * number, 26))) for number in range(10_000)]
    six = [Route(IPv6Network(((0xFD << 120) + (number << 64), 64))) for number in range(10_000)]
    unfit: list[tuple[IPNetwork, str]] = []
    for routes, most in ((four, 13), (six, 24)):
        messages = list(encoding.announce(routes, INSIDE, unfit))
        assert len(messages) <= most
        assert len(
            {path.prefix for event in read(messages, INSIDE) for path in event.announced}
        ) == (10_000)
        gone = list(encoding.withdraw([route.prefix for route in routes]))
        assert len(gone) <= most
        assert sum(len(event.withdrawn) for event in read(gone, INSIDE)) == 10_000


def test_the_longest_lists() -> None:
    """A path of 600 numbers is three segments; what no message holds is withdrawn and named."""
    long = Route(ip_network("10.0.0.0/8"), as_path=tuple(range(1, 601)))
    unfit: list[tuple[IPNetwork, str]] = []
    (event,) = read(list(encoding.announce([long], INSIDE, unfit)), INSIDE)
    assert event.attributes.as_path == long.as_path
    too_long = replace(long, as_path=tuple(range(1, 1100)))
    (event,) = read(list(encoding.announce([too_long], INSIDE, unfit)), INSIDE)
    assert [each.prefix for each in event.withdrawn] == [long.prefix]
    ((net, why),) = unfit
    assert net == long.prefix
    assert "attributes take 44" in why


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (Route(ip_network("fd01::/64")), "no IPv6 address of ours"),
        (Route(ip_network("10.0.0.0/8"), next_hop=OWN6), "next hop fd00::1 for an IPv4 prefix"),
        (Route(ip_network("10.0.0.0/8"), communities=("70000:1",)), "70000:1 is not"),
        (Route(ip_network("10.0.0.0/8"), communities=("nonsense",)), "nonsense"),
        (Route(ip_network("10.0.0.0/8"), extended_communities=("0x01",)), "not 8 octets"),
    ],
)
def test_what_cannot_be_told(route: Route, why: str) -> None:
    """It is withdrawn: the peer may have an earlier route. The others are told."""
    terms = replace(INSIDE, own6=None)
    unfit: list[tuple[IPNetwork, str]] = []
    good = Route(ip_network("10.9.0.0/16"))
    found = read(list(encoding.announce([route, good], terms, unfit)), terms)
    assert [net for net, _ in unfit] == [route.prefix]
    assert why in unfit[0][1]
    assert [each.prefix for event in found for each in event.withdrawn] == [route.prefix]
    assert [each.prefix for event in found for each in event.announced] == [good.prefix]


def test_end_of_rib_and_route_refresh() -> None:
    decoder = Decoder(PEER, Session(True, has_ipv6=True))
    for family in Family:
        events = decoder.decode(encoding.end_of_rib(family)[19:]).events
        assert events == [EndOfRib(PEER, family)]
    assert encoding.end_of_rib(Family.IPV4) == wire.message(wire.UPDATE, wire.update())
    assert encoding.end_of_rib(Family.IPV6) == wire.message(
        wire.UPDATE, wire.update(attributes=wire.unreach6())
    )
    # RFC 2918 section 3, RFC 7313 section 3.2
    assert encoding.route_refresh(Family.IPV6) == wire.message(5, b"\0\2\0\1")
    assert encoding.route_refresh(Family.IPV4, encoding.END_OF_REFRESH)[19:] == b"\0\1\2\1"


class Agreed:
    """What ExaBGP's encoder asks of a session."""

    def __init__(self, terms: Terms) -> None:
        from exabgp.bgp.message.open.asn import ASN  # type: ignore[import-untyped]
        from exabgp.protocol.family import AFI, SAFI  # type: ignore[import-untyped]

        self.local_as = ASN(64512)
        self.peer_as = ASN(64512 if terms.internal else 64500)
        self.asn4, self.msg_size = terms.four_octet_as, 4096
        self.families = [(AFI.ipv4, SAFI.unicast), (AFI.ipv6, SAFI.unicast)]
        self.addpath = self

    def send(self, *_: object) -> bool:
        return False


def test_as_exabgp_writes_it() -> None:
    """The same for IPv4, octet for octet. AS4_PATH alone has another place: its code's."""
    from exabgp.bgp.message import Action, Update  # type: ignore[import-untyped]
    from exabgp.configuration.configuration import Configuration  # type: ignore[import-untyped]
    from exabgp.environment import getenv  # type: ignore[import-untyped]
    from exabgp.logger import log  # type: ignore[import-untyped]
    from exabgp.reactor.api import API  # type: ignore[import-untyped]

    log.init(getenv())
    api = API.__new__(API)
    api.configuration = Configuration([])
    choices = {
        "med 7": {"med": 7},
        "community [ 64512:5 65535:0 ]": {"communities": ("64512:5", "65535:0")},
        "large-community [ 64512:1:2 ]": {"large_communities": ("64512:1:2",)},
        "extended-community [ 0x0002fc0000000007 ]": {
            "extended_communities": ("0x0002fc0000000007",)
        },
        "local-preference 321": {"local_pref": 321},
    }
    for size, terms in itertools.product(range(len(choices) + 1), (INSIDE, OUTSIDE, OLD)):
        for some in itertools.combinations(choices, size):
            path = (65001, 65002 if terms is OLD else 4200000001)
            route = Route(ip_network("10.65.1.0/26"), next_hop=PEER, as_path=path)
            for each in some:
                route = replace(route, **choices[each])  # type: ignore[arg-type]
            numbers = " ".join(map(str, path if terms.internal else (64512, *path)))
            text = (
                f"announce attributes next-hop {PEER} origin igp as-path [ {numbers} ] "
                f"{' '.join(some)} nlri 10.65.1.0/26"
            )
            (change,) = api.api_attributes(text, ["peer"])
            change.nlri.action = Action.ANNOUNCE
            theirs = Update([change.nlri], change.attributes).messages(Agreed(terms))
            assert list(encoding.announce([route], terms, [])) == list(theirs), (some, terms)
