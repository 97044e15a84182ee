"""Keys as a real Calico spelled them, both ways."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.etcd import keys
from libcalico.datastore.interface import Selection
from libcalico.errors import UnsupportedKind
from libcalico.model import (
    AffinityKey,
    BlockKey,
    HandleKey,
    IPAMConfigKey,
    Key,
    ResourceKey,
    codec,
)
from libcalico.model.keys import (
    FelixStatusKey,
    HostEndpointStatusKey,
    LifeSignKey,
    WorkloadStatusKey,
)
from tests.libcalico.golden_data import FOLDER, pairs

V4, V6 = ip_network("10.244.0.0/26"), ip_network("fd00:1::/122")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/w--1-k8s-x-eth0",
            ResourceKey("WorkloadEndpoint", "w--1-k8s-x-eth0", "default"),
        ),
        ("/calico/resources/v3/projectcalico.org/nodes/n1", ResourceKey("Node", "n1")),
        ("/calico/ipam/v2/assignment/ipv4/block/10.244.0.0-26", BlockKey(V4)),
        ("/calico/ipam/v2/assignment/ipv6/block/fd00:1::-122", BlockKey(V6)),
        ("/calico/ipam/v2/host/n-1/ipv4/block/10.244.0.0-26", AffinityKey("n-1", V4)),
        (
            "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.244.0.0-26",
            AffinityKey("load-balancer", V4, "virtual"),
        ),
        ("/calico/ipam/v2/handle/net1.0123", HandleKey("net1.0123")),
        ("/calico/ipam/v2/config", IPAMConfigKey()),
    ],
)
def test_each_key_has_one_spelling(path: str, key: Key) -> None:
    assert keys.key_of_path(path) == key
    assert keys.path_of(key) == path


def test_all_keys_of_a_real_calico_are_understood_or_left() -> None:
    for path, _ in pairs():
        key = keys.key_of_path(path)
        assert key is not None
        assert keys.path_of(key) == path
    for path in (FOLDER / "resource-keys.txt").read_text().split():
        key = keys.key_of_path(path)
        assert key is None or keys.path_of(key) == path


def test_our_own_life_sign_lies_where_a_node_may_write() -> None:
    path = "/calico/felix/v2/no-region/host/node1/machine"
    assert keys.path_of(LifeSignKey("node1")) == path
    assert keys.key_of_path(path) == LifeSignKey("node1")


def test_status_keys_are_spelled_as_calico_does() -> None:
    found = {keys.key_of_path(path) for path, _ in pairs("etcd-felix-status.txt")}
    assert found == {
        HostEndpointStatusKey("node1", "hep1"),
        FelixStatusKey("node1", last=True),
        WorkloadStatusKey("node1", "k8s", "default/web-1", "eth0"),
    }
    for path, raw in pairs("etcd-felix-status.txt"):
        key = keys.key_of_path(path)
        assert key is not None
        assert keys.path_of(key) == path
        assert codec.encode_value(key, codec.decode_value(key, raw)) == raw
    assert (
        keys.path_of(FelixStatusKey("n", "region-a")) == "/calico/felix/v2/region-a/host/n/status"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/calico/resources/v3/projectcalico.org/nodes/",
        "/calico/resources/v3/projectcalico.org/nodes/a/b",
        "/calico/resources/v3/projectcalico.org/workloadendpoints/x",
        "/calico/resources/v3/projectcalico.org/unheardof/x",
        "/calico/ipam/v2/host/n1",
        "/calico/ipam/v2/host/n1/ipv4/block/x-26",
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0",
        "/calico/ipam/v2/handle/",
        "/calico/felix/v1/host/n1/config/x",
        "/calico/felix/v2/no-region/host//status",
        "/calico/felix/v2/no-region/host/n1/workload/k8s//endpoint/eth0",
        "/registry/pods/x",
        "",
    ],
)
def test_what_is_no_key_of_ours_is_none(path: str) -> None:
    assert keys.key_of_path(path) is None


def test_percent_escapes_are_read() -> None:
    key = keys.key_of_path("/calico/resources/v3/projectcalico.org/nodes/a%2fb%252f")
    assert key == ResourceKey("Node", "a/b%2f")
    assert keys.unescape(keys.escape("a/%2f%25/")) == "a/%2f%25/"


def test_ranges_hold_exactly_their_keys() -> None:
    def holds(selection: Selection, key: Key) -> bool:
        first, end = keys.range_of(selection)
        return first <= keys.path_of(key).encode() < end and keys.selects(selection, key)

    assert holds(Selection("BlockAffinity", host="n1"), AffinityKey("n1", V4))
    assert not holds(Selection("BlockAffinity", host="n1"), AffinityKey("n10", V4))
    assert holds(Selection("BlockAffinity"), AffinityKey("load-balancer", V4, "virtual"))
    assert not holds(Selection("BlockAffinity"), HandleKey("h"))
    assert holds(Selection("Node", name_prefix="a"), ResourceKey("Node", "ab"))
    assert not holds(Selection("Node", name_prefix="b"), ResourceKey("Node", "ab"))
    assert holds(Selection("Node", host="ab"), ResourceKey("Node", "ab"))
    for other in ("a", "ab-1", "b"):
        assert not holds(Selection("Node", host="ab"), ResourceKey("Node", other))
    endpoint = ResourceKey("WorkloadEndpoint", "w", "ns")
    assert holds(Selection("WorkloadEndpoint", namespace="ns"), endpoint)
    assert not holds(Selection("WorkloadEndpoint", namespace="n"), endpoint)
    assert holds(Selection("IPAMConfig"), IPAMConfigKey())
    alive, pod = FelixStatusKey("n1"), WorkloadStatusKey("n1", "k8s", "a/b", "eth0")
    for host, expected in (("", True), ("n1", True), ("n2", False)):
        assert holds(Selection("FelixStatus", host=host), alive) == expected
        assert holds(Selection("WorkloadStatus", host=host), pod) == expected
        assert not holds(Selection("FelixStatus", host=host), pod)
    assert holds(Selection("HostEndpointStatus", host="n1"), HostEndpointStatusKey("n1", "h"))
    assert not holds(Selection("HostEndpointStatus", host="n"), HostEndpointStatusKey("n1", "h"))
    with pytest.raises(UnsupportedKind):
        keys.range_of(Selection("Bogus"))


@given(st.text(max_size=60))
def test_any_text_is_a_key_or_none(tail: str) -> None:
    for root in (keys.RESOURCES, keys.BLOCKS, keys.HOSTS, keys.HANDLES, ""):
        keys.key_of_path(root + tail)
