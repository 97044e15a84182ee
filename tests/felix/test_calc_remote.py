"""Remote routes follow their paths, the facts and the kernel's routes."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.paths import PathFacts, PathTable
from felix.calc.remote import UNREACHABLE, RemoteRoutes
from libcalico.local.node_api import Path
from linux.routes import NextHop, Route

POOL = ip_network("10.65.0.0/16")
LINK = Route(ip_network("10.99.1.0/24"), (NextHop(None, 2),), protocol=2)
FACTS = PathFacts(pools=frozenset({POOL}))
NONE: frozenset[int] = frozenset()


def prefix(n: int) -> IPv4Network:
    return IPv4Network(f"10.65.{n}.0/26")


def test_a_pool_that_goes_takes_its_routes_along() -> None:
    table = PathTable()
    remote = RemoteRoutes(table)
    remote.learn(FACTS, (LINK,), NONE)
    changed = remote.change(table.change([Path(str(prefix(1)), ["10.99.1.2"])], []))
    assert changed == {prefix(1)}
    assert remote.hops[prefix(1)] == (NextHop(ip_address("10.99.1.2"), 2),)
    assert remote.learn(PathFacts(), (LINK,), NONE) == {prefix(1)}
    assert "no enabled pool" in remote.complaints()[str(prefix(1))]
    assert remote.learn(FACTS, (LINK,), NONE) == {prefix(1)}
    assert remote.learn(FACTS, (LINK,), NONE) == set()
    assert remote.learn(FACTS, (), NONE) == {prefix(1)}
    assert remote.complaints() == {str(prefix(1)): UNREACHABLE}


def test_an_external_path_changes_what_goes_through_it() -> None:
    table = PathTable()
    remote = RemoteRoutes(table)
    remote.learn(FACTS, (LINK,), NONE)
    remote.change(table.change([Path(str(prefix(1)), ["10.99.2.2"])], []))
    assert remote.hops == {}
    router = Path("10.99.2.0/24", ["10.99.1.254"], "external")
    assert prefix(1) in remote.change(table.change([router], []))
    assert remote.hops[prefix(1)] == (NextHop(ip_address("10.99.1.254"), 2),)
    assert prefix(1) in remote.change(table.change([], [router.prefix]))
    assert remote.hops == {}


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["", "10.99.1.2", "10.99.2.2", "192.0.2.1"]),
        st.sampled_from(["node", "external"]),
    ),
    max_size=12,
)


@given(CHANGES)
def test_step_by_step_is_the_same_as_at_once(changes: list[tuple[int, str, str]]) -> None:
    table = PathTable()
    remote = RemoteRoutes(table)
    remote.learn(FACTS, (LINK,), NONE)
    prefixes = [*map(prefix, range(3)), IPv4Network("10.99.2.0/24")]
    for n, hop, origin in changes:
        path = [Path(str(prefixes[n]), [hop], origin)] if hop else []
        remote.change(table.change(path, [] if hop else [str(prefixes[n])]))
    fresh = RemoteRoutes(table)
    fresh.learn(FACTS, (LINK,), NONE)
    assert remote.hops == fresh.hops
    assert remote.complaints() == fresh.complaints()
