"""A plan is within etcd's limits, and a request that fails leaves no trace in it."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipam.allocator import planner
from ipam.allocator.planner import Sources, plan
from ipam.allocator.requests import Allocate, Granted, Refused, Release, Request, Short
from ipam.allocator.view import View
from ipam.records import blocks, handles
from ipam.records.errors import NotOwner
from ipam.records.pools import Pool, block_order
from libcalico.datastore.interface import Check, Delete, Entry, Put
from libcalico.model.codec import encode_value
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork
from tests.ipam.world import allocate, release

POOLS = [Pool("p", ip_network("10.0.0.0/16"), 29), Pool("q", ip_network("fd00::/64"), 125)]


def view_of(count4: int, count6: int) -> tuple[View, Sources]:
    view = View()
    cidrs: list[IPNetwork] = []
    for pool, count in zip(POOLS, (count4, count6), strict=True):
        cidrs += islice(block_order(pool, "n"), count)
    puts = [Put(BlockKey(cidr), blocks.create(cidr, "host:n", None, 5), 0) for cidr in cidrs]
    view.wrote(puts, 1)
    return view, Sources("n", cidrs)


@given(
    count4=st.integers(0, 3),
    count6=st.integers(0, 3),
    families=st.lists(st.sampled_from([(4,), (6,), (4, 6)]), max_size=40),
)
def test_plans_are_whole_and_within_limits(
    count4: int, count6: int, families: list[tuple[int, ...]]
) -> None:
    """IPAM-5, IPAM-8, IPAM-9."""
    view, sources = view_of(count4, count6)
    requests = [allocate(f"pod{i}", families=f) for i, f in enumerate(families)]
    made = plan(view, requests, [POOLS] * len(requests), sources)
    # A short request first looks whether its endpoint holds an address already.
    view.learn(dict.fromkeys(made.missing))
    made = plan(view, requests, [POOLS] * len(requests), sources)
    assert not made.missing
    assert len(made.changes) <= planner.MAX_CHANGES
    assert len({change.key for change in made.changes}) == len(made.changes)
    given_out: set[blocks.IPAddress] = set()
    for request, answer in zip(requests, made.outcome, strict=True):
        if isinstance(answer, Granted):
            assert tuple(a.version for a in answer.addresses) == request.families
            assert not given_out & set(answer.addresses)
            given_out |= set(answer.addresses)
        else:
            assert isinstance(answer, Short)
    written = [c.value for c in made.changes if isinstance(c, Put) and isinstance(c.key, BlockKey)]
    stored = [item.address for block in written for item in blocks.allocations(block)]
    assert sorted(stored, key=str) == sorted(given_out, key=str)
    written_handles = [change for change in made.changes if isinstance(change.key, HandleKey)]
    assert len(written_handles) == sum(isinstance(a, Granted) for a in made.outcome)


def test_two_requests_for_one_endpoint_go_into_two_groups() -> None:
    view, sources = view_of(1, 0)
    pair: list[Request] = [allocate("web"), release("web")]
    made = plan(view, pair, [POOLS, []], sources)
    assert made.missing, "a release reads first"
    view.learn(dict.fromkeys(made.missing))
    made = plan(view, pair, [POOLS, []], sources)
    assert isinstance(made.outcome[0], Granted)
    assert len({change.key for change in made.changes}) == len(made.changes)


def test_a_torn_block_is_passed_over() -> None:
    view, sources = view_of(2, 0)
    first = BlockKey(sources.affine[0])
    torn = msgspec.structs.replace(view.value(first), unallocated=[0])
    view.wrote([Put(first, torn, 1)], 2)
    made = plan(view, [allocate("web")], [POOLS], sources)
    (answer,) = made.outcome
    assert isinstance(answer, Granted)
    assert answer.addresses[0] in sources.affine[1]


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("owner", ["host:other", None])
def test_strict_affinity_lets_what_runs_be_put_back_and_nothing_new_be_taken(
    restores: bool, owner: str | None
) -> None:
    """What runs has its address anyhow; free in its block, the owner would give it out again."""
    view, sources = view_of(1, 0)
    key = BlockKey(sources.affine[0])
    theirs = msgspec.structs.replace(view.value(key), affinity=owner)
    view.wrote([Put(key, theirs, 1)], 2)
    address = key.cidr[3]
    request = Allocate("net.web", {}, fixed=(address,), restores=restores)
    view.learn({HandleKey("net.web"): None})
    (answer,) = plan(view, [request], [POOLS], replace(sources, affine=(), strict=True)).outcome
    if restores:
        assert answer == Granted((address,))
    else:
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, NotOwner)


def test_what_a_stale_block_says_about_a_handle_is_compared() -> None:
    """IPAM-15: the handle counts an address that the block at hand does not show."""
    view, sources = view_of(1, 0)
    key = BlockKey(sources.affine[0])
    handle = HandleKey("net.web")
    view.wrote([Put(handle, handles.add(None, str(key.cidr), 1), 0)], 7)
    made = plan(view, [Release("net.web")], [[]], sources)
    assert Check(key, 1) in made.changes, "else the handle forgets what the real block holds"
    assert Delete(handle, 7) in made.changes
    view.learn({key: None})
    assert Check(key, 0) in plan(view, [Release("net.web")], [[]], sources).changes


def test_old_bytes_are_kept_in_mind_only_where_they_say_more_than_the_value() -> None:
    """DS-2, and no more than that: to lay a block over its old bytes is dear."""
    key = BlockKey(ip_network("10.0.0.0/29"))
    block = blocks.create(key.cidr, "host:n1", None, 1)
    plain = encode_value(key, block)
    more = plain.removesuffix(b"}") + b',"later":1}'
    view = View()
    assert view.base(key) is None
    for revision, (raw, kept) in enumerate([(plain, False), (more, True), (b"", False)], 1):
        entry = Entry(key, block, revision, raw)
        view.learn({key: entry})
        assert view.base(key) is (entry if kept else None)
        assert view.base(key) is (entry if kept else None), "asked again"
