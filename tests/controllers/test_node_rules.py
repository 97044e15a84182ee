"""Labels and host endpoints of a node, as rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.nodes import host_endpoints, node_labels
from controllers.nodes.nodes import endpoint_change
from libcalico.datastore.interface import Delete, Entry, Put
from libcalico.errors import InvalidValue
from libcalico.model import HostEndpoint, HostEndpointSpec, Metadata, Node, NodeBGPSpec, NodeSpec
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.controllers import AutoHostEndpointConfig, Template
from libcalico.model.resources.node import NodeAddress, NodeInterface

labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)


@given(labels, st.lists(labels, min_size=1, max_size=4))
def test_labels_come_and_go_with_kubernetes_and_an_operators_stay(
    own: dict[str, str], history: list[dict[str, str]]
) -> None:
    node = Node(metadata=Metadata(name="n", labels={f"own-{key}": own[key] for key in own}))
    for now in history:
        node = node_labels.synced(node, now) or node
        theirs = {k: v for k, v in node.metadata.labels.items() if k.startswith("own-")}
        assert theirs == {f"own-{key}": own[key] for key in own}
        assert {k: v for k, v in node.metadata.labels.items() if k not in theirs} == now
        assert node_labels.synced(node, now) is None, "written once"


def test_a_record_that_nobody_can_read_takes_no_label_away() -> None:
    metadata = Metadata(name="n", labels={"a": "x"}, annotations={node_labels.COPIED: "{"})
    fresh = node_labels.synced(Node(metadata=metadata), {"b": "y"})
    assert fresh is not None
    assert fresh.metadata.labels == {"a": "x", "b": "y"}


NODE = Node(
    metadata=Metadata(name="n1", labels={"rack": "1"}),
    spec=NodeSpec(
        bgp=NodeBGPSpec(ipv4Address="10.0.0.1/24", ipv4IPIPTunnelAddr="10.244.0.1"),
        ipv4VXLANTunnelAddr="10.244.0.2",
        addresses=[
            NodeAddress("10.0.0.1", "InternalIP"),
            NodeAddress("10.0.1.1", "InternalIP"),
            NodeAddress("198.51.100.1", "ExternalIP"),
        ],
        interfaces=[NodeInterface("eth0", ["10.0.0.1"]), NodeInterface("eth1", ["10.0.2.1"])],
    ),
)
MARK = {host_endpoints.CREATED_BY: host_endpoints.CREATOR}


def test_the_default_host_endpoint_names_every_address_once_and_lets_everything_pass() -> None:
    found = host_endpoints.desired(NODE, AutoHostEndpointConfig(autoCreate="Enabled"))
    (endpoint,) = found.values()
    assert endpoint.metadata.name == "n1-auto-hep"
    assert endpoint.metadata.labels == {"rack": "1", **MARK}
    assert endpoint.spec == HostEndpointSpec(
        node="n1",
        interfaceName="*",
        expectedIPs=["10.0.0.1", "10.244.0.1", "10.244.0.2", "10.0.1.1", "10.0.2.1"],
        profiles=["projectcalico-default-allow"],
    )


@pytest.mark.parametrize(
    "config", [None, AutoHostEndpointConfig(), AutoHostEndpointConfig("Disabled")]
)
def test_without_being_switched_on_there_are_none(config: AutoHostEndpointConfig | None) -> None:
    assert host_endpoints.desired(NODE, config) == {}


def test_templates_choose_nodes_addresses_and_interfaces() -> None:
    config = AutoHostEndpointConfig(
        autoCreate="Enabled",
        createDefaultHostEndpoint="Disabled",
        templates=[
            Template(generateName="lan", interfaceCIDRs=["10.0.0.0/23"], labels={"net": "lan"}),
            Template(generateName="if", interfacePattern="^eth", annotations={"by": "rule"}),
            Template(generateName="no", interfaceCIDRs=["192.0.2.0/24"]),
            Template(generateName="r2", interfacePattern=".*", nodeSelector="rack == '2'"),
        ],
    )
    found = host_endpoints.desired(NODE, config)
    assert sorted(found) == ["n1-if-eth0-auto-hep", "n1-if-eth1-auto-hep", "n1-lan-auto-hep"]
    lan = found["n1-lan-auto-hep"]
    assert (lan.spec.interfaceName, lan.spec.expectedIPs) == ("", ["10.0.0.1", "10.0.1.1"])
    assert lan.metadata.labels["net"] == "lan"
    eth1 = found["n1-if-eth1-auto-hep"]
    assert (eth1.spec.interfaceName, eth1.spec.expectedIPs) == ("eth1", ["10.0.2.1"])
    assert eth1.metadata.annotations == {"by": "rule"}


def test_what_a_node_names_and_is_no_address_is_left_out() -> None:
    spec = NodeSpec(
        addresses=[
            NodeAddress("ip-10-0-0-1.internal", "InternalIP"),
            NodeAddress("10.0.0.1", "InternalIP"),
        ],
        interfaces=[NodeInterface("eth0", ["10.0.2.1", "none"])],
    )
    node = Node(metadata=Metadata(name="n1"), spec=spec)
    templates = [Template("lan", ["10.0.0.0/8"]), Template("if", [], "eth0")]
    config = AutoHostEndpointConfig("Enabled", "Enabled", templates)
    found = host_endpoints.desired(node, config)
    assert {name: one.spec.expectedIPs for name, one in found.items()} == {
        "n1-auto-hep": ["10.0.0.1", "10.0.2.1"],
        "n1-lan-auto-hep": ["10.0.0.1", "10.0.2.1"],
        "n1-if-eth0-auto-hep": ["10.0.2.1"],
    }


def test_a_network_of_a_template_that_is_none_is_named() -> None:
    bad = AutoHostEndpointConfig("Enabled", "Disabled", [Template("x", ["10.0.0.0/99"])])
    with pytest.raises(InvalidValue, match=r"interfaceCIDRs.*10\.0\.0\.0/99"):
        host_endpoints.desired(NODE, bad)


def test_a_pattern_that_is_none_is_named_and_a_long_name_is_shortened() -> None:
    bad = AutoHostEndpointConfig("Enabled", "Disabled", [Template("x", [], "(?=a)")])
    with pytest.raises(InvalidValue, match="interfacePattern"):
        host_endpoints.desired(NODE, bad)
    long = AutoHostEndpointConfig("Enabled", "Disabled", [Template("x" * 250, ["0.0.0.0/0"])])
    (name,) = host_endpoints.desired(NODE, long)
    assert name.endswith("-auto-hep")
    assert len(name) < 60


def test_only_what_bears_the_mark_is_changed() -> None:
    key = ResourceKey("HostEndpoint", "n1-auto-hep")
    (want,) = host_endpoints.desired(NODE, AutoHostEndpointConfig("Enabled")).values()
    theirs = HostEndpoint(metadata=Metadata(name=key.name), spec=HostEndpointSpec(node="n1"))
    assert endpoint_change(key, want, Entry(key, theirs, 3, b"")) is None, "NOD-2"
    assert endpoint_change(key, None, Entry(key, theirs, 3, b"")) is None, "NOD-2"
    ours = HostEndpoint(metadata=Metadata(name=key.name, labels=MARK), spec=HostEndpointSpec("n1"))
    change = endpoint_change(key, want, Entry(key, ours, 3, b""))
    assert isinstance(change, Put)
    assert change.value.spec == want.spec
    assert endpoint_change(key, want, Entry(key, change.value, 4, b"")) is None
    assert endpoint_change(key, None, Entry(key, ours, 3, b"")) == Delete(key, 3)
