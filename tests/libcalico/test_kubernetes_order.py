"""The order of a commit's writes where there are no transactions (KDD-1 to KDD-3)."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.interface import ABSENT, Change, Check, Delete, Put
from libcalico.datastore.kubernetes.order import phases
from libcalico.model import (
    AffinityKey,
    Block,
    BlockAffinity,
    BlockKey,
    Handle,
    HandleKey,
    ResourceKey,
    WorkloadEndpoint,
)
from libcalico.model.base.meta import Metadata

CIDR, OTHER = ip_network("10.0.0.0/26"), ip_network("10.0.0.64/26")
HANDLE, CLAIM, ENDPOINT = (
    HandleKey("h"),
    AffinityKey("n1", CIDR),
    ResourceKey("WorkloadEndpoint", "n1-k8s-a-eth0", "default"),
)
BLOCK = Block(cidr=str(CIDR), allocations=[None])
COUNTS = st.dictionaries(st.sampled_from([str(CIDR), str(OTHER)]), st.integers(1, 3))


def flat(changes: list[Change], before: Handle | None = None) -> list[Change]:
    return [one for phase in phases(changes, lambda _: before) for one in phase]


def test_an_add_counts_first_and_shows_last() -> None:
    endpoint = Put(ENDPOINT, WorkloadEndpoint(metadata=Metadata()), ABSENT)
    handle = Put(HANDLE, Handle(block={str(CIDR): 1}), ABSENT)
    block = Put(BlockKey(CIDR), BLOCK, 5)
    assert flat([block, Check(BlockKey(OTHER), 3), endpoint, handle]) == [handle, block, endpoint]


def test_a_del_hides_first_and_counts_last() -> None:
    block, handle, endpoint = Put(BlockKey(CIDR), BLOCK, 5), Delete(HANDLE, 4), Delete(ENDPOINT, 3)
    assert flat([block, handle, endpoint]) == [endpoint, block, handle]


def test_a_claim_stands_before_its_block_and_is_confirmed_after_it() -> None:
    block, claim = Put(BlockKey(CIDR), BLOCK, ABSENT), Put(CLAIM, BlockAffinity(), ABSENT)
    first, second, third = flat([claim, block])
    assert isinstance(first, Put)
    assert (first.key, first.value.state) == (CLAIM, "pending")
    assert (second, third) == (block, claim)
    assert flat([Put(CLAIM, BlockAffinity(), 7), block])[0] == block
    assert flat([Delete(CLAIM, 7), Delete(BlockKey(CIDR), 5)])[-1] == Delete(CLAIM, 7)


@given(COUNTS, COUNTS)
def test_a_handle_never_counts_less_than_its_blocks(
    had: dict[str, int], wanted: dict[str, int]
) -> None:
    """KDD-1: while the block is written it counts both what was and what will be."""
    block = Put(BlockKey(CIDR), BLOCK, 5)
    found = flat([block, Put(HANDLE, Handle(block=wanted), 4)], Handle(block=had))
    at = found.index(block)
    during, after = dict(had), dict(had)
    for index, one in enumerate(found):
        if isinstance(one, Put) and one.key == HANDLE:
            after = one.value.block
            if index < at:
                during = one.value.block
    assert after == wanted
    for cidr in {*had, *wanted}:
        assert during.get(cidr, 0) >= max(had.get(cidr, 0), wanted.get(cidr, 0))
