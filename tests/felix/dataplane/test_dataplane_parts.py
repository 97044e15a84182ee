"""The parts of the main loop that need no kernel: timers, flushes, the view, the route table."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix import ROUTE_METRIC, ROUTE_PROTOCOL
from felix.calc.endpoints import Endpoint
from felix.config.parameters import Config
from felix.dataplane.devices.view import IPNetwork, KernelView
from felix.dataplane.routes.conntrack_flush import ConntrackFlusher, departed
from felix.dataplane.routes.own_routes import blackhole_route, pod_route
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.routes.writing import Failures, Outcome
from felix.dataplane.turn.resync_timers import ResyncTimers
from libcalico.model import ResourceKey
from linux.addresses import Address
from linux.links import Link
from linux.monitor.events import (
    AddressChanged,
    Event,
    LinkChanged,
    Overrun,
    RouteChanged,
    SettingChanged,
)
from linux.netlink import Result
from linux.prefixes import pack
from linux.routes import NextHop, Route
from tests.support.patience import patient

ETH0 = Link(2, "eth0", "", 1500, True, True, True, False, 6, "veth", 0, 0, None, 0, "", b"", b"")
POD = replace(ETH0, index=7, name="cali1")
BOTH = frozenset({4, 6})


def endpoint(address: str, container: str = "c", interface: str = "cali1") -> Endpoint:
    key = ResourceKey("WorkloadEndpoint", address, "default")
    networks = (ip_network(address),)
    return Endpoint(key, container, interface, networks, "", (), "k8s", address, "eth0")


def told_all(interface: str) -> bool:
    """Nothing was said of any endpoint that the turn does not know."""
    return False


def view(*links: Link) -> KernelView:
    found = KernelView(("cali",))
    found.replace_links(links, ())
    found.replace_routes(({}, {}))
    found.stale_all = found.stale_routes = False
    return found


class Sent:
    """A writer whose kernel takes everything."""

    def write(
        self,
        upserts: Sequence[Route],
        removals: Sequence[Route],
        account: Callable[[Failures], None],
    ) -> None:
        account({})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_table_is_due_at_its_own_interval() -> None:
    clock = Clock()
    timers = ResyncTimers(clock, lambda: 0.0)
    config = Config(iptables_refresh_interval=5, route_refresh_interval=0)
    assert timers.due(config) == frozenset()
    assert timers.sleep(config, 10, None) == 5
    assert timers.sleep(config, 10, 0.5) == 0.5
    clock.now = 5
    assert timers.due(config) == {"iptables"}
    assert timers.due(config) == frozenset()
    clock.now = 89
    assert timers.sleep(config, 10, None) == 0
    clock.now = 90
    assert timers.due(config) == {"iptables", "links", "ipsets"}


def test_departed_addresses_are_those_without_the_same_container() -> None:
    before = {"cali1": endpoint("10.0.0.1"), "cali2": endpoint("10.0.0.2", interface="cali2")}
    assert departed(before, before) == set()
    assert departed(before, {}) == {ip_address("10.0.0.1"), ip_address("10.0.0.2")}
    moved = {"cali9": endpoint("10.0.0.1", "c", "cali9")}
    assert departed(before, moved) == {ip_address("10.0.0.2")}
    taken = {"cali1": endpoint("10.0.0.1", "successor"), "cali2": before["cali2"]}
    assert departed(before, taken) == {ip_address("10.0.0.1")}


@pytest.mark.asyncio
async def test_flows_that_somebody_deleted_are_not_asked_for_again() -> None:
    asked: list[IPv4Address | IPv6Address] = []

    async def delete(addresses: Iterable[IPv4Address | IPv6Address]) -> None:
        asked.extend(addresses)

    done = asyncio.Event()
    flusher = ConntrackFlusher(done.set, delete)
    before = {"cali1": endpoint("10.0.0.1"), "cali2": endpoint("10.0.0.2", interface="cali2")}
    flusher.left(before, {}, {"cali1", "cali2"}, {ip_address("10.0.0.2")})
    assert flusher.held == {ip_address("10.0.0.1")}
    await done.wait()
    assert asked == [ip_address("10.0.0.1")]
    flusher.left(before, {}, {"cali2"}, {ip_address("10.0.0.2")})
    assert not flusher.held


@pytest.mark.asyncio
async def test_an_address_is_held_until_its_flows_are_gone() -> None:
    gate, finished = asyncio.Event(), asyncio.Event()
    deleted: list[IPv4Address | IPv6Address] = []

    async def delete(addresses: Iterable[IPv4Address | IPv6Address]) -> None:
        await gate.wait()
        deleted.extend(addresses)
        raise OSError("even so")

    flusher = ConntrackFlusher(finished.set, delete)
    address = ip_address("10.0.0.1")
    flusher.left({"cali1": endpoint("10.0.0.1")}, {})
    flusher.flush([address])
    assert flusher.held == {address}
    assert flusher.waits.count == 0
    gate.set()
    await asyncio.wait_for(finished.wait(), patient(1))
    assert flusher.held == frozenset()
    assert flusher.waits.count == 1
    assert deleted == [address]
    await flusher.stop()


def test_a_workload_link_that_went_takes_its_routes_along() -> None:
    found = view(ETH0, POD)
    route = pod_route(ip_network("10.0.0.1/32"), POD.index)
    found.absorb([RouteChanged(route, False)])
    assert found.own == {route.key: route}
    changes = found.absorb([LinkChanged(replace(POD, up=False), False)])
    assert changes == {route.key: None}
    assert found.own == {}
    assert not found.stale_routes


def test_a_workload_link_that_was_talked_about_is_suspect_and_others_stale() -> None:
    found = view(ETH0, POD)
    found.absorb([LinkChanged(POD, False)])
    assert found.suspects == {POD.index}
    assert not found.stale_routes
    found.absorb([LinkChanged(ETH0, False)])
    assert found.stale_routes


def test_settings_overruns_and_new_names() -> None:
    found = view(ETH0)
    found.absorb([SettingChanged(7, 2), SettingChanged(-1, 2), Overrun()])
    assert found.stale_links == {7}
    assert found.stale_all
    found.absorb([LinkChanged(replace(ETH0, name="uplink"), False)])
    assert found.link_named("eth0") is None
    assert found.link_named("uplink") is not None
    found.absorb([LinkChanged(replace(ETH0, name="uplink"), True)])
    assert found.link_named("uplink") is None


def test_own_addresses_are_the_nodes_not_the_pods() -> None:
    found = view(ETH0, POD)
    for index, text in ((2, "10.99.1.1/24"), (2, "fe80::1/64"), (1, "127.0.0.1/8"),
                        (7, "10.1.1.1/32"), (2, "2001:db8::1/64")):  # fmt: skip
        found.absorb([AddressChanged(Address(index, ip_interface(text)), False)])
    assert {str(address) for address in found.own_addresses()} == {"10.99.1.1", "2001:db8::1"}
    networks = found.networks()
    assert networks == {"10.99.1.0/24": "eth0", "2001:db8::/64": "eth0"}
    assert found.networks() is networks
    found.absorb([AddressChanged(Address(2, ip_interface("10.99.1.1/24")), True)])
    assert {str(address) for address in found.own_addresses()} == {"2001:db8::1"}
    assert found.networks() == {"2001:db8::/64": "eth0"}
    assert found.stale_routes


def test_foreign_routes_are_kept_apart() -> None:
    found = view(ETH0, POD)
    foreign = Route(ip_network("192.0.2.0/24"), (NextHop(ip_address("10.99.1.9"), 2),))
    to_pod = Route(ip_network("10.0.0.9/32"), (NextHop(None, 7),))
    other_table = Route(foreign.dst, foreign.next_hops, table=100)
    found.absorb([RouteChanged(r, False) for r in (foreign, to_pod, other_table)])
    assert found.base_routes() == (foreign,)
    ours = Route(foreign.dst, foreign.next_hops, protocol=ROUTE_PROTOCOL)
    assert found.absorb([RouteChanged(ours, False)]) == {ours.key: ours}
    assert found.base_routes() == ()
    assert found.absorb([RouteChanged(foreign, False)]) == {foreign.key: None}


def test_a_route_of_calicos_is_replaced_once(caplog: pytest.LogCaptureFixture) -> None:
    """RTE-2: where it comes back two would replace each other for ever."""
    found, table, sent = view(ETH0, POD), RouteTable(), Sent()
    ours = blackhole_route(ip_network("fd65::/122"))
    table.want_local({}, frozenset({ours.dst}), found, BOTH)

    def commit() -> Outcome:
        outcome = Outcome()
        held: frozenset[IPv4Address | IPv6Address] = frozenset()
        for _ in table.commit(sent, found, held=held, awaits=told_all, outcome=outcome):
            pass
        return outcome

    theirs = Route(ours.dst, (), "blackhole", protocol=80, metric=ROUTE_METRIC)
    table.saw(found.absorb([RouteChanged(theirs, False)]))
    assert commit().written == 1
    assert found.foreign == {}, "it is gone, of which nobody tells"
    assert table.conflicts == set()
    for _ in range(2):
        table.saw(found.absorb([RouteChanged(theirs, False)]))
        assert commit().written == 0
        assert table.conflicts == {ours.dst}
    assert caplog.text.count("is Calico still running?") == 1
    table.saw(found.absorb([RouteChanged(theirs, True)]))
    assert commit().written == 1
    assert table.conflicts == set()


@pytest.mark.parametrize(
    ("hop", "network", "protocol", "replaced"),
    [
        (NextHop(None, 7), "10.0.0.1/32", 3, True),
        (NextHop(None, 8), "10.0.0.1/32", 3, True),  # to another pod: a black hole
        (NextHop(None, 7), "10.0.0.1/32", 17, True),  # deviceRouteProtocol
        (NextHop(None, 2), "10.0.0.1/32", 3, False),  # an administrator's: another interface
        (NextHop(IPv4Address("10.9.9.9"), 7), "10.0.0.1/32", 3, False),
        (NextHop(None, 7), "10.0.0.0/26", 3, False),  # another destination
    ],
)
def test_a_pods_route_of_calico_is_replaced_wherever_it_points(
    hop: NextHop, network: str, protocol: int, replaced: bool
) -> None:
    """RTE-2 with the metric of ours, which Calico has used since 3.32."""
    table, sent = RouteTable(), Sent()
    found = view(ETH0, POD, replace(POD, index=8, name="cali2"))
    theirs = Route(ip_network(network), (hop,), protocol=protocol, metric=ROUTE_METRIC)
    table.saw(found.absorb([RouteChanged(theirs, False)]))
    blocks = frozenset({ip_network("10.0.0.0/26")})
    table.want_local({"cali1": endpoint("10.0.0.1/32")}, blocks, found, BOTH)
    for _ in table.commit(sent, found, held=frozenset(), awaits=told_all, outcome=Outcome()):
        pass
    assert table.conflicts == (set() if replaced else {theirs.dst})
    assert table.serves("cali1") == (replaced or theirs.dst != ip_network("10.0.0.1/32"))


LINKS = st.sampled_from([2, 7, 8, 9])
NAMES = st.sampled_from(["eth0", "cali1", "cali2", "lo"])
EVENTS = st.one_of(
    st.builds(
        lambda index, name, up, gone: LinkChanged(
            replace(ETH0, index=index, name=name, up=up), gone
        ),
        LINKS, NAMES, st.booleans(), st.booleans(),
    ),
    st.builds(
        lambda index, last, gone: AddressChanged(
            Address(index, ip_interface(f"10.99.1.{last}/24"), 0), gone
        ),
        LINKS, st.integers(1, 3), st.booleans(),
    ),
    st.builds(
        lambda index, last, gone, ours: RouteChanged(
            Route(
                ip_network(f"192.0.2.{last}/32"),
                (NextHop(None, index),),
                protocol=ROUTE_PROTOCOL if ours else 3,
            ),
            gone,
        ),
        LINKS, st.integers(1, 3), st.booleans(), st.booleans(),
    ),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=30))
def test_what_is_remembered_equals_what_would_be_found_anew(events: list[Event]) -> None:
    found = view(ETH0, POD)
    for event in events:
        found.absorb([event])
        fresh = KernelView(("cali",))
        fresh.links, fresh.addresses, fresh.foreign = found.links, found.addresses, found.foreign
        assert found.base_routes() == fresh.base_routes()
        assert found.own_addresses() == fresh.own_addresses()
        assert found.dead_links() == fresh.dead_links()


PREFIXES = st.sampled_from([ip_network(t) for t in ("10.0.0.1/32", "10.0.0.0/26", "10.1.0.0/26")])


@given(st.sets(PREFIXES), st.sets(PREFIXES))
def test_local_wishes_win_over_remote_ones(local: set[object], remote: set[object]) -> None:
    table, kernel = RouteTable(), view(ETH0, POD)
    pod = ip_network("10.0.0.1/32")
    endpoints = {"cali1": endpoint(str(pod))} if pod in local else {}
    blocks = frozenset(n for n in local if str(n).endswith("/26"))
    hops = {n: (NextHop(ip_address("10.99.1.2"), 2),) for n in remote}
    table.want_remote({pack(n): ways for n, ways in hops.items()}, map(pack, remote), BOTH)  # type: ignore[arg-type]
    table.want_local(endpoints, blocks, kernel, BOTH)  # type: ignore[arg-type]
    wanted = {route.dst: route for route in table.table.desired.values()}
    assert wanted.keys() == local | remote
    for network, route in wanted.items():
        assert route.protocol == ROUTE_PROTOCOL
        assert route.metric == ROUTE_METRIC
        if network in local:
            expected = {pod_route(network, 7), blackhole_route(network)}
            assert route in expected
        else:
            assert route.next_hops == hops[network]
    table.want_local({}, frozenset(), kernel, BOTH)
    assert {route.dst for route in table.table.desired.values()} == remote


def test_an_endpoint_without_its_link_or_family_has_no_route() -> None:
    table = RouteTable()
    none: frozenset[IPNetwork] = frozenset()
    one = {"cali1": endpoint("10.0.0.1/32")}
    table.want_local(one, none, view(ETH0), BOTH)
    table.want_local(one, none, view(replace(POD, up=False)), BOTH)
    assert not table.serves("cali1")
    table.want_local({"cali1": endpoint("fd00::1/128")}, none, view(POD), frozenset({4}))
    assert not table.table.desired


def test_the_routes_of_a_link_that_is_known_to_be_gone_are_not_deleted_again() -> None:
    table, kernel, one = RouteTable(), view(POD), {"cali1": endpoint("10.0.0.1/32")}
    table.want_local(one, frozenset(), kernel, BOTH)
    route = pod_route(ip_network("10.0.0.1/32"), POD.index)
    table.saw({route.key: route})
    assert table.serves("cali1")
    table.link_left("cali1")
    assert not table.serves("cali1")
    assert list(table.table.outstanding()) == [route.key], "until nobody wants it"
    table.want_local({}, frozenset(), kernel, BOTH)
    assert not table.table.outstanding()
    table.link_left("cali1")
    # Another link of this name is none that left.
    table.want_local(one, frozenset(), kernel, BOTH)
    other = pod_route(ip_network("10.0.0.1/32"), POD.index + 1)
    table.saw({other.key: other})
    table.link_left("cali1")
    assert table.table.actual[other.key] == other


class Refusing:
    """A writer whose kernel has no device for any of it."""

    def write(
        self,
        upserts: Sequence[Route],
        removals: Sequence[Route],
        account: Callable[[Failures], None],
    ) -> None:
        count = len(upserts) + len(removals)
        account({index: Result(index, 0, errno.ENODEV) for index in range(count)})


def test_a_removal_that_is_refused_is_a_failure_whatever_the_reason() -> None:
    table, kernel, outcome = RouteTable(), view(POD), Outcome()
    table.paths_known()
    route = pod_route(ip_network("10.0.0.1/32"), POD.index)
    table.saw({route.key: route})
    for _ in table.commit(
        Refusing(), kernel, held=frozenset(), awaits=lambda _: False, outcome=outcome
    ):
        pass
    assert list(outcome.failures) == [route.dst]


WORLDS = st.dictionaries(
    st.sampled_from(["cali1", "cali2", "cali3"]),
    st.sampled_from(["10.0.0.1/32", "10.0.0.2/32", "10.0.0.0/26"]),
)


@given(st.lists(st.tuples(WORLDS, st.sets(PREFIXES), st.sets(st.sampled_from([7, 8])))))
def test_routes_depend_on_what_is_there_not_on_what_was(
    story: list[tuple[dict[str, str], set[IPNetwork], set[int]]],
) -> None:
    """RTE-4 with two claimants of one address, links that go and come, and own blocks."""
    table, kernel = RouteTable(), view(ETH0)
    for pods, blocks, up in story:
        kernel.replace_links(
            [ETH0, *(replace(POD, index=7 + n, name=f"cali{n + 1}", up=7 + n in up)
                     for n in range(2))],
            (),
        )  # fmt: skip
        endpoints = {name: endpoint(where, interface=name) for name, where in pods.items()}
        table.want_local(endpoints, frozenset(blocks), kernel, BOTH)
        fresh = RouteTable()
        fresh.want_local(endpoints, frozenset(blocks), kernel, BOTH)
        assert table.table.desired == fresh.table.desired
