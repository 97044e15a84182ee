"""Default pools and settings objects: made once, never over what exists."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from ipam.records.pools import Pool
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.felixconfig import FelixConfiguration, FelixConfigurationSpec
from node.settings.environment import settings
from node.start import defaults


def ones(count: int) -> bytes:
    return b"\x11" * count


def pool(cidr: str) -> Pool:
    return Pool("p", ip_network(cidr), 26)


def cidr(
    version: int,
    environ: dict[str, str],
    existing: list[Pool] | None = None,
    taken: list[IPNetwork] | None = None,
    told: list[IPNetwork] | None = None,
) -> str | None:
    found = settings(environ)
    wish = found.pool4 if version == 4 else found.pool6
    made = defaults.default_pool(version, wish, existing or [], taken or [], ones, told or [])
    return made.spec.cidr if made else None


def test_ranges() -> None:
    assert cidr(4, {}) == "192.168.0.0/16"
    assert cidr(4, {}, taken=[ip_network("192.168.7.0/24")]) == "172.16.0.0/16"
    taken = [ip_network("192.168.7.0/24"), ip_network("172.16.0.0/15")]
    assert cidr(4, {}, taken=taken) == "172.18.0.0/16"
    assert cidr(4, {"CALICO_IPV4POOL_CIDR": "10.65.0.0/16"}) == "10.65.0.0/16"
    assert cidr(6, {}) == "fd11:1111:1111::/48"


def test_what_the_cluster_was_made_with_comes_before_the_defaults() -> None:
    told = [ip_network("10.244.0.0/16"), ip_network("fd65:44::/48")]
    assert cidr(4, {}, told=told) == "10.244.0.0/16"
    assert cidr(6, {}, told=told) == "fd65:44::/48"
    assert cidr(6, {}, told=told[:1]) == "fd11:1111:1111::/48"
    assert cidr(4, {"CALICO_IPV4POOL_CIDR": "10.65.0.0/16"}, told=told) == "10.65.0.0/16"
    assert cidr(4, {}, [pool("10.0.0.0/8")], told=told) is None


def test_a_family_that_has_a_pool_gets_none() -> None:
    assert cidr(4, {}, [pool("10.0.0.0/8")]) is None
    assert cidr(6, {}, [pool("10.0.0.0/8")]) is not None
    assert cidr(4, {"CALICO_IPV4POOL_CIDR": "none"}) is None


def test_what_is_wrong_is_named() -> None:
    for text in ("10.0.0.1/8", "fd00::/48", "banana"):
        with pytest.raises(InvalidValue, match="CALICO_IPV4POOL_CIDR"):
            cidr(4, {"CALICO_IPV4POOL_CIDR": text})
    everything = [ip_network("192.168.0.0/16"), ip_network("172.16.0.0/12")]
    with pytest.raises(MuslinError, match=r"CALICO_IPV4POOL_CIDR.*10\.0\.0\.0/16"):
        cidr(4, {}, taken=everything)


def test_pool_fields_come_from_the_environment() -> None:
    wish = settings({"CALICO_IPV4POOL_IPIP": "Always", "CALICO_IPV4POOL_BLOCK_SIZE": "24"}).pool4
    made = defaults.default_pool(4, wish, [], [], ones)
    assert made is not None
    assert made.metadata.name == "default-ipv4-ippool"
    assert (made.spec.ipipMode, made.spec.blockSize, made.spec.natOutgoing) == ("Always", 24, True)


def test_felix_settings_are_filled_where_unset_only() -> None:
    fresh = defaults.felix_default(None)
    assert fresh.spec.set_fields() == {"logSeverityScreen": "Info", "reportingInterval": "0s"}
    stored = FelixConfiguration(
        metadata=Metadata(name="default"),
        spec=FelixConfigurationSpec(logSeverityScreen="Debug", reportingInterval="30s"),
    )
    assert defaults.felix_default(stored) is stored
    assert defaults.felix_node(None, "n1").spec == FelixConfigurationSpec(
        defaultEndpointToHostAction="Return"
    )
    assert defaults.felix_node(None, "n1").metadata.name == "node.n1"
