"""Which tunnels a node needs."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest

from felix.calc.encapsulation import Encapsulation, encapsulation


@dataclass(frozen=True)
class Pool:
    """A pool as the calculation sees it."""

    network: IPv4Network | IPv6Network
    ipip: bool = False
    vxlan: bool = False


PLAIN = Pool(ip_network("10.0.0.0/16"))
IPIP = Pool(ip_network("10.1.0.0/16"), ipip=True)
VXLAN = Pool(ip_network("10.2.0.0/16"), vxlan=True)
VXLAN6 = Pool(ip_network("fd00::/64"), vxlan=True)


@pytest.mark.parametrize(
    ("pools", "ipip", "vxlan", "expected"),
    [
        ([], None, None, (False, False, False)),
        ([PLAIN], None, None, (False, False, False)),
        ([PLAIN, IPIP], None, None, (True, False, False)),
        ([VXLAN], None, None, (False, True, False)),
        ([VXLAN6], None, None, (False, False, True)),
        ([IPIP, VXLAN, VXLAN6], None, None, (True, True, True)),
        # The operator's word counts in both directions.
        ([PLAIN], True, True, (True, True, True)),
        ([IPIP, VXLAN, VXLAN6], False, False, (False, False, False)),
    ],
)
def test_pools_decide_unless_the_operator_does(
    pools: list[Pool], ipip: bool | None, vxlan: bool | None, expected: tuple[bool, bool, bool]
) -> None:
    named = {str(number): pool for number, pool in enumerate(pools)}
    found = encapsulation(named, ipip=ipip, vxlan=vxlan)
    assert (found.ipip, found.vxlan, found.vxlan_v6) == expected


def test_a_pool_that_asks_in_vain_is_named() -> None:
    pools = {"a": IPIP, "b": VXLAN, "c": PLAIN}
    assert encapsulation(pools, ipip=False).refused == {
        "a": "spec.ipipMode: IpInIpEnabled is false"
    }
    assert encapsulation(pools, vxlan=False).refused == {
        "b": "spec.vxlanMode: VXLANEnabled is false"
    }
    assert not encapsulation(pools).refused


def test_ipip_carries_no_ipv6() -> None:
    found = encapsulation({"six": Pool(ip_network("fd00::/64"), ipip=True)})
    assert found == Encapsulation(refused={"six": "spec.ipipMode: IPIP carries IPv4 only"})
