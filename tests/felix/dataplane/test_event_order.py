"""VIEW-1 and RTE-5: dumps, events and own writes in every order, with the real kernel.

The monitor lingers for ever, so nothing of what others do is heard before the test says so, or
before the code under test reads by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from felix import ROUTE_METRIC, ROUTE_PROTOCOL
from felix.calc.cluster_routes import ClusterRoutes
from felix.calc.endpoints import Endpoint, IPNetwork
from felix.calc.pools import Pool
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.kernel_reader import KernelReader
from felix.dataplane.routes.own_routes import pod_route
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.routes.stale_routes import StaleRoutes
from felix.dataplane.routes.writing import Outcome
from linux import addresses, links, neighbours, routes
from linux.netlink import Socket
from linux.routes import NextHop, Route
from tests.felix.dataplane.test_dataplane_parts import BOTH, endpoint
from tests.size import examples
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG

ADDRESS = ip_network("10.65.0.1/32")
FOREVER = 3600.0
NONE: frozenset[IPNetwork] = frozenset()


@dataclass
class Node:
    """Felix's view and routes of this namespace, and a socket of another program."""

    touched: DirtySet = field(default_factory=DirtySet)
    view: KernelView = field(init=False)
    table: RouteTable = field(init=False)
    other: Socket = field(default_factory=Socket)
    wanted: dict[str, Endpoint] = field(default_factory=dict)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.view = KernelView(("cali",), self.touched)
        self.table = RouteTable(self.touched)
        self.host = KernelReader(self.view, self.table, self._changed, lambda: FOREVER)
        self._watcher = asyncio.create_task(self.host.watch())
        self.table.paths_known()

    def _changed(self) -> None:
        self.told.set()

    async def close(self) -> None:
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)
        self.host.close()
        self.other.close()

    # -- what others do ----------------------------------------------------------------------

    def make(self, name: str) -> int:
        """A link that is up, as `cni` makes it."""
        message = links.create_veth(
            name, mac=None, mtu=1500, peer_name=f"far-{name}", peer_mac=None, peer_netns_fd=None
        )
        return links.made(self.other, message, name).index

    def do(self, *messages: bytes) -> None:
        for result in self.other.transact(messages):
            result.check("another program's change")

    # -- what felix does ---------------------------------------------------------------------

    async def hear(self) -> None:
        """All that is queued is read, as after the linger."""
        for _ in range(3):
            await asyncio.sleep(0)
        self.host.hear_now()
        for _ in range(3):
            await asyncio.sleep(0)

    async def at_rest(self, index: int) -> None:
        """The link's own last word is heard: the kernel tells its operational state up to a second
        after the link is made, and a turn that hears of a link only reads its routes.
        """
        async with asyncio.timeout(HANG):
            while (link := links.get(self.other, index)) and not link.operstate:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await self.hear()
        self.host.verify(self.wanted)
        await self.host.refresh(everything=False, all_routes=False)

    def want(self) -> None:
        self.table.want_local(self.wanted, NONE, self.view, BOTH)

    def commit(self) -> Outcome:
        # A turn that looks at everything, as the main loop makes them.
        self.touched.take()
        self.want()
        self.host.verify(self.wanted)
        return self.write()

    def write(self) -> Outcome:
        outcome, before = Outcome(), self.needed() & self.kernel()
        for _ in self.table.commit(
            self.host,
            self.view,
            held=frozenset(),
            awaits=self.awaited.__contains__,
            outcome=outcome,
        ):
            pass
        assert before <= self.kernel(), "a route of a wanted endpoint was taken away"
        return outcome

    async def turn(self, *, links: bool = False, routes: bool = False) -> Outcome:
        """One turn of the main loop."""
        await self.host.refresh(everything=links, all_routes=routes)
        return self.commit()

    async def settle(self) -> None:
        """Turns until nothing is left to be done, as the main loop makes them."""
        for _ in range(10):
            await self.hear()
            outcome = await self.turn()
            quiet = not self.view.stale and not self.table.table.outstanding()
            if quiet and not outcome.written and not outcome.deleted:
                return
        raise AssertionError("it never comes to rest")

    # -- what is so --------------------------------------------------------------------------

    def kernel(self, protocol: int = ROUTE_PROTOCOL) -> set[Route]:
        return set(routes.dump(self.other, table=routes.TABLE_MAIN, protocol=protocol))

    def check(self) -> None:
        """The view equals the kernel, and what is in force is there."""
        assert set(self.view.own.values()) == self.kernel()
        assert set(self.table.table.actual.values()) == self.kernel()
        for interface in self.wanted:
            if self.table.serves(interface):
                own = {r for r in self.needed() if r.dst in self.wanted[interface].networks}
                assert own & self.kernel()

    def needed(self) -> set[Route]:
        """The routes of wanted endpoints whose links are up."""
        return {
            pod_route(network, link.index)
            for link in links.dump(self.other)
            if link.up and link.name in self.wanted
            for network in self.wanted[link.name].networks
        }


class _Spaces:
    """One namespace for all of this, without the links of the last story."""

    space: Namespace

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self.space.entered(), Socket() as sock:
            yield
            left = [link.index for link in links.dump(sock) if not link.loopback]
            for result in sock.transact([links.set_group(index, 9) for index in left]):
                result.check("tidy up")
            if left:
                sock.request(links.delete_group(9))


SPACES = _Spaces()


@pytest.fixture(scope="module", autouse=True)
def _space() -> Iterator[None]:
    with network_namespace("order") as SPACES.space:
        yield


def story(tell: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """Tell it in a namespace of its own, to a felix that has read everything once."""

    async def whole() -> None:
        node = Node()
        try:
            await node.turn()
            await tell(node)
        finally:
            await node.close()

    with SPACES.entered():
        asyncio.run(whole())


@pytest.mark.parametrize("links_too", [False, True])
def test_a_route_that_is_read_before_its_link_is_heard_of_stays(links_too: bool) -> None:
    async def tell(node: Node) -> None:
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        index = node.make("cali1")
        route = pod_route(ADDRESS, index)
        node.do(routes.replace(route))
        outcome = await node.turn(routes=True, links=links_too)
        assert node.kernel() == {route}, "calico-cni wrote it, and the ADD succeeded"
        assert outcome.deleted == 0
        assert node.table.serves("cali1")
        await node.settle()
        node.check()

    story(tell)


@pytest.mark.parametrize("late", ["link", "offer"])
def test_a_route_stays_that_is_heard_of_in_a_turn_for_another_pod(late: str) -> None:
    """The link, or the offer of its pod, came after the turn had begun."""

    async def tell(node: Node) -> None:
        pods = {"cali1": endpoint(str(ADDRESS))}
        node.wanted = pods if late == "link" else {}
        node.want()
        node.touched.take()
        route = pod_route(ADDRESS, node.make("cali1"))
        node.do(routes.replace(route))
        await node.hear()
        if late == "offer":
            node.touched.take()
            node.awaited = {"cali1"}
        node.table.want_local(node.wanted, NONE, node.view, BOTH, about=["cali2"])
        assert node.write().deleted == 0
        assert node.kernel() == {route}, "calico-cni wrote it, and the ADD succeeded"
        node.wanted, node.awaited = pods, set()
        await node.settle()
        node.check()

    story(tell)


def test_an_event_that_is_older_than_an_own_removal_is_not_believed() -> None:
    async def tell(node: Node) -> None:
        index = node.make("cali1")
        route = pod_route(ADDRESS, index)
        node.do(routes.replace(route))
        await node.at_rest(index)
        # While felix is about to remove what nobody wants, it is removed and written again.
        node.do(routes.delete(route), routes.replace(route))
        assert node.commit().deleted == 1
        assert not node.kernel()
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        await node.hear()
        node.want()
        assert not node.table.serves("cali1"), "the kernel lacks it"
        await node.settle()
        node.check()
        assert node.kernel() == {route}

    story(tell)


def test_an_event_that_is_older_than_an_own_write_is_not_believed() -> None:
    async def tell(node: Node) -> None:
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        node.make("cali1")
        await node.hear()
        await node.turn()
        (route,) = node.kernel()
        elsewhere = pod_route(ADDRESS, node.make("cali2"))
        await node.hear()
        node.do(routes.delete(route))
        await node.hear()
        node.do(routes.replace(elsewhere), routes.delete(elsewhere), routes.replace(elsewhere))
        assert node.commit().written == 1
        assert node.kernel() == {route}
        await node.hear()
        await node.settle()
        node.check()
        assert node.kernel() == {route}

    story(tell)


def test_the_route_of_a_successor_is_not_removed_with_its_predecessors() -> None:
    """The same address, by another program, to a link that felix has not heard of."""

    async def tell(node: Node) -> None:
        first = node.make("cali1")
        node.do(routes.replace(pod_route(ADDRESS, first)))
        await node.hear()
        successor = pod_route(ADDRESS, node.make("cali2"))
        node.do(routes.replace(successor))
        node.commit()
        assert node.kernel() == {successor}
        node.wanted = {"cali2": endpoint(str(ADDRESS), interface="cali2")}
        await node.settle()
        node.check()

    story(tell)


def test_a_new_link_that_fell_before_it_was_heard_of_has_no_route() -> None:
    async def tell(node: Node) -> None:
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        index = node.make("cali1")
        node.do(routes.replace(pod_route(ADDRESS, index)))
        node.do(links.set_down(index), links.set_up(index))
        assert not node.kernel(), "the kernel took it away in silence"
        await node.settle()
        node.check()
        assert node.kernel()

    story(tell)


def test_a_link_that_leaves_before_its_route_is_written_is_no_failure() -> None:
    async def tell(node: Node) -> None:
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        index = node.make("cali1")
        await node.hear()
        node.do(links.delete(index))
        assert node.commit() == Outcome(), "a commit that is tried again is counted and logged"
        await node.settle()
        node.check()
        node.make("cali1")
        await node.settle()
        node.check()
        assert node.kernel()

    story(tell)


def test_a_link_that_takes_no_route_is_a_failure() -> None:
    """The kernel has no IPv6 where the MTU is below 1280, and says that there is no device."""

    async def tell(node: Node) -> None:
        node.wanted = {"cali1": endpoint("fd65::1/128")}
        node.do(links.set_mtu(node.make("cali1"), 1200))
        await node.hear()
        assert "ENODEV" in str(node.commit().failures)

    story(tell)


def test_a_new_link_that_went_before_it_was_heard_of_leaves_no_route_behind() -> None:
    async def tell(node: Node) -> None:
        for name in ("cali1", "eth1"):
            index = node.make(name)
            node.do(
                routes.replace(pod_route(ADDRESS, index)),
                routes.replace(Route(ip_network("192.0.2.0/24"), (NextHop(None, index),))),
                links.delete(index),
            )
            await node.hear()
            await node.turn()
            assert not node.view.own
            assert not {r.dst for r in node.view.foreign.values()} & {ip_network("192.0.2.0/24")}
            await node.settle()
            node.check()

    story(tell)


def test_the_route_of_a_floating_address_is_looked_for_as_well() -> None:
    async def tell(node: Node) -> None:
        more = ip_network("203.0.113.7/32")
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        index = node.make("cali1")
        await node.hear()

        def want() -> None:
            floating = {"cali1": (more,)}
            node.table.want_local(node.wanted, NONE, node.view, BOTH, floating)

        node.want = want  # type: ignore[method-assign]
        await node.settle()
        assert {route.dst for route in node.kernel()} == {ADDRESS, more}
        node.do(links.set_down(index), links.set_up(index))
        await node.settle()
        assert {route.dst for route in node.kernel()} == {ADDRESS, more}

    story(tell)


def test_a_route_in_the_way_that_went_with_its_link_stands_in_it_no_more() -> None:
    async def tell(node: Node) -> None:
        node.wanted = {"cali1": endpoint(str(ADDRESS))}
        index = node.make("cali1")
        by = NextHop(ip_address("169.254.9.9"), index, onlink=True)
        theirs = Route(ADDRESS, (by,), protocol=99, metric=ROUTE_METRIC)
        node.do(routes.replace(theirs))
        await node.hear()
        await node.turn()
        assert node.table.conflicts == {ADDRESS}
        node.do(links.set_down(index), links.set_up(index))
        await node.settle()
        assert not node.table.conflicts
        node.check()

    story(tell)


def test_an_address_that_went_and_came_took_its_routes_along() -> None:
    async def tell(node: Node) -> None:
        index = node.make("eth1")
        own = ip_interface("192.0.2.1/24")
        via = Route(ip_network("198.51.100.0/24"), (NextHop(ip_address("192.0.2.9"), index),))
        node.do(addresses.add(index, own), routes.replace(via))
        await node.settle()
        assert via.key in node.view.foreign
        node.do(addresses.delete(index, own), addresses.add(index, own))
        await node.settle()
        assert via.key not in node.view.foreign

    story(tell)


def test_what_is_lost_while_tables_are_read_is_read_in_the_same_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Events that are lost during a dump, or a link that changes: no decision before the next."""

    async def tell(node: Node) -> None:
        index = node.make("eth1")
        await node.hear()
        real, dumps = routes.dump, 0

        def dump(*arguments: Any, **more: Any) -> list[Route]:
            nonlocal dumps
            dumps += 1
            found = real(*arguments, **more)
            if dumps == 1:
                node.do(links.set_down(index))
            return found

        monkeypatch.setattr("felix.dataplane.routes.kernel_reader.routes.dump", dump)
        await node.host.refresh(everything=False, all_routes=True)
        assert not node.view.outdated
        assert dumps == 2

    story(tell)


def test_nothing_is_removed_while_the_view_is_to_be_read_again() -> None:
    async def tell(node: Node) -> None:
        index = node.make("cali1")
        node.do(routes.replace(pod_route(ADDRESS, index)))
        await node.hear()
        node.view.stale_routes = True
        assert node.commit().deleted == 0
        await node.settle()
        assert not node.kernel()

    story(tell)


def test_a_route_to_an_unknown_link_is_a_reason_to_read_links_once() -> None:
    async def tell(node: Node) -> None:
        index = node.make("cali1")
        route = pod_route(ADDRESS, index)
        node.do(routes.replace(route))
        await node.hear()
        del node.view.links[index]
        assert node.commit().deleted == 0
        assert node.view.stale_all
        await node.settle()
        assert not node.kernel(), "now that it is known, no endpoint wants it"
        # What no reading finds keeps felix neither busy nor from its work.
        ghost = pod_route(ADDRESS, 999)
        node.table.saw({ghost.key: ghost})
        node.commit()
        assert node.view.outdated
        node.view.stale_all = node.view.stale_routes = False
        node.commit()
        assert not node.view.outdated

    story(tell)


def test_a_predecessors_route_that_was_swept_is_not_seen_again_by_an_older_event() -> None:
    async def tell(node: Node) -> None:
        pool = Pool(ip_network("10.65.0.0/16"), nat_outgoing=False)
        index = node.make("eth1")
        theirs = Route(ip_network("10.65.7.0/26"), (NextHop(None, index),), protocol=80)
        node.do(routes.replace(theirs))
        await node.hear()
        await node.turn()
        node.do(routes.delete(theirs), routes.replace(theirs))
        nowhere = ClusterRoutes("me", {}, {}, {})
        StaleRoutes().sweep(node.host, node.view, [pool], (), nowhere)
        assert not node.kernel(80)
        await node.settle()
        assert theirs.key not in node.view.foreign

    story(tell)


def test_a_wrong_neighbour_is_removed_though_it_was_told_before_its_link() -> None:
    async def tell(node: Node) -> None:
        watcher = asyncio.create_task(node.host.pins.watch())
        await asyncio.sleep(0)
        node.told.clear()
        mac = "02:00:00:00:00:01"
        node.wanted = {"cali1": replace(endpoint(str(ADDRESS)), mac=mac)}
        index = node.make("cali1")
        node.do(neighbours.replace(index, ADDRESS.network_address, "02:00:00:00:00:02"))
        async with asyncio.timeout(HANG):
            await node.told.wait()
        await node.turn()
        await node.settle()
        assert not [n for n in neighbours.dump(node.other, index=index) if n.permanent and n.mac]
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)

    story(tell)


OTHERS = ["add", "make", "unmake", "bounce", "down", "up", "route", "unroute", "steal"]
FELIX = ["want", "unwant", "hear", "turn", "routes", "links", "commit"]
NAMES = {"cali1": 1, "cali2": 2, "cali3": 1}
STEPS = st.lists(
    st.tuples(st.sampled_from([*OTHERS, *FELIX]), st.sampled_from(list(NAMES))),
    min_size=4,
    max_size=25,
)


@settings(deadline=None, max_examples=examples(90))
@example([("add", "cali1"), ("routes", "cali1")])
@example([("make", "cali1"), ("route", "cali1"), ("routes", "cali1"), ("want", "cali1")])
@given(STEPS)
def test_no_order_leaves_a_difference(steps: list[tuple[str, str]]) -> None:
    """Whatever others and felix did, and whenever felix heard of it: once quiet, all is right."""

    async def tell(node: Node) -> None:
        for step in steps:
            await _take(node, *step)
        await node.settle()
        node.check()
        assert {route.dst for route in node.kernel()} == {route.dst for route in node.needed()}
        assert node.kernel() <= node.needed()

    story(tell)


async def _take(node: Node, word: str, name: str) -> None:
    link, network = links.get(node.other, name), ip_network(f"10.65.0.{NAMES[name]}/32")
    match word:
        case "add" if link is None:
            await _take(node, "want", name)
            node.do(routes.replace(pod_route(network, node.make(name))))
        case "bounce" if link is not None:
            node.do(links.set_down(name), links.set_up(name))
        case "make" if link is None:
            node.make(name)
        case "unmake" if link is not None:
            node.do(links.delete(name))
        case "down" if link is not None:
            node.do(links.set_down(name))
        case "up" if link is not None:
            node.do(links.set_up(name))
        case "route" | "steal" if link is not None and link.up:
            route = pod_route(network, link.index)
            if word == "steal":
                route = Route(network, (NextHop(None, link.index),), metric=ROUTE_METRIC)
            node.do(routes.replace(route))
            if word == "steal":
                node.do(routes.delete(route))
        case "unroute":
            for route in node.kernel():
                if route.dst == network:
                    node.do(routes.delete(route))
        case "want":
            # An address has one holder.
            others = {k: v for k, v in node.wanted.items() if network not in v.networks}
            node.wanted = {**others, name: endpoint(str(network), interface=name)}
        case "unwant":
            node.wanted = {key: each for key, each in node.wanted.items() if key != name}
        case "hear":
            await node.hear()
        case "turn" | "routes" | "links":
            await node.turn(links=word == "links", routes=word == "routes")
        case "commit":
            node.commit()
