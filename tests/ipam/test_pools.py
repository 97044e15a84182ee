"""Pool selection and block order."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import islice

import pytest

from ipam.records.errors import NoPool, NotInPool
from ipam.records.pool_choice import select, selects_node, serving
from ipam.records.pools import WORKLOAD, Pool, block_count, block_order, containing

A = Pool("a", ip_network("10.0.0.0/24"), 26)
B = Pool("b", ip_network("10.1.0.0/24"), 26, node_selector='zone == "b"')
OFF = Pool("off", ip_network("10.2.0.0/24"), 26, disabled=True)
MANUAL = Pool("manual", ip_network("10.3.0.0/24"), 26, automatic=False)
TUNNEL = Pool("tunnel", ip_network("10.4.0.0/24"), 26, allowed_uses=("Tunnel",))
SIX = Pool("six", ip_network("fd00::/64"), 122)
ALL = [A, B, OFF, MANUAL, TUNNEL, SIX]


@pytest.mark.parametrize(
    ("family", "labels", "requested", "expected"),
    [
        (4, {}, (), ["a"]),
        (4, {"zone": "b"}, (), ["a", "b"]),
        (6, {}, (), ["six"]),
        (4, {}, ("b",), ["b"]),
        (4, {}, ("10.3.0.0/24", "a"), ["manual", "a"]),
        (4, {}, ("10.3.0.7/24",), ["manual"]),
        (6, {}, ("FD00:0::/64",), ["six"]),
    ],
)
def test_selection(
    family: int, labels: dict[str, str], requested: tuple[str, ...], expected: list[str]
) -> None:
    found = select(ALL, family, node_labels=labels, requested=requested)
    assert [pool.name for pool in found] == expected


def test_a_refusal_names_every_pool_and_why() -> None:
    with pytest.raises(NoPool) as caught:
        select([B, OFF, MANUAL, TUNNEL], 4, node_labels={})
    text = str(caught.value)
    assert 'b (10.1.0.0/24) does not select this node (nodeSelector zone == "b")' in text
    assert "off (10.2.0.0/24) is disabled" in text
    assert "manual (10.3.0.0/24) is served on request only" in text
    assert "tunnel (10.4.0.0/24) does not allow the use Workload" in text
    with pytest.raises(NoPool, match="'nowhere' does not exist"):
        select(ALL, 4, node_labels={}, requested=("nowhere",))
    with pytest.raises(NoPool, match="'six' does not exist"):
        select(ALL, 4, node_labels={}, requested=("six",))
    with pytest.raises(NoPool, match="there is no IPv6 pool"):
        select([A], 6, node_labels={})


def test_an_address_is_of_the_smallest_pool_around_it() -> None:
    wide = Pool("wide", ip_network("10.0.0.0/8"), 26, disabled=True)
    before = Pool("before", A.cidr, 26, disabled=True)
    for pools in ([wide, before, A], [A, before, wide]):
        assert serving(pools, ip_address("10.0.0.9"), WORKLOAD) is A
        assert containing(pools, ip_network("10.0.0.64/26")) is A
        assert containing(pools, ip_network("10.9.0.0/26")) is wide
        with pytest.raises(NotInPool, match="pool wide is disabled"):
            serving(pools, ip_address("10.9.0.9"), WORKLOAD)
    assert containing([A], ip_network("10.9.0.0/26")) is None


def test_a_broken_selector_selects_nothing_and_stops_no_other_pool() -> None:
    """IPAM-13."""
    broken = Pool("x", ip_network("10.0.0.0/24"), 26, node_selector="zone ==")
    with pytest.raises(NoPool, match="nodeSelector that cannot be read"):
        select([broken], 4, node_labels={})
    good = Pool("y", ip_network("10.0.1.0/24"), 26)
    assert select([broken, good], 4, node_labels={}) == [good]
    assert not selects_node(broken, {"zone": "b"})
    assert selects_node(B, {"zone": "b"})
    assert not selects_node(B, {"zone": "a"})


def test_the_block_order_visits_every_block_once_and_differs_by_host() -> None:
    one, two = (list(block_order(A, host)) for host in ("node1", "node2"))
    assert sorted(one) == sorted(two) == sorted(A.cidr.subnets(new_prefix=26))
    starts = {
        next(block_order(Pool("p", ip_network("10.0.0.0/16"), 26), f"n{i}")) for i in range(50)
    }
    assert len(starts) > 30
    assert len(list(islice(block_order(SIX, "node1"), 5))) == 5, "lazy: 2^58 blocks"
    assert block_count(Pool("p", ip_network("10.0.0.0/28"), 26)) == 0
