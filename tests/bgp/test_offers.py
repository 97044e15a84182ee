"""Offers: what the lines make of each peer's table equals the plain definition."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp.offers import Offers
from bgp.speaker.interface import Family, IPAddress, Peer, Route

PEERS = [
    Peer(
        IPv4Address(f"10.0.0.{number}"),
        64512 if number < 4 else 64500,
        IPv4Address("10.0.0.1"),
        64512,
        IPv4Address("10.0.0.1"),
        (Family.IPV4,) if number % 2 else (Family.IPV4, Family.IPV6),
    )
    for number in range(2, 6)
]
NETS = ["10.65.0.0/26", "10.65.0.64/26", "fd65::/64", "10.66.0.0/16"]
LINE = re.compile(r"(announce|withdraw) attributes (.*) nlri (.*)")

audiences = st.none() | st.frozensets(st.sampled_from([each.address for each in PEERS]))


@st.composite
def wishes(draw: st.DrawFn) -> list[Route]:
    """Routes of which no two offer a prefix to the same peer."""
    found = []
    for net in NETS:
        audience = draw(audiences)
        med = draw(st.sampled_from([None, 1, 2]))
        if draw(st.booleans()):
            found.append(Route(ip_network(net), peers=audience, med=med))
            others = frozenset(each.address for each in PEERS) - (audience or frozenset())
            if audience is not None and others and draw(st.booleans()):
                found.append(Route(ip_network(net), peers=others, med=7))
    return found


class Tables:
    """What a speaker would make of the lines."""

    def __init__(self) -> None:
        self.tables: dict[IPAddress, dict[str, str]] = {}
        self.fresh: set[str] = set()
        """Peers whose session is just up: what they were told before may be withdrawn."""

    def take(self, lines: list[str]) -> None:
        for line in lines:
            found = LINE.search(line)
            if found is None:
                assert " announce eor " in line
                continue
            for address in re.findall(r"neighbor (\S+)", line):
                table = self.tables[IPv4Address(address)]
                for net in found[3].split():
                    if found[1] == "announce":
                        table[net] = found[2]
                    elif net not in table:
                        assert address in self.fresh, "withdrawn twice, or never announced"
                    else:
                        del table[net]


def right(routes: list[Route], peer: Peer) -> dict[str, int | None]:
    return {
        str(route.prefix): route.med
        for route in routes
        if (route.peers is None or peer.address in route.peers)
        and Family.of(route.prefix) in peer.families
    }


@given(st.lists(st.one_of(wishes(), st.sampled_from(PEERS)), max_size=12))
def test_every_peer_hears_its_own(steps: list[list[Route] | Peer]) -> None:
    """Whatever comes and goes; a route that is replaced is never withdrawn in between."""
    offers, tables = Offers(), Tables()
    routes: list[Route] = []
    for step in steps:
        if isinstance(step, Peer):
            if step.address in tables.tables:
                offers.down(step.address)
                del tables.tables[step.address]
            else:
                tables.tables[step.address] = {}
                tables.fresh = {str(step.address)}
                tables.take(list(offers.up(step)))
                tables.fresh = set()
        else:
            before, routes = routes, step
            lines = offers.change(step)
            kept = {route.prefix for route in before} & {route.prefix for route in step}
            for line in lines:
                if "withdraw" in line and all(route.peers is None for route in before + step):
                    assert not any(str(net) in line.split() for net in kept)
            tables.take(lines)
        for peer in PEERS:
            if peer.address in tables.tables:
                table = tables.tables[peer.address]
                wish = right(routes, peer)
                assert table.keys() == wish.keys()
                assert offers.sent(peer.address) == len(wish)
                for net, med in wish.items():
                    assert (f"med {med}" in table[net]) == (med is not None)


def test_a_change_costs_what_it_changes() -> None:
    """One route more among a thousand is one line for all peers that hear it alike."""
    offers = Offers()
    for peer in PEERS[:2]:
        list(offers.up(peer))
    many = [Route(ip_network((number << 8, 24))) for number in range(1000)]
    offers.change(many)
    lines = offers.change([*many, Route(ip_network("10.65.0.0/26"))])
    assert len(lines) == 1
    assert lines[0].count("neighbor") == 2


def test_what_went_while_a_session_was_down_is_taken_back() -> None:
    """A line of before may reach ExaBGP after the new session: the withdrawal is the last word."""
    offers, peer = Offers(), PEERS[0]
    kept, gone = (Route(ip_network(text)) for text in ("10.65.0.0/26", "10.65.1.0/26"))
    offers.change([kept, gone])
    list(offers.up(peer))
    offers.down(peer.address)
    assert offers.change([kept]) == []
    first, *rest = offers.up(peer)
    assert "withdraw" in first
    assert first.endswith("nlri 10.65.1.0/26")
    assert [line.split()[2] for line in rest] == ["announce"] * len(rest)
    offers.forget(peer.address)
    assert not any("withdraw" in line for line in offers.up(peer))
