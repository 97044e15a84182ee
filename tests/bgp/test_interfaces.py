"""Connected networks: which are this node's own, and where an address leaves."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from bgp.cluster.interfaces import Interfaces
from tests.bgp.make import net

TOLD = {
    "10.0.0.0/24": "eth0",
    "10.0.0.128/25": "eth1",
    "172.17.0.0/16": "docker0",
    "10.65.1.7/32": "cali123",
    "10.96.0.1/32": "kube-ipvs0",
    "fe80::/64": "eth0",
    "nonsense": "eth9",
}


@pytest.mark.promise("F-57")
def test_ignored_interfaces() -> None:
    found = Interfaces.of(TOLD)
    usual = [net("10.0.0.0/24"), net("10.0.0.128/25"), net("172.17.0.0/16")]
    assert list(found.own([])) == usual
    assert list(found.own(["docker*", "eth1"])) == usual[:1]


def test_towards() -> None:
    found = Interfaces.of(TOLD)
    assert found.towards(ip_address("10.0.0.5")) == "eth0"
    assert found.towards(ip_address("10.0.0.200")) == "eth1"
    assert found.towards(net("10.0.0.0/24")) == "eth0"
    assert found.towards(ip_address("192.0.2.1")) == ""
    assert found.towards(ip_address("fd00::1")) == ""
    assert found.towards(net("10.65.2.9/32")) == "cali"
    assert found.towards(net("10.65.2.0/26")) == ""
