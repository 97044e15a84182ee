"""Remote routes follow their paths, the facts and the kernel's routes."""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.learned_routes import PathFacts, PathTable, RouteAcceptance, Via
from felix.calc.nexthops import Resolution, Resolver
from felix.calc.remote import UNREACHABLE, RemoteRoutes
from libcalico.local.node_api import Path
from linux.prefixes import Prefix, parse, text
from linux.routes import NextHop, Route

POOL = ip_network("10.65.0.0/16")
LINK = Route(ip_network("10.99.1.0/24"), (NextHop(None, 2),), protocol=2)
FACTS = PathFacts(routed=frozenset({POOL}))
NONE: frozenset[int] = frozenset()


def prefix(n: int) -> Prefix:
    return parse(f"10.65.{n}.0/26")


def learned(remote: RemoteRoutes, facts: PathFacts, *routes: Route) -> KeysView[Prefix]:
    remote.learn(facts, routes, NONE)
    return remote.settle()


def changed(
    remote: RemoteRoutes, updated: Iterable[Path] = (), withdrawn: Iterable[str] = ()
) -> KeysView[Prefix]:
    remote.change(remote.table.change(updated, withdrawn))
    return remote.settle()


def test_a_pool_that_goes_takes_its_routes_along() -> None:
    remote = RemoteRoutes(PathTable())
    learned(remote, FACTS, LINK)
    assert changed(remote, [Path(text(prefix(1)), ["10.99.1.2"])]) == {prefix(1)}
    assert remote.hops[prefix(1)] == (NextHop(ip_address("10.99.1.2"), 2),)
    assert learned(remote, PathFacts(), LINK) == {prefix(1)}
    assert "in no pool" in remote.complaints()[text(prefix(1))]
    assert learned(remote, FACTS, LINK) == {prefix(1)}
    assert learned(remote, FACTS, LINK) == set()
    assert learned(remote, FACTS) == {prefix(1)}
    assert remote.complaints() == {text(prefix(1)): UNREACHABLE}


def test_an_external_path_changes_what_goes_through_it() -> None:
    remote = RemoteRoutes(PathTable())
    learned(remote, FACTS, LINK)
    changed(remote, [Path(text(prefix(1)), ["10.99.2.2"])])
    assert remote.hops == {}
    router = Path("10.99.2.0/24", ["10.99.1.254"], "external")
    assert prefix(1) in changed(remote, [router])
    assert remote.hops[prefix(1)] == (NextHop(ip_address("10.99.1.254"), 2),)
    assert prefix(1) in changed(remote, [], [router.prefix])
    assert remote.hops == {}


def test_complaints_are_the_same_object_until_there_are_others() -> None:
    remote = RemoteRoutes(PathTable())
    learned(remote, FACTS, LINK)
    changed(remote, [Path("10.66.0.0/26", ["10.99.1.2"]), Path("x", ["10.99.1.2"])])
    first = remote.complaints()
    assert first.keys() == {"10.66.0.0/26", "x"}
    changed(remote, [Path(text(prefix(1)), ["10.99.1.2"])])
    assert remote.complaints() is first
    changed(remote, [], ["x"])
    assert remote.complaints().keys() == {"10.66.0.0/26"}


def test_many_external_paths_by_one_router_are_resolved_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Via] = []

    def way(self: Resolver, via: Via, own: Prefix | None = None) -> Resolution:
        looked.append(via)
        return original(self, via, own)

    original = Resolver.way
    monkeypatch.setattr(Resolver, "way", way)
    remote = RemoteRoutes(PathTable())
    learned(remote, FACTS, LINK)
    for start in range(0, 2000, 100):
        names = [f"100.64.{n >> 8}.{n & 255}/32" for n in range(start, start + 100)]
        changed(remote, [Path(name, ["10.99.1.254"], "external") for name in names])
    assert len(remote.hops) == 2000
    assert len(looked) == 1
    # One that covers the next hop is asked, and so is it itself.
    changed(remote, [Path("10.99.1.254/32", ["10.99.1.254"], "external")])
    assert len(looked) <= 5


def test_slices_end_where_one_go_ends() -> None:
    table = PathTable()
    remote, sliced = RemoteRoutes(table), RemoteRoutes(table)
    found: set[Prefix] = set()
    found |= table.change([Path(text(prefix(n)), ["10.99.2.2"]) for n in range(100)], [])
    found |= table.change([Path("10.99.2.0/24", ["10.99.1.254"], "external")], [])
    for each in (remote, sliced):
        each.learn(FACTS, (LINK,), NONE)
        each.change(found)
    remote.settle()
    told: set[Prefix] = set()
    while sliced.pending:
        told |= sliced.settle(7)
    assert sliced.hops == remote.hops
    assert told == found == remote.hops.keys()


NAMES = [
    "10.65.0.0/26", "10.65.1.0/26", "10.66.0.0/26", "10.99.2.0/24", "10.99.2.0/30", "0.0.0.0/0",
    "192.0.2.0/24", "192.0.2.1/32", "10.99.1.0/24", "10.65.1.7/32",
]  # fmt: skip
HOPS = ["10.99.1.2", "10.99.2.2", "192.0.2.1", "10.65.1.7", "169.254.1.1"]
CHANGES = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(NAMES),
            st.lists(st.sampled_from(HOPS), max_size=2),
            st.sampled_from(["node", "external"]),
        ),
        st.tuples(st.sampled_from(["facts", "kernel"]), st.integers(0, 2), st.just("")),
    ),
    max_size=16,
)
WORLDS = (
    FACTS,
    PathFacts(routed=frozenset({POOL}), own_blocks=frozenset({ip_network("10.65.1.0/26")})),
    PathFacts(own_addresses=frozenset({ip_address("10.99.1.2")})),
)
WAY_OUT = NextHop(ip_address("10.99.1.254"), 2)
KERNELS: tuple[tuple[Route, ...], ...] = (
    (LINK,),
    (LINK, Route(ip_network("0.0.0.0/0"), (WAY_OUT,))),
    (),
)


@given(CHANGES, st.sampled_from([None, 1, 2]))
def test_step_by_step_is_the_same_as_at_once(
    changes: list[tuple[str, Any, str]], limit: int | None
) -> None:
    """RMT-1; and what is told to differ is what differs."""
    table = PathTable()
    remote = RemoteRoutes(table)
    facts, kernel = WORLDS[0], KERNELS[0]
    remote.learn(facts, kernel, NONE)
    told: dict[Prefix, tuple[NextHop, ...]] = {}
    for what, value, origin in changes:
        if what == "facts":
            facts = WORLDS[value]
        elif what == "kernel":
            kernel = KERNELS[value]
        else:
            path = [Path(what, value, origin)] if value else []
            remote.change(table.change(path, [] if value else [what]))
        remote.learn(facts, kernel, NONE)
        for prefix in remote.settle(limit):
            told[prefix] = remote.hops.get(prefix, ())
    while remote.pending:
        for prefix in remote.settle(limit):
            told[prefix] = remote.hops.get(prefix, ())
    fresh = RemoteRoutes(table)
    fresh.learn(facts, kernel, NONE)
    fresh.settle()
    assert remote.hops == fresh.hops == plainly(table, facts, kernel)
    assert {prefix: hops for prefix, hops in told.items() if hops} == remote.hops
    assert remote.complaints() == fresh.complaints()


def plainly(
    table: PathTable, facts: PathFacts, kernel: tuple[Route, ...]
) -> dict[Prefix, tuple[NextHop, ...]]:
    """The same, without anything remembered."""
    judge = RouteAcceptance(facts)
    taken = {p: via for p, via in table.paths.items() if not judge.refusal(p, via)}
    external = {p: via for p, via in taken.items() if via.external}
    resolver = Resolver(kernel, external)
    ways = {p: resolver.way(via, p if via.external else None).hops for p, via in taken.items()}
    return {prefix: hops for prefix, hops in ways.items() if hops}
