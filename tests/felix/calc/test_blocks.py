"""Own blocks, lent addresses and blackholes, as properties."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.blocks import (
    BlockFacts,
    IPNetwork,
    blackholes,
    lent_addresses,
    own_blocks,
    unsettled,
)

V4 = st.integers(26, 32).flatmap(
    lambda length: st.integers(0, 63).map(
        lambda n: IPv4Network((int(IPv4Address("10.65.0.0")) + (n << (32 - length)), length))
    )
)
V6 = st.integers(0, 63).map(lambda n: IPv6Network(((0xFD65 << 112) + (n << 6), 122)))
BLOCKS: st.SearchStrategy[IPNetwork] = st.one_of(V4, V6)
OWNERS = st.sampled_from(["host:me", "host:other", "virtual:load-balancer", ""])


@given(st.dictionaries(BLOCKS, OWNERS.map(lambda owner: BlockFacts(owner, frozenset()))))
def test_blackholes_are_exactly_the_own_blocks_that_hold_several(
    blocks: dict[IPNetwork, BlockFacts],
) -> None:
    own = own_blocks("me", blocks)
    assert own == {cidr for cidr, facts in blocks.items() if facts.owner == "host:me"}
    assert blackholes(own) == {block for block in own if block.num_addresses > 1}


def test_lent_is_what_others_use_of_own_blocks() -> None:
    mine, theirs = ip_network("10.65.0.0/26"), ip_network("10.65.1.0/26")
    facts = {
        mine: BlockFacts("host:me", frozenset({(mine[3], "other"), (mine[4], "me")})),
        theirs: BlockFacts("host:other", frozenset({(theirs[5], "third")})),
    }
    assert lent_addresses("me", own_blocks("me", facts), facts) == {mine[3]}


def test_claims_that_own_pods_lack_are_told() -> None:
    one, other, theirs, apart = (ip_network(f"10.65.{n}.0/26") for n in range(4))
    blocks = {
        cidr: BlockFacts("", frozenset({(cidr[1], user)}))
        for cidr, user in ((one, "me"), (other, "me"), (theirs, "other"), (apart, "me"))
    }
    pools = [ip_network("10.65.0.0/23")]
    told = unsettled("me", blocks, {one, theirs, apart}, [*pools, ip_network("10.65.2.0/24")])
    assert told.keys() == {f"BlockAffinity({one})"}, "not one that was given up with its pool"
    assert "until calico-cni writes the claim again" in told[f"BlockAffinity({one})"]
    assert unsettled("me", blocks, set(), pools) == {}
