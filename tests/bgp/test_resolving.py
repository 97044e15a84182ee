"""Next hops without a way: asked of a real kernel, and what follows for routes."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.resolving import LOOKS, Resolver, kernel_way
from bgp.routes.rib import Rib
from bgp.speaker.interface import (
    Announced,
    Attributes,
    Family,
    IPAddress,
    PathsReceived,
    Withdrawn,
)
from libcalico.local.node_api import Fact
from tests.bgp.agents import Cluster
from tests.bgp.make import source
from tests.bgp.test_agent_routing import ALL_OF_N1, BLOCKS, NODES, POOL, REFLECTED
from tests.support.netns import network_namespace
from tests.support.patience import until

NETS = [ip_network(f"10.65.{number}.0/24") for number in range(3)]
HOPS: list[IPAddress] = [ip_address(f"10.1.0.{number}") for number in range(3)]


def test_the_kernel_is_asked() -> None:
    """Connected, static and default routes are ways; no route, unreachable, blackhole are none."""
    with network_namespace("nxh") as space, space.entered():
        for command in (
            "ip link add eth0 type veth peer name far",
            "ip link set eth0 up",
            "ip link set far up",
            "ip address add 10.1.0.1/24 dev eth0",
            "ip -6 address add fd01::1/64 dev eth0 nodad",
            "ip route add 10.2.0.0/24 via 10.1.0.254",
            "ip route add blackhole 10.3.0.0/24",
            "ip route add unreachable 10.4.0.0/24",
        ):
            space.run(*command.split())
        ways = {"10.1.0.9", "10.2.0.9", "fd01::9", "fe80::9"}
        none = {"10.3.0.9", "10.4.0.9", "10.5.0.9", "fd05::9"}
        assert {text for text in ways | none if kernel_way(ip_address(text))} == ways
        space.run("ip", "route", "add", "default", "via", "10.1.0.254")
        assert kernel_way(ip_address("10.5.0.9"))
        space.run("ip", "link", "set", "eth0", "down")
        assert not kernel_way(ip_address("10.1.0.9"))
        assert not kernel_way(ip_address("10.5.0.9"))


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=12))
def test_two_looks(rounds: list[list[bool]]) -> None:
    """NXH-1, NXH-2, against the plain definition."""
    state: dict[IPAddress, bool] = {}
    resolver, history = Resolver(lambda hop: state[hop]), list[list[bool]]()
    for ways in rounds:
        state.update(zip(HOPS, ways, strict=True))
        history.append(ways)
        before = resolver.unresolved
        assert resolver.look(HOPS) is (resolver.unresolved != before)
        last = history[-LOOKS:]
        assert resolver.unresolved == {
            hop
            for at, hop in enumerate(HOPS)
            if len(last) == LOOKS and not any(each[at] for each in last)
        }


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.sampled_from([2, 3]), st.sampled_from(NETS)),
            st.tuples(st.just("gone"), st.sampled_from([2, 3]), st.sampled_from(NETS)),
            st.tuples(st.just("drop"), st.sampled_from([2, 3]), st.sampled_from(NETS)),
            st.tuples(st.just("hops"), st.integers(0, 7), st.sampled_from(NETS)),
        ),
        max_size=30,
    ),
    st.randoms(use_true_random=False),
)
def test_only_ways_that_lead_somewhere_are_chosen(
    steps: list[tuple[str, int, object]], random: object
) -> None:
    """And the prefixes whose choice may differ are all named; next hops are counted exactly."""
    rib, model = Rib(), dict[tuple[int, object], IPAddress]()
    unresolved: frozenset[IPAddress] = frozenset()
    for what, number, net in steps:
        before = {each: [one.next_hop for one in rib.best(each)] for each in NETS}
        if what == "say":
            hop = random.choice(HOPS)  # type: ignore[attr-defined]
            said = PathsReceived(source(number).peer, Attributes(), (Announced(net, hop),))  # type: ignore[arg-type]
            touched = rib.update(said, source(number))
            model[number, net] = hop
        elif what == "gone":
            gone = PathsReceived(source(number).peer, Attributes(), (), (Withdrawn(net),))  # type: ignore[arg-type]
            touched = rib.update(gone, source(number))
            model.pop((number, net), None)
        elif what == "drop":
            touched = rib.drop(source(number).peer, Family.IPV4)
            model = {key: hop for key, hop in model.items() if key[0] != number}
        else:
            unresolved = frozenset(hop for at, hop in enumerate(HOPS) if number >> at & 1)
            touched = rib.resolve(unresolved)
        for each in NETS:
            chosen = [one.next_hop for one in rib.best(each)]
            usable = [hop for (_, net_), hop in model.items() if net_ == each]
            assert sorted(chosen) == sorted(hop for hop in usable if hop not in unresolved)
            assert chosen == before[each] or each in touched
        counted = {hop: list(model.values()).count(hop) for hop in model.values()}
        assert rib.hops == counted


@pytest.mark.asyncio
@pytest.mark.promise("F-51")
async def test_a_way_that_is_lost_moves_routes_and_comes_back() -> None:
    """A client of a reflector, whose next hops are other clients: one of them has no way."""
    lost: set[str] = set()
    cluster = Cluster()
    resolver = Resolver(lambda hop: str(hop) not in lost)
    for number in (1, 2, 3):
        cluster.add(f"n{number}", resolver=resolver if number == 1 else None)
    n1 = cluster.agents["n1"]
    await cluster.say(POOL, *NODES, *BLOCKS, *REFLECTED)
    cluster.tasks.append(asyncio.create_task(n1.keep_resolving(resolver, 0.02)))
    n1.on_felix(Fact(["10.0.0.1"], {"10.0.0.0/24": "eth0"}))
    assert cluster.table("n1") == ALL_OF_N1
    lost.update({"10.0.0.2", "10.0.0.3"})  # the reflector itself has a session: not asked
    await until(lambda: cluster.table("n1") == {"10.65.3.0/26": ["10.0.0.3"]}, "gone")
    ((subject, why),) = n1.conditions()
    assert subject == "BGP next hop 10.0.0.2"
    assert "1 paths are not used" in why
    lost.clear()
    await until(lambda: cluster.table("n1") == ALL_OF_N1, "back")
    assert n1.conditions() == []
    await cluster.stop()
