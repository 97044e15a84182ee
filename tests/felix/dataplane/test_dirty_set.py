"""TCH-1: turns about some endpoints leave what a turn about everything would leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.endpoints import Endpoint, IPNetwork
from felix.calc.local_endpoints import LocalEndpoints
from felix.calc.standing import NEWEST
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.in_force import InForce
from felix.dataplane.routes.own_routes import pod_route
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.rules.removal_timing import DELAY, LATER, LIMIT, RemovalTiming, moment
from felix.dataplane.turn.state import State
from libcalico.model import ResourceKey
from linux.links import Link
from linux.monitor.events import LinkChanged, RouteChanged
from tests.felix.dataplane.test_chain_store_steps import AWAY, OTHERS, PODS, RULES, Node
from tests.felix.dataplane.test_dataplane_parts import BOTH, POD, endpoint
from tests.felix.policy_objects import namespace
from tests.size import examples

INTERFACES = ("cali1", "cali2", "cali3")
NETWORKS = ("10.0.0.1/32", "10.0.0.2/32", "fd00::1/128")
NONE: frozenset[IPNetwork] = frozenset()


class Cell:
    """Endpoints, a view and routes that hear of the same changes, and who judges them."""

    def __init__(self) -> None:
        self.touched = DirtySet()
        self.endpoints = LocalEndpoints()
        self.view = KernelView(("cali",), self.touched)
        self.routes = RouteTable(self.touched)
        self.state = State()
        self.settled = InForce(self.state, self.view, self.routes)

    def turn(self) -> bool:
        """As the main loop's; returns whether it was about some only."""
        active, _ = self.endpoints.active(("cali",))
        self.touched.mark(self.endpoints.take_moved())
        about = self.touched.take()
        early = {}
        if about is not None:
            for key in self.settled.settle_new(active, self.judged(), BOTH, {}, about):
                early[key] = self.state.ruled[key], self.settled.ruled(key, frozenset())
        self.routes.want_local(active, NONE, self.view, BOTH, about=about)
        self.settle(about)
        for key, (ruled, word) in early.items():
            assert self.state.ruled.get(key) == ruled, "what was told early holds"
            assert self.settled.ruled(key, frozenset()) == word
        return about is not None

    def judged(self) -> set[str]:
        active, _ = self.endpoints.active(("cali",))
        return active.keys() - {"cali3"}

    def settle(self, about: frozenset[str] | None) -> None:
        active, _ = self.endpoints.active(("cali",))
        self.settled.settle(
            active, self.judged(), families=BOTH, floating={}, unfit=(),
            rules_written=True, about=about,
        )  # fmt: skip


def link(interface: str, *, up: bool) -> Link:
    return replace(POD, index=7 + INTERFACES.index(interface), name=interface, up=up)


def named(name: str, interface: str, network: str) -> Endpoint:
    key = ResourceKey("WorkloadEndpoint", name, "default")
    return replace(endpoint(network, interface=interface), key=key, workload=f"default/{name}")


KEYS, WHERE = st.sampled_from("abc"), st.sampled_from(INTERFACES)
STEPS = st.one_of(
    st.tuples(st.just("store"), KEYS, WHERE, st.sampled_from(NETWORKS)),
    st.tuples(st.just("gone"), KEYS),
    st.tuples(st.just("link"), WHERE, st.booleans()),
    st.tuples(st.just("unlink"), WHERE),
    st.tuples(st.just("route"), WHERE, st.sampled_from(NETWORKS)),
    st.tuples(st.just("unroute"), WHERE, st.sampled_from(NETWORKS)),
    st.tuples(st.just("write")),
)


def take(cell: Cell, step: tuple[Any, ...]) -> None:
    match step:
        case "store", name, interface, network:
            found = named(name, interface, network)
            cell.endpoints.store(found.key, found, NEWEST)
        case "gone", name:
            gone = ResourceKey("WorkloadEndpoint", name, "default")
            cell.endpoints.store(gone, None, NEWEST)
        case "link" | "unlink" as word, interface, *rest:
            event = LinkChanged(link(interface, up=bool(rest and rest[0])), word == "unlink")
            cell.routes.saw(cell.view.absorb([event]))
        case "route" | "unroute" as word, interface, network:
            route = pod_route(ip_network(network), link(interface, up=True).index)
            cell.routes.saw(cell.view.absorb([RouteChanged(route, word == "unroute")]))
        case ("write",):
            for key in list(cell.routes.table.outstanding()):
                wanted = cell.routes.table.desired.get(key)
                cell.routes.saw({key: wanted})


@given(st.lists(st.lists(STEPS, max_size=4), max_size=12))
def test_routes_and_judgement_do_not_depend_on_how_much_a_turn_looked_at(
    story: list[list[tuple[Any, ...]]],
) -> None:
    cell = Cell()
    cell.turn()
    for steps in story:
        for step in steps:
            take(cell, step)
        assert cell.turn(), "nothing of this is about everything"
        version = cell.state.version
        wanted, ruled = dict(cell.routes.table.desired), dict(cell.state.ruled)
        in_force = dict(cell.state.in_force)
        cell.touched.mark_everything()
        cell.turn()
        assert cell.routes.table.desired == wanted
        assert (cell.state.in_force, cell.state.ruled) == (in_force, ruled)
        assert cell.state.version == version
        fresh = LocalEndpoints()
        for key, standing in cell.endpoints.standings():
            fresh.store(key, standing.stored, NEWEST)
        assert cell.endpoints.active(("cali",)) == fresh.active(("cali",))


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.lists(st.sampled_from([*PODS, *OTHERS, *RULES, *AWAY]), max_size=3), max_size=8))
def test_rules_do_not_depend_on_how_much_a_turn_looked_at(story: list[list[Any]]) -> None:
    node = Node(namespace("default"))
    touched = DirtySet()

    def turn() -> None:
        news = node.calc.take_changes(("cali",))
        touched.mark(news.moved)
        about = touched.take()
        hosts: dict[str, frozenset[Any]] = cast("Any", HOSTS)
        list(node.desire.update(node.config, news, hosts, about=about))

    turn()
    for objects in story:
        node.put(*objects)
        turn()
        some = node.tables.chains
        node.tables.check()
        touched.mark_everything()
        turn()
        assert node.tables.chains == some


HOSTS: dict[str, frozenset[Any]] = {}


def test_what_was_marked_is_taken_once() -> None:
    touched = DirtySet()
    assert touched.take() is None
    touched.mark(["cali1"])
    assert touched.concerns({"cali1"})
    assert not touched.concerns({"cali2"})
    assert touched.take() == frozenset({"cali1"})
    assert touched.take() == frozenset()
    touched.mark(["cali1"])
    touched.mark_everything()
    assert touched.take() is None


def test_more_that_is_heard_in_a_turn_is_not_lost_to_the_next() -> None:
    """TCH-2."""
    touched = DirtySet()
    touched.take()
    touched.mark({"cali2"})
    assert touched.take_more(frozenset({"cali1"})) == frozenset({"cali1", "cali2"})
    assert touched.take_more(None) is None
    assert touched.take() == frozenset()
    for about in (frozenset({"cali1"}), None):
        touched.mark_everything()
        assert touched.take_more(about) is None
        assert touched.take() is None, "the rules were made without it"


def test_what_nobody_wants_goes_soon_and_is_not_put_off_for_ever() -> None:
    now = [100.0]
    sweeping, tables, sets = RemovalTiming(lambda: now[0]), _Garbage(), _Swept()

    def commit(*, served: bool = False) -> int:
        assert sweeping.sets(cast("Any", tables), cast("Any", sets), served=served) == {}
        return sets.times

    assert commit() == 1
    assert not sweeping.due
    assert sweeping.wait is None
    tables.garbage = True
    assert commit() == 1
    assert sweeping.wait == DELAY
    step = 1 / 128
    while not sweeping.due:
        assert now[0] <= 100.0 + LIMIT
        now[0] += step
        if not sweeping.due:
            commit()
    assert now[0] == 100.0 + LIMIT
    tables.garbage = False
    sets.to_sweep = True
    assert commit() == 2
    assert sweeping.wait == DELAY, "sets that the kernel still holds are tried again"
    sets.to_sweep = False
    assert commit() == 3
    assert sweeping.wait is None
    tables.garbage = True
    commit(served=True)
    assert sweeping.wait == DELAY
    now[0] += LATER
    commit(served=True)
    assert sweeping.due


def test_a_node_that_is_never_quiet_sweeps_behind_a_new_endpoint() -> None:
    since = 100.0
    assert moment(since, since, served=True) == since + DELAY
    assert moment(since + LATER, since, served=False) == since + LATER + DELAY
    assert moment(since + LATER, since, served=True) == since + LATER
    assert moment(since + LIMIT - DELAY / 2, since, served=False) == since + LIMIT


class _Garbage:
    """Tables that may have rules of which nobody wants anything."""

    garbage = False


class _Swept:
    """Sets, and how often they were swept; `to_sweep`: the kernel still holds some."""

    times = 0
    to_sweep = False

    def sweep(self) -> dict[str, str]:
        self.times += 1
        return {}


def test_only_words_about_workloads_are_about_some() -> None:
    def about(act: Callable[[KernelView], object]) -> frozenset[str] | None:
        touched = DirtySet()
        view = KernelView(("cali",), touched)
        touched.take()
        act(view)
        return touched.take()

    assert about(lambda view: view.put_link(POD)) == frozenset({POD.name})
    assert about(lambda view: view.put_link(replace(POD, name="eth0"))) is None
    assert about(lambda view: view.absorb([LinkChanged(POD, False)])) == frozenset({POD.name})
    assert about(lambda view: view.replace_links([POD], ())) is None
