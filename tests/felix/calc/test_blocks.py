"""Own blocks, lent addresses and blackholes, as properties."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.blocks import (
    BlockFacts,
    IPAddress,
    IPNetwork,
    blackholes,
    facts_of,
    lent_addresses,
    own_blocks,
    unsettled,
)
from libcalico.model.resources.ipam import Attribute, Block, BlockAffinity

V4 = st.integers(26, 32).flatmap(
    lambda length: st.integers(0, 63).map(
        lambda n: IPv4Network((int(IPv4Address("10.65.0.0")) + (n << (32 - length)), length))
    )
)
V6 = st.integers(0, 63).map(lambda n: IPv6Network(((0xFD65 << 112) + (n << 6), 122)))
BLOCKS: st.SearchStrategy[IPNetwork] = st.one_of(V4, V6)
OWNERS = st.sampled_from(["host:me", "host:other", "virtual:load-balancer", ""])
STATES = st.sampled_from(["confirmed", "", "pending", "pendingDeletion"])


@given(
    st.dictionaries(BLOCKS, OWNERS.map(lambda owner: BlockFacts(owner, frozenset()))),
    st.dictionaries(BLOCKS, STATES.map(BlockAffinity)),
)
def test_blackholes_are_exactly_the_own_blocks_that_hold_several(
    blocks: dict[IPNetwork, BlockFacts], claims: dict[IPNetwork, BlockAffinity]
) -> None:
    own = own_blocks("me", blocks, claims)
    found = blackholes(own)
    assert found == {block for block in own if block.num_addresses > 1}
    for block in blocks.keys() | claims.keys():
        if block in blocks:
            assert (block in own) == (blocks[block].owner == "host:me")
        else:
            assert (block in own) == (claims[block].state in ("confirmed", ""))
    assert own <= blocks.keys() | claims.keys()


@given(st.lists(st.sampled_from([None, 0, 1, 2, 9]), min_size=64, max_size=64))
def test_users_are_those_that_the_attributes_name(allocations: list[int | None]) -> None:
    block = Block(
        cidr="10.65.0.0/26",
        affinity="host:me",
        allocations=allocations,
        attributes=[
            Attribute("h0", {"node": "me"}),
            Attribute("h1", {"node": "other"}),
            Attribute("h2", {}),
        ],
    )
    cidr = ip_network("10.65.0.0/26")
    facts = facts_of(block)
    lent = lent_addresses(frozenset({cidr}), {cidr: facts})
    first = ip_address("10.65.0.0")
    expected: set[IPAddress] = {first + n for n, index in enumerate(allocations) if index == 1}
    assert lent == expected
    assert facts.owner == "host:me"


def test_a_deleted_block_belongs_to_nobody() -> None:
    block = Block(cidr="10.65.0.0/26", affinity="host:me", allocations=[None] * 64, deleted=True)
    assert facts_of(block).owner == ""


def test_the_old_spelling_of_an_owner_counts() -> None:
    block = Block(cidr="10.65.0.0/26", hostAffinity="me", allocations=[None] * 64)
    assert facts_of(block).owner == "host:me"


def test_claims_and_own_blocks_that_lack_each_other_are_told() -> None:
    one, other, theirs, half = (ip_network(f"10.65.{n}.0/26") for n in range(4))
    blocks = {
        one: BlockFacts("host:me", frozenset()),
        theirs: BlockFacts("host:other", frozenset()),
        half: BlockFacts("host:me", frozenset()),
    }
    claims = {other: BlockAffinity(), half: BlockAffinity(state="pendingDeletion")}
    told = unsettled("me", blocks, claims)
    assert told.keys() == {f"BlockAffinity({one})", f"BlockAffinity({other})"}
    assert "do not believe" in told[f"BlockAffinity({one})"]
    assert "its block was deleted" in told[f"BlockAffinity({other})"]
    claims |= {one: BlockAffinity()}
    del claims[other]
    assert unsettled("me", blocks, claims) == {}
