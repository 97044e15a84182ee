"""Best path and the table: known orders, and models that hypothesis compares with."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.routes.bestpath import Candidate, Source, acceptable, select
from bgp.routes.rib import Rib
from bgp.speaker.interface import (
    Announced,
    Attributes,
    Family,
    IPNetwork,
    Origin,
    PathsReceived,
    Withdrawn,
)

NETS: list[IPNetwork] = [ip_network(f"10.65.{number}.0/24") for number in range(4)]
PEERS = [IPv4Address(f"10.0.0.{number}") for number in range(1, 4)]


def source(number: int = 1, *, internal: bool = True, **more: Any) -> Source:
    values: dict[str, Any] = {
        "peer": IPv4Address(f"10.0.0.{number}"),
        "internal": internal,
        "local_as": 64512,
        "remote_as": 64512 if internal else 64500,
        "router_id": IPv4Address(f"1.1.1.{number}"),
        "own_router_id": IPv4Address("9.9.9.9"),
        **more,
    }
    return Source(**values)


def path(number: int = 1, *, internal: bool = True, path_id: int = 0, **more: Any) -> Candidate:
    as_path = tuple(more.pop("as_path", ()))
    attributes = Attributes(as_path=as_path, as_path_length=len(as_path), **more)
    hop = IPv4Address(f"10.0.0.{number}")
    return Candidate(source(number, internal=internal), hop, attributes, path_id)


ORDERED = [
    ("higher LOCAL_PREF", path(1), path(2, local_pref=99)),
    ("shorter path", path(1, as_path=[1], med=9), path(2, as_path=[1, 2])),
    ("lower origin", path(1), path(2, origin=Origin.INCOMPLETE)),
    ("lower MED of one neighbour", path(1, as_path=[7], med=1), path(2, as_path=[7], med=2)),
    ("no MED is the lowest", path(1, as_path=[7]), path(2, as_path=[7], med=1)),
    (
        "eBGP before iBGP",
        path(2, internal=False, as_path=[7]),
        path(1, as_path=[7]),
    ),
]


@pytest.mark.parametrize(("name", "better", "worse"), ORDERED, ids=[each[0] for each in ORDERED])
def test_order(name: str, better: Candidate, worse: Candidate) -> None:
    assert select([worse, better]) == [better]


def test_local_pref_of_an_external_peer_is_ignored() -> None:
    external = path(2, internal=False, local_pref=5000, as_path=[7])
    assert select([external, path(1)]) == [path(1)]


def test_equal_paths_are_used_together_in_tie_break_order() -> None:
    """MED of different neighbours is not compared; ties: ids, cluster list, address (RFC 4456)."""
    reflected = path(1, cluster_list=("1.1.1.1",))
    plain, later = path(2), path(3, originator_id=IPv4Address("0.0.0.9"))
    assert select([plain, reflected, later]) == [later, reflected, plain]
    same = IPv4Address("0.0.0.7")
    short = path(3, originator_id=same, cluster_list=("2.2.2.2",))
    long = path(2, originator_id=same, cluster_list=("1.1.1.1", "2.2.2.2"))
    assert select([long, short]) == [short, long]
    one, two = path(1, as_path=[7], med=1), path(2, as_path=[8], med=2)
    assert select([two, one]) == [one, two]
    assert select([]) == []


def test_acceptable() -> None:
    assert acceptable(path(1, as_path=[7])) == ""
    assert "AS loop" in acceptable(path(1, as_path=[7, 64512]))
    allowed = Candidate(
        source(1, allowed_local_as=1), PEERS[0], Attributes(as_path=(64512,), as_path_length=1)
    )
    assert acceptable(allowed) == ""
    assert "originator" in acceptable(path(1, originator_id=IPv4Address("9.9.9.9")))
    assert "no host address" in acceptable(
        Candidate(source(), IPv4Address("0.0.0.0"), Attributes())
    )


candidates = st.builds(
    path,
    st.integers(1, 3),
    internal=st.booleans(),
    path_id=st.integers(0, 3),
    as_path=st.lists(st.integers(1, 3), max_size=2),
    local_pref=st.sampled_from([None, 99, 101]),
    med=st.sampled_from([None, 1]),
    origin=st.sampled_from(Origin),
)


@given(st.lists(candidates, min_size=1, max_size=8, unique=True), st.randoms())
def test_order_of_arrival_does_not_matter(paths: list[Candidate], random: Any) -> None:
    """Deterministic (MED compared by neighbour as a group), never empty, never invented."""
    chosen = select(paths)
    shuffled = list(paths)
    random.shuffle(shuffled)
    assert set(select(shuffled)) == set(chosen)
    assert chosen
    assert set(chosen) <= set(paths)
    assert select(chosen) == chosen


# -- the table


def said(peer: int, announced: Any = (), withdrawn: Any = (), med: int = 0) -> PathsReceived:
    return PathsReceived(
        PEERS[peer],
        Attributes(med=med),
        tuple(Announced(NETS[net], PEERS[peer], path_id) for net, path_id in announced),
        tuple(Withdrawn(NETS[net], path_id) for net, path_id in withdrawn),
    )


def take(rib: Rib, message: PathsReceived) -> set[IPNetwork]:
    return rib.update(message, source(PEERS.index(message.peer) + 1))  # type: ignore[arg-type]


def test_add_path_and_ecmp() -> None:
    rib = Rib()
    assert take(rib, said(0, [(0, 1), (0, 2)])) == {NETS[0]}
    assert take(rib, said(1, [(0, 0)])) == {NETS[0]}
    assert take(rib, said(1, [(0, 0)])) == set()
    assert [each.next_hop for each in rib.best(NETS[0])] == [PEERS[0], PEERS[0], PEERS[1]]
    take(rib, said(0, withdrawn=[(0, 1), (0, 2), (3, 0)]))
    assert [each.next_hop for each in rib.best(NETS[0])] == [PEERS[1]]


def test_loop_replaces_the_good_path() -> None:
    """A peer that now sends a loop has no usable path any more."""
    rib = Rib()
    take(rib, said(0, [(0, 0)]))
    looped = PathsReceived(
        PEERS[0], Attributes(as_path=(64512,), as_path_length=1), (Announced(NETS[0], PEERS[0]),)
    )
    assert take(rib, looped) == {NETS[0]}
    assert rib.best(NETS[0]) == []
    assert rib.rejected == 1


def test_own_next_hop_is_never_used() -> None:
    rib = Rib()
    take(rib, said(0, [(0, 0)]))
    rib.own = frozenset({PEERS[0]})
    assert rib.best(NETS[0]) == []


@pytest.mark.promise("F-43")
def test_stale_paths_are_used_until_swept() -> None:
    rib = Rib()
    take(rib, said(0, [(0, 0), (1, 0)]))
    rib.mark_stale(PEERS[0], Family.IPV4)
    assert rib.count(PEERS[0]) == (2, 2)
    assert rib.best(NETS[1])
    assert take(rib, said(0, [(0, 0)])) == set()
    assert rib.count(PEERS[0]) == (2, 1)
    assert rib.sweep(PEERS[0], Family.IPV6) == set()
    assert rib.sweep(PEERS[0], Family.IPV4) == {NETS[1]}
    assert rib.prefixes() == {NETS[0]}
    assert rib.drop(PEERS[0]) == {NETS[0]}
    assert rib.count(PEERS[0]) == (0, 0)


keys = st.tuples(st.integers(0, 3), st.integers(0, 1))
messages = st.builds(
    said,
    st.integers(0, 2),
    st.lists(keys, max_size=3),
    st.lists(keys, max_size=2),
    st.integers(0, 2),
)


def picture(rib: Rib) -> dict[IPNetwork, list[Candidate]]:
    return {net: best for net in NETS if (best := rib.best(net))}


@given(st.lists(messages, max_size=12), st.lists(messages, max_size=12), st.integers(0, 2))
def test_after_a_restart_the_table_is_the_new_session_alone(
    before: list[PathsReceived], after: list[PathsReceived], restarted: int
) -> None:
    """RIB-1, RIB-2; and `dirty` names every prefix whose choice changed."""
    rib, fresh = Rib(), Rib()
    for message in before:
        take(rib, message)
        if message.peer != PEERS[restarted]:
            take(fresh, message)
    rib.mark_stale(PEERS[restarted], Family.IPV4)
    last = picture(rib)
    for message in after:
        dirty = take(rib, message)
        now = picture(rib)
        changed = {net for net in NETS if now.get(net) != last.get(net)}
        assert changed <= dirty
        last = now
        take(fresh, message)
    dirty = rib.sweep(PEERS[restarted], Family.IPV4)
    now = picture(rib)
    assert {net for net in NETS if now.get(net) != last.get(net)} <= dirty
    assert now == picture(fresh)
    assert rib.prefixes() == fresh.prefixes()


def test_prefixes_that_differ_in_nothing_else_share_what_is_held() -> None:
    """A table of equal paths costs the prefixes and no object more, in messages of any size."""
    rib = Rib()
    take(rib, said(0, [(0, 0), (1, 0)]))
    take(rib, said(0, [(2, 0)]))
    assert len({id(held) for held in rib._paths.values()}) == 1
    assert rib._peers[PEERS[0]].keys == set(NETS[:3])
    rib.judge = lambda _, path: "unwanted " + str(path.path_id)
    rib.judge_again()
    assert len({id(held) for held in rib._paths.values()}) == 1
    assert len({id(why) for why in rib._peers[PEERS[0]].faults.values()}) == 1
