"""UPDATEs as bytes: what is right is read, and each error costs what RFC 7606 says."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.attribute_values import Session
from bgp.speaker.interface import (
    Announced,
    Attributes,
    EndOfRib,
    Family,
    Origin,
    PathsReceived,
    Withdrawn,
)
from bgp.speaker.wire import Decoder, Update, _network4, _network6
from tests.support.bgp_wire import (
    AS_PATH,
    NEXT_HOP,
    ORIGIN,
    attribute,
    nlri,
    reach6,
    sequence,
    unreach6,
    update,
)

PEER = IPv4Address("10.0.0.2")
INTERNAL = Session(internal=True, has_ipv6=True)
EXTERNAL = Session(internal=False, has_ipv6=True)
GOOD = ORIGIN + AS_PATH + NEXT_HOP
NET = ip_network("10.65.1.0/26")
NET6 = ip_network("fd65::/64")


def take(body: bytes, session: Session = INTERNAL) -> Update:
    return Decoder(PEER, session).decode(body)


def paths(body: bytes, session: Session = INTERNAL) -> PathsReceived:
    said = take(body, session)
    assert said.reset is None, said
    (event,) = said.events
    assert isinstance(event, PathsReceived)
    return event


def test_all_attributes() -> None:
    raw = (
        attribute(0x40, 1, b"\x02")
        + attribute(0x40, 2, sequence(64500, 4200000000) + b"\x01\x02" + struct.pack("!II", 7, 8))
        + NEXT_HOP
        + attribute(0x80, 4, struct.pack("!I", 5))
        + attribute(0x40, 5, struct.pack("!I", 200))
        + attribute(0x40, 6, b"")
        + attribute(0xC0, 7, struct.pack("!I4s", 1, b"abcd"))
        + attribute(0xC0, 8, struct.pack("!HHHH", 64512, 1, 65535, 0))
        + attribute(0x80, 9, bytes([9, 9, 9, 9]))
        + attribute(0x80, 10, bytes([1, 1, 1, 1, 2, 2, 2, 2]))
        + attribute(0xC0, 16, bytes.fromhex("0002fc0000000001"))
        + attribute(0xC0, 32, struct.pack("!III", 1, 2, 3))
        + attribute(0xD0, 200, b"unknown" * 50)
    )
    event = paths(update(attributes=raw, reachable=nlri(NET), withdrawn=nlri("10.66.0.0/16")))
    assert event.announced == (Announced(NET, ip_address("10.0.0.2")),)
    assert event.withdrawn == (Withdrawn(ip_network("10.66.0.0/16")),)
    assert event.attributes == Attributes(
        origin=Origin.INCOMPLETE,
        as_path=(64500, 4200000000, 7, 8),
        as_path_length=3,
        local_pref=200,
        med=5,
        originator_id=IPv4Address("9.9.9.9"),
        cluster_list=("1.1.1.1", "2.2.2.2"),
        communities=("64512:1", "65535:0"),
        large_communities=("1:2:3",),
        extended_communities=("0x0002fc0000000001",),
    )


def test_end_of_rib() -> None:
    """RFC 4724 section 2."""
    assert take(update()).events == [EndOfRib(PEER, Family.IPV4)]
    for attributes in (unreach6(), attribute(0x90, 15, b"\x00\x02\x01")):
        assert take(update(attributes=attributes)).events == [EndOfRib(PEER, Family.IPV6)]
    assert take(update(attributes=unreach6("fd65::/64"))).events != [EndOfRib(PEER, Family.IPV6)]


def test_ipv6() -> None:
    """RFC 4760 and RFC 2545: of two next hops the global one counts."""
    both = IPv6Address("fd99::2").packed + IPv6Address("fe80::2").packed
    for hop in (IPv6Address("fd99::2").packed, both):
        event = paths(update(attributes=ORIGIN + AS_PATH + reach6("fd65::/64", hop=hop)))
        assert event.announced == (Announced(NET6, ip_address("fd99::2")),)
    gone = paths(update(attributes=unreach6("fd65::/64")))
    assert gone.withdrawn == (Withdrawn(NET6),)


def test_several_paths() -> None:
    """RFC 7911: a path identifier stands before each prefix, also where it is withdrawn."""
    session = Session(internal=True, add_path4=True)
    both = nlri(NET, path_id=1) + nlri(NET, path_id=2)
    event = paths(update(attributes=GOOD, reachable=both, withdrawn=nlri(NET, path_id=3)), session)
    assert [each.path_id for each in event.announced] == [1, 2]
    assert event.withdrawn == (Withdrawn(NET, 3),)


def test_two_octet_numbers() -> None:
    """RFC 6793 4.2.3: AS4_PATH knows the numbers that AS_PATH cannot carry."""
    session = Session(internal=False, four_octet_as=False)
    short = attribute(0x40, 2, b"\x02\x03" + struct.pack("!HHH", 64500, 23456, 23456))
    wide = attribute(0xC0, 17, sequence(4200000001, 4200000002))
    event = paths(update(attributes=ORIGIN + short + NEXT_HOP + wide, reachable=nlri(NET)), session)
    assert event.attributes.as_path == (64500, 4200000001, 4200000002)
    longer = attribute(0xC0, 17, sequence(1, 2, 3, 4))
    event = paths(
        update(attributes=ORIGIN + short + NEXT_HOP + longer, reachable=nlri(NET)), session
    )
    assert event.attributes.as_path == (64500, 23456, 23456)


def test_bits_behind_the_length_mean_nothing() -> None:
    """RFC 4271 4.3; and a multicast prefix is ignored (6.3)."""
    raw = b"\x14\x0a\x41\x1f" + b"\x04\xef" + b"\x00"
    event = paths(update(attributes=GOOD, reachable=raw))
    assert [str(each.prefix) for each in event.announced] == ["10.65.16.0/20", "0.0.0.0/0"]


@given(st.integers(0, 2**32 - 1), st.integers(0, 32))
def test_networks_are_as_the_standard_library_makes_them(number: int, length: int) -> None:
    number = number >> 32 - length << 32 - length
    made, right = _network4(number, length), ip_network((number, length))
    assert (made, hash(made), str(made), made.num_addresses, made.broadcast_address) == (
        right,
        hash(right),
        str(right),
        right.num_addresses,
        right.broadcast_address,
    )
    assert made in {right}
    assert made.overlaps(right)
    assert made.subnet_of(IPv4Network("0.0.0.0/0"))
    wide = number << 96
    assert _network6(wide, length) == IPv6Network((wide, length))
    assert str(_network6(wide, length)) == str(IPv6Network((wide, length)))


WITHDRAWING = {
    "7.1 ORIGIN of two octets": attribute(0x40, 1, b"\0\0") + AS_PATH + NEXT_HOP,
    "7.1 ORIGIN 3": attribute(0x40, 1, b"\3") + AS_PATH + NEXT_HOP,
    "7.2 unknown segment": ORIGIN + attribute(0x40, 2, b"\x09\x01\0\0\0\1") + NEXT_HOP,
    "7.2 confederation": ORIGIN + attribute(0x40, 2, b"\x03\x01\0\0\0\1") + NEXT_HOP,
    "7.2 segment overrun": ORIGIN + attribute(0x40, 2, b"\x02\x02\0\0\0\1") + NEXT_HOP,
    "7.2 segment underrun": ORIGIN + attribute(0x40, 2, sequence(1) + b"\x02") + NEXT_HOP,
    "7.2 empty segment": ORIGIN + attribute(0x40, 2, b"\x02\x00") + NEXT_HOP,
    "RFC 7607 AS 0": ORIGIN + attribute(0x40, 2, sequence(0)) + NEXT_HOP,
    "7.3 NEXT_HOP of 5 octets": ORIGIN + AS_PATH + attribute(0x40, 3, b"\x0a\0\0\2\0"),
    "6.3 NEXT_HOP 0.0.0.0": ORIGIN + AS_PATH + attribute(0x40, 3, bytes(4)),
    "6.3 NEXT_HOP multicast": ORIGIN + AS_PATH + attribute(0x40, 3, bytes([224, 0, 0, 1])),
    "7.4 MED of 3 octets": GOOD + attribute(0x80, 4, bytes(3)),
    "7.5 LOCAL_PREF of 5 octets": GOOD + attribute(0x40, 5, bytes(5)),
    "7.8 COMMUNITIES of 5 octets": GOOD + attribute(0xC0, 8, bytes(5)),
    "7.8 COMMUNITIES empty": GOOD + attribute(0xC0, 8, b""),
    "7.9 ORIGINATOR_ID of 3 octets": GOOD + attribute(0x80, 9, bytes(3)),
    "7.10 CLUSTER_LIST of 7 octets": GOOD + attribute(0x80, 10, bytes(7)),
    "7.14 EXTENDED_COMMUNITIES of 9 octets": GOOD + attribute(0xC0, 16, bytes(9)),
    "7.15 IPv6 EXTENDED_COMMUNITIES of 21 octets": GOOD + attribute(0xC0, 25, bytes(21)),
    "RFC 8092 LARGE_COMMUNITIES of 13 octets": GOOD + attribute(0xC0, 32, bytes(13)),
    "3 c ORIGIN optional": attribute(0xC0, 1, b"\0") + AS_PATH + NEXT_HOP,
    "3 c MED well-known": GOOD + attribute(0x40, 4, bytes(4)),
    "3 c COMMUNITIES not transitive": GOOD + attribute(0x80, 8, bytes(4)),
    "3 d no ORIGIN": AS_PATH + NEXT_HOP,
    "3 d no AS_PATH": ORIGIN + NEXT_HOP,
    "3 d no NEXT_HOP": ORIGIN + AS_PATH,
    "3 d nothing at all": b"",
    "4 the last attribute is cut": GOOD + b"\x80\x04\x04\0",
    "4 the last header is cut": GOOD + b"\x80\x04",
    "4 an extended length runs over": GOOD + b"\xd0\x08\xff\xff\0\0\0\0",
}


@pytest.mark.parametrize("attributes", WITHDRAWING.values(), ids=WITHDRAWING)
def test_treat_as_withdraw(attributes: bytes) -> None:
    said = take(update(attributes=attributes, reachable=nlri(NET), withdrawn=nlri("10.66.0.0/16")))
    assert said.reset is None
    assert said.faults
    (event,) = said.events
    assert isinstance(event, PathsReceived)
    assert event.announced == ()
    assert set(event.withdrawn) == {Withdrawn(NET), Withdrawn(ip_network("10.66.0.0/16"))}


WITHDRAWING6 = {
    "no ORIGIN": AS_PATH + reach6("fd65::/64"),
    "next hop ::": ORIGIN + AS_PATH + reach6("fd65::/64", hop=bytes(16)),
    "next hop multicast": ORIGIN + AS_PATH + reach6("fd65::/64", hop=IPv6Address("ff02::1").packed),
    "flags": ORIGIN + AS_PATH + reach6("fd65::/64", flags=0xC0),
    "MED": ORIGIN + AS_PATH + reach6("fd65::/64") + attribute(0x80, 4, b""),
    "cut": ORIGIN + AS_PATH + reach6("fd65::/64") + b"\x80\x04\x09",
}


@pytest.mark.parametrize("attributes", WITHDRAWING6.values(), ids=WITHDRAWING6)
def test_treat_as_withdraw_ipv6(attributes: bytes) -> None:
    event = paths(update(attributes=attributes))
    assert event.announced == ()
    assert event.withdrawn == (Withdrawn(NET6),)


DISCARDED = {
    "7.6 ATOMIC_AGGREGATE with a value": attribute(0x40, 6, b"\1"),
    "7.7 AGGREGATOR of 5 octets": attribute(0xC0, 7, bytes(5)),
    "RFC 6793 AS4_PATH malformed": attribute(0xC0, 17, b"\x02\x02\0"),
    "RFC 6793 AS4_AGGREGATOR of 3 octets": attribute(0xC0, 18, bytes(3)),
    "3 g MED twice": attribute(0x80, 4, bytes(4)) + attribute(0x80, 4, b"\0\0\0\7"),
    "an unknown optional one": attribute(0x80, 99, b"x"),
}


@pytest.mark.parametrize("attributes", DISCARDED.values(), ids=DISCARDED)
def test_attribute_discard(attributes: bytes) -> None:
    event = paths(update(attributes=GOOD + attributes, reachable=nlri(NET)))
    assert [each.prefix for each in event.announced] == [NET]
    assert event.attributes.med in (None, 0)


def test_an_external_peer_has_no_say_inside() -> None:
    """Sections 7.5, 7.9 and 7.10: right or wrong, these are left out of what it sends."""
    inside = (
        attribute(0x40, 5, struct.pack("!I", 200))
        + attribute(0x80, 9, b"short")
        + attribute(0x80, 10, bytes(3))
    )
    event = paths(update(attributes=GOOD + inside, reachable=nlri(NET)), EXTERNAL)
    assert event.announced
    assert event.attributes.local_pref is None
    assert event.attributes.originator_id is None
    assert event.attributes.cluster_list == ()


RESETS = {
    "4271 6.3 withdrawn length": (3, 1, struct.pack("!HH", 50, 0)),
    "4271 6.3 attribute length": (3, 1, struct.pack("!HH", 0, 50)),
    "too short": (3, 1, b"\0"),
    "5.3 a prefix of 33 bits": (3, 10, update(attributes=GOOD, reachable=b"\x21" + bytes(5))),
    "5.3 the last prefix is cut": (3, 10, update(attributes=GOOD, reachable=b"\x18\x0a")),
    "5.3 withdrawn prefix of 255 bits": (3, 10, update(withdrawn=b"\xff" + bytes(32))),
    "3 g MP_REACH_NLRI twice": (
        3,
        1,
        update(attributes=ORIGIN + AS_PATH + reach6("fd65::/64") + reach6("fd66::/64")),
    ),
    "3 g MP_UNREACH_NLRI twice": (3, 1, update(attributes=unreach6("fd65::/64") * 2)),
    "7.11 next hop of 5 octets": (
        3,
        9,
        update(attributes=ORIGIN + AS_PATH + reach6("fd65::/64", hop=bytes(5))),
    ),
    "7.11 MP_REACH_NLRI of 3 octets": (3, 9, update(attributes=attribute(0x80, 14, bytes(3)))),
    "7.11 MP_REACH_NLRI empty": (3, 9, update(attributes=attribute(0x80, 14, b""))),
    "7.11 the next hop runs over": (
        3,
        9,
        update(attributes=attribute(0x80, 14, b"\0\2\1\x10" + bytes(3))),
    ),
    "7.12 MP_UNREACH_NLRI of 2 octets": (3, 9, update(attributes=attribute(0x80, 15, b"\0\2"))),
    "5.3 IPv6 prefix of 129 bits": (
        3,
        10,
        update(attributes=attribute(0x80, 15, b"\0\2\1\x81" + bytes(17))),
    ),
    "6.3 unknown well-known attribute": (
        3,
        2,
        update(attributes=GOOD + attribute(0x40, 99, b"x"), reachable=nlri(NET)),
    ),
    "3 j prefixes may lie behind the cut": (3, 1, update(attributes=ORIGIN + b"\x80\x0f\x44\0")),
}


@pytest.mark.parametrize(("code", "subcode", "body"), RESETS.values(), ids=RESETS)
def test_session_reset(code: int, subcode: int, body: bytes) -> None:
    said = take(body)
    assert said.reset is not None
    assert (said.reset.code, said.reset.subcode) == (code, subcode)
    assert said.events == []


def test_a_family_that_was_not_agreed_is_not_ours() -> None:
    labelled = attribute(0x80, 14, b"\0\1\x80\x04" + bytes(4) + b"\0" + b"rubbish")
    assert take(update(attributes=ORIGIN + AS_PATH + labelled)).events == []
    assert take(update(attributes=attribute(0x80, 15, b"\0\1\x80rubbish"))).events == []


def test_equal_attributes_are_one_object() -> None:
    """A table of 50,000 routes of one peer holds their attributes once."""
    decoder = Decoder(PEER, INTERNAL)
    first, second = (
        decoder.decode(update(attributes=GOOD, reachable=nlri(net))).events[0]
        for net in ("10.65.0.0/26", "10.65.0.64/26")
    )
    assert isinstance(first, PathsReceived)
    assert isinstance(second, PathsReceived)
    assert first.attributes is second.attributes
    one, two = (
        decoder.decode(update(attributes=ORIGIN + AS_PATH + reach6(net))).events[0]
        for net in ("fd65::/64", "fd66::/64")
    )
    assert isinstance(one, PathsReceived)
    assert isinstance(two, PathsReceived)
    assert one.attributes is two.attributes


pieces = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([ORIGIN, AS_PATH, NEXT_HOP, *WITHDRAWING.values(), *DISCARDED.values()]),
    st.sampled_from([reach6("fd65::/64"), unreach6("fd65::/64")]),
    st.builds(
        attribute,
        st.integers(0, 255),
        st.integers(0, 40),
        st.binary(max_size=20),
    ),
)
sessions = st.builds(Session, *[st.booleans()] * 5)


@given(st.binary(max_size=80), sessions)
def test_bytes_never_raise(raw: bytes, session: Session) -> None:
    check(take(raw, session))


@given(
    st.lists(pieces, max_size=6).map(b"".join),
    st.binary(max_size=20) | st.just(nlri(NET)),
    st.binary(max_size=20) | st.just(b""),
    sessions,
)
def test_crafted_messages_never_raise(
    attributes: bytes, reachable: bytes, withdrawn: bytes, session: Session
) -> None:
    check(take(update(attributes=attributes, reachable=reachable, withdrawn=withdrawn), session))


def check(said: Update) -> None:
    """What holds whatever was sent: a reset names nothing else; no path without its hop."""
    if said.reset is not None:
        assert said.events == []
        assert said.reset.code == 3
    for event in said.events:
        if isinstance(event, PathsReceived):
            assert event.announced or event.withdrawn
            for path in event.announced:
                assert path.prefix.version == path.next_hop.version
                assert not path.next_hop.is_unspecified
