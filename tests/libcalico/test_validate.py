"""What Calico refuses is refused, with the field's path; what it takes is taken."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from libcalico.datastore.etcd.keys import key_of_path
from libcalico.errors import InvalidValue
from libcalico.model import KINDS, IPPool, IPPoolSpec, Metadata, ResourceKey, codec
from libcalico.model.defaults import apply_defaults
from libcalico.model.validation.bgp import peer_address
from libcalico.model.validation.validate import problems, validate
from libcalico.pools import check_create, check_update
from tests.libcalico.golden_data import pairs


def resource(kind: str, spec: dict[str, Any], name: str = "x", **metadata: Any) -> Any:
    if kind == "WorkloadEndpoint":
        metadata.setdefault("namespace", "default")
    tree = {"kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    return codec.resource_from_tree(tree, strict=True)


WEP: dict[str, Any] = {
    "orchestrator": "k8s",
    "node": "n1",
    "pod": "web",
    "endpoint": "eth0",
    "interfaceName": "cali1",
    "ipNetworks": ["10.0.0.1/32"],
}


def test_all_that_a_real_calico_stored_is_valid() -> None:
    for path, raw in pairs():
        key = key_of_path(path)
        if isinstance(key, ResourceKey):
            assert problems(codec.decode_value(key, raw)) == []


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Node", {"bgp": {}}, "spec.bgp"),
        ("Node", {"bgp": {"ipv4Address": "10.0.0.300/24"}}, "spec.bgp.ipv4Address"),
        ("Node", {"bgp": {"ipv4Address": "fd00::1/64"}}, "spec.bgp.ipv4Address"),
        ("Node", {"bgp": {"ipv6Address": "10.0.0.1/24"}}, "spec.bgp.ipv6Address"),
        ("Node", {"bgp": {"asNumber": 4294967296}}, "spec.bgp.asNumber"),
        ("Node", {"bgp": {"ipv4IPIPTunnelAddr": "x"}}, "spec.bgp.ipv4IPIPTunnelAddr"),
        (
            "Node",
            {"bgp": {"routeReflectorClusterID": "1"}},
            "spec.bgp.routeReflectorClusterID",
        ),
        ("Node", {"vxlanTunnelMACAddr": "zz"}, "spec.vxlanTunnelMACAddr"),
        ("Node", {"ipv6VXLANTunnelAddr": "1.2.3.4"}, "spec.ipv6VXLANTunnelAddr"),
        ("Node", {"addresses": [{"address": "1.2.3.4/33"}]}, "spec.addresses[0].address"),
        (
            "Node",
            {"addresses": [{"address": "1.2.3.4", "type": "Odd"}]},
            "spec.addresses[0].type",
        ),
        ("IPPool", {"cidr": ""}, "spec.cidr"),
        ("IPPool", {"cidr": "10.0.0.0/33"}, "spec.cidr"),
        ("IPPool", {"cidr": "10.0.0.0/255.0.0.0"}, "spec.cidr"),
        ("IPPool", {"cidr": "10.0.0.1/16"}, "spec.cidr"),
        ("IPPool", {"cidr": "10.0.0.0/27"}, "spec.cidr"),
        ("IPPool", {"cidr": "169.254.0.0/17"}, "spec.cidr"),
        ("IPPool", {"cidr": "fe80::/64"}, "spec.cidr"),
        ("IPPool", {"cidr": "10.0.0.0/16", "blockSize": 19}, "spec.blockSize"),
        ("IPPool", {"cidr": "10.0.0.0/16", "blockSize": 33}, "spec.blockSize"),
        ("IPPool", {"cidr": "fd00::/64", "blockSize": 26}, "spec.blockSize"),
        ("IPPool", {"cidr": "10.0.0.0/16", "ipipMode": "Sometimes"}, "spec.ipipMode"),
        (
            "IPPool",
            {"cidr": "10.0.0.0/16", "ipipMode": "Always", "vxlanMode": "Always"},
            "spec.vxlanMode",
        ),
        ("IPPool", {"cidr": "fd00::/64", "ipipMode": "Always"}, "spec.ipipMode"),
        ("IPPool", {"cidr": "10.0.0.0/16", "nodeSelector": "a =="}, "spec.nodeSelector"),
        ("IPPool", {"cidr": "10.0.0.0/16", "allowedUses": ["Odd"]}, "spec.allowedUses[0]"),
        (
            "IPPool",
            {"cidr": "10.0.0.0/16", "allowedUses": ["LoadBalancer", "Tunnel"]},
            "spec.allowedUses",
        ),
        (
            "IPPool",
            {
                "cidr": "10.0.0.0/16",
                "allowedUses": ["Tunnel"],
                "namespaceSelector": "has(a)",
            },
            "spec.namespaceSelector",
        ),
        (
            "IPPool",
            {"cidr": "10.0.0.0/16", "allowedUses": ["LoadBalancer"], "nodeSelector": "has(a)"},
            "spec.nodeSelector",
        ),
        ("IPPool", {"cidr": "10.0.0.0/16", "assignmentMode": "Odd"}, "spec.assignmentMode"),
        ("BGPConfiguration", {"logSeverityScreen": "Loud"}, "spec.logSeverityScreen"),
        ("BGPConfiguration", {"asNumber": 1}, "spec.asNumber"),
        ("BGPConfiguration", {"listenPort": 65536}, "spec.listenPort"),
        ("BGPConfiguration", {"nodeMeshMaxRestartTime": "soon"}, "spec.nodeMeshMaxRestartTime"),
        ("BGPConfiguration", {"communities": [{"name": "a", "value": "1:2"}]}, None),
        (
            "BGPConfiguration",
            {"prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["1:65536"]}]},
            "spec.prefixAdvertisements[0].communities[0]",
        ),
        ("BGPConfiguration", {"bindMode": "Odd"}, "spec.bindMode"),
        ("BGPConfiguration", {"ipv4NormalRoutePriority": 0}, "spec.ipv4NormalRoutePriority"),
        ("BGPPeer", {"node": "a", "nodeSelector": "all()"}, "spec.nodeSelector"),
        ("BGPPeer", {"peerIP": "10.0.0.1.1"}, "spec.peerIP"),
        ("BGPPeer", {"peerIP": "10.0.0.1:0"}, "spec.peerIP"),
        ("BGPPeer", {"peerIP": "[fd00::1]"}, "spec.peerIP"),
        ("BGPPeer", {"peerIP": "10.0.0.1", "peerSelector": "all()"}, "spec.peerSelector"),
        ("BGPPeer", {"peerSelector": "all()", "asNumber": 1}, "spec.asNumber"),
        ("BGPPeer", {"localWorkloadSelector": "all()"}, "spec.asNumber"),
        (
            "BGPPeer",
            {"peerIP": "10.0.0.1", "keepOriginalNextHop": True, "nextHopMode": "Keep"},
            "spec.nextHopMode",
        ),
        ("BGPPeer", {"peerIP": "10.0.0.1", "sourceAddress": "Odd"}, "spec.sourceAddress"),
        ("BGPPeer", {"peerIP": "10.0.0.1", "maxRestartTime": "1"}, "spec.maxRestartTime"),
        ("BGPPeer", {"peerIP": "10.0.0.1", "reachableBy": "fd00::1"}, "spec.reachableBy"),
        ("BGPPeer", {"reachableBy": "10.0.0.1"}, "spec.reachableBy"),
        *(
            ("BGPPeer", {"peerIP": "10.0.0.1", "reachableBy": special}, "spec.reachableBy")
            for special in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255")
        ),
        ("WorkloadEndpoint", {**WEP, "node": ""}, "spec.node"),
        ("WorkloadEndpoint", {**WEP, "pod": "other"}, "metadata.name"),
        ("WorkloadEndpoint", {**WEP, "interfaceName": "cali01234567890x"}, "spec.interfaceName"),
        ("WorkloadEndpoint", {**WEP, "ipNetworks": ["10.0.0.0/24"]}, "spec.ipNetworks[0]"),
        ("WorkloadEndpoint", {**WEP, "mac": "1:2"}, "spec.mac"),
        (
            "WorkloadEndpoint",
            {**WEP, "ipNATs": [{"internalIP": "10.0.0.9", "externalIP": "1.1.1.1"}]},
            "spec.ipNATs[0].internalIP",
        ),
        (
            "WorkloadEndpoint",
            {**WEP, "ports": [{"name": "a", "protocol": "ICMP", "port": 1}]},
            "spec.ports[0].protocol",
        ),
        (
            "WorkloadEndpoint",
            {**WEP, "ports": [{"name": "", "protocol": "TCP", "port": 1}]},
            "spec.ports[0].name",
        ),
        ("Profile", {"ingress": [{"action": "Maybe"}]}, "spec.ingress[0].action"),
        (
            "Profile",
            {"egress": [{"action": "Allow", "destination": {"nets": ["10.0.0.1"]}}]},
            "spec.egress[0].destination.nets[0]",
        ),
        ("FelixConfiguration", {}, "metadata.name"),
        ("Tier", {"defaultAction": "Allow"}, "spec.defaultAction"),
        ("ClusterInformation", {}, "metadata.name"),
        ("IPAMConfiguration", {"maxBlocksPerHost": -1}, "metadata.name"),
    ],
)
def test_what_calico_refuses(kind: str, spec: dict[str, Any], field: str | None) -> None:
    name = "n1-k8s-web-eth0" if kind == "WorkloadEndpoint" else "x"
    errors = problems(resource(kind, spec, name))
    assert errors, "nothing was refused"
    if field is not None:
        assert errors[0].field == field
        assert f"{kind}({name})" in str(errors[0])
    with pytest.raises(InvalidValue):
        validate(resource(kind, spec, name))


@pytest.mark.parametrize(
    ("kind", "spec", "name"),
    [
        ("Node", {"bgp": {"ipv4Address": "10.0.0.5/24", "asNumber": "1.10"}}, "n"),
        ("Node", {"addresses": [{"address": "10.0.0.5", "type": "InternalIP"}]}, "n"),
        ("IPPool", {"cidr": "10.0.0.0/26"}, "p.q"),
        ("IPPool", {"cidr": "10.0.0.0/30", "disabled": True}, "p"),
        ("IPPool", {"cidr": "fd00::/64", "vxlanMode": "CrossSubnet"}, "p"),
        ("IPPool", {"cidr": "10.0.0.0/24", "allowedUses": ["LoadBalancer"]}, "p"),
        ("BGPConfiguration", {"asNumber": 64512, "logSeverityScreen": "info"}, "default"),
        ("BGPConfiguration", {"listenPort": 1790}, "node.n1"),
        (
            "BGPConfiguration",
            {
                "communities": [{"name": "a", "value": "1:2:3"}],
                "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["a", "1:2"]}],
            },
            "default",
        ),
        ("BGPPeer", {"peerIP": "10.99.1.254", "asNumber": 64500, "node": "node1"}, "tor"),
        ("BGPPeer", {"peerIP": "[fd00::1]:1790", "asNumber": 1, "maxRestartTime": "90s"}, "t"),
        ("BGPPeer", {"peerSelector": "has(rr)", "nodeSelector": "!has(rr)"}, "t"),
        ("WorkloadEndpoint", WEP, "n1-k8s-web-eth0"),
        ("FelixConfiguration", {"maxIpsetSize": 1}, "node.n1"),
        ("FelixConfiguration", {"nodeSelector": "has(a)"}, "some"),
        ("Tier", {"order": 1_000_000, "defaultAction": "Deny"}, "default"),
        ("IPAMConfiguration", {"strictAffinity": True}, "default"),
    ],
)
def test_what_calico_takes(kind: str, spec: dict[str, Any], name: str) -> None:
    assert [str(one) for one in problems(resource(kind, spec, name))] == []


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": ""}, "metadata.name"),
        ({"name": "a" * 254}, "metadata.name"),
        ({"labels": {"a b": "x"}}, "metadata.labels[a b]"),
        ({"labels": {"a": "x" * 64}}, "metadata.labels[a]"),
        ({"labels": {"A.B/c": "x"}}, "metadata.labels[A.B/c]"),
        ({"annotations": {"a": "x" * 262144}}, "metadata.annotations"),
    ],
)
def test_metadata_rules(metadata: dict[str, Any], field: str) -> None:
    tree = {"kind": "Node", "metadata": {"name": "n", **metadata}, "spec": {}}
    assert problems(codec.resource_from_tree(tree))[0].field == field


def test_all_problems_are_found_at_once() -> None:
    errors = problems(resource("BGPPeer", {"peerIP": "x", "nodeSelector": "(", "ttlSecurity": 256}))
    assert {one.field for one in errors} == {
        "spec.peerIP",
        "spec.nodeSelector",
        "spec.ttlSecurity",
    }


def test_defaults_are_what_v3_32_stores_and_change_nothing_twice() -> None:
    pool = apply_defaults(resource("IPPool", {"cidr": "10.65.0.0/16"}))
    assert codec.encode_value(ResourceKey("IPPool", "x"), pool).endswith(
        b'"spec":{"cidr":"10.65.0.0/16","vxlanMode":"Never","ipipMode":"Never","blockSize":26,'
        b'"nodeSelector":"all()","allowedUses":["Workload","Tunnel"],"assignmentMode":"Automatic"}}'
    )
    wide = apply_defaults(resource("IPPool", {"cidr": "FD00:0::/64"}))
    assert (wide.spec.cidr, wide.spec.blockSize) == ("fd00::/64", 122)
    for broken in ("nonsense", "10.65.3.4/16", "10.65.0.0/255.255.0.0", "10.65.3.4"):
        pool = resource("IPPool", {"cidr": broken})
        assert apply_defaults(pool) == pool
    for kind in KINDS:
        spec = {"cidr": "10.0.0.0/16"} if kind == "IPPool" else {}
        once = apply_defaults(resource(kind, spec, "default"))
        assert apply_defaults(once) == once
    endpoint = apply_defaults(resource("WorkloadEndpoint", WEP, ""))
    assert endpoint.metadata.name == "n1-k8s-web-eth0"
    assert endpoint.metadata.labels == {
        "projectcalico.org/namespace": "default",
        "projectcalico.org/orchestrator": "k8s",
    }


def pool(name: str, cidr: str, **spec: Any) -> IPPool:
    return IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(cidr=cidr, **spec))


def test_rules_between_pools() -> None:
    first, own = pool("a", "10.0.0.0/16"), ("a", ip_network("10.0.0.0/16"))
    check_create(first, [("c", ip_network("10.1.0.0/16")), ("d", ip_network("fd00::/64")), own])
    with pytest.raises(InvalidValue, match=r"overlaps IPPool\(b\)"):
        check_create(first, [("b", ip_network("10.0.128.0/20"))])
    blocks = [ip_network("10.0.0.0/26"), ip_network("10.9.0.0/28"), ip_network("fd00::/122")]
    check_create(first, [], blocks)
    with pytest.raises(InvalidValue) as problem:
        check_create(pool("a", "10.0.0.0/16", blockSize=28), [], blocks)
    assert problem.value.field == "spec.blockSize"


def test_what_is_fixed_in_a_pool() -> None:
    old = pool("a", "10.0.0.0/16", blockSize=26, allowedUses=["LoadBalancer"])
    check_update(old, pool("a", "10.0.0.7/16", allowedUses=["LoadBalancer"], disabled=True))
    for new, field in (
        (pool("a", "10.0.0.0/17"), "spec.cidr"),
        (pool("a", "10.0.0.0/16", blockSize=28), "spec.blockSize"),
        (pool("a", "10.0.0.0/16", allowedUses=["Workload"]), "spec.allowedUses"),
    ):
        with pytest.raises(InvalidValue) as problem:
            check_update(old, new)
        assert problem.value.field == field


def test_peer_addresses() -> None:
    assert peer_address("10.0.0.1") == ("10.0.0.1", 0)
    assert peer_address("fe80::1%eth0") is None
    assert peer_address("10.0.0.1:1790") == ("10.0.0.1", 1790)
    assert peer_address("fd00::1") == ("fd00::1", 0)
    assert peer_address("[fd00::1]:1790") == ("fd00::1", 1790)
    assert peer_address("host:1") is None
