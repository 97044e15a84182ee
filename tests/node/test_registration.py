"""The Node resource: what changes, what stays, whom it must not collide with."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface

import pytest
from msgspec.structs import replace as changed

from libcalico.errors import MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.resources.node import Node, NodeBGPSpec, NodeInterface, NodeSpec, OrchRef
from node.identity import registration
from node.identity.autodetect import Interface
from node.settings.environment import settings

ETH0 = Interface("eth0", (ip_interface("10.0.0.5/24"), ip_interface("fd00::5/64")))
V4, V6 = ip_interface("10.0.0.5/24"), ip_interface("fd00::5/64")


def node(name: str, **bgp: str) -> Node:
    return Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=NodeBGPSpec(**bgp)))  # type: ignore[arg-type]


def test_a_new_node_has_its_real_mask_and_its_interfaces() -> None:
    wanted = settings({"IP": "autodetect", "AS": "64513", "CALICO_K8S_NODE_REF": "k1"})
    made = registration.desired(None, "n1", wanted, V4, None, [ETH0])
    assert made.spec.bgp == NodeBGPSpec(asNumber=64513, ipv4Address="10.0.0.5/24")
    assert made.spec.interfaces == [NodeInterface(name="eth0", addresses=["10.0.0.5"])]
    assert made.spec.orchRefs == [OrchRef(nodeName="k1", orchestrator="k8s")]


def test_nothing_new_is_equal_to_what_is_stored() -> None:
    wanted = settings({"IP": "autodetect"})
    stored = registration.desired(None, "n1", wanted, V4, None, [ETH0])
    assert registration.desired(stored, "n1", wanted, V4, None, [ETH0]) == stored


def test_what_others_wrote_stays() -> None:
    stored = node("n1", ipv4Address="10.0.0.4/24", ipv4IPIPTunnelAddr="10.65.0.1")
    stored = changed(stored, metadata=Metadata(name="n1", labels={"zone": "a"}))
    made = registration.desired(stored, "n1", settings({}), V4, V6, [])
    assert made.metadata.labels == {"zone": "a"}
    assert made.spec.bgp == NodeBGPSpec(
        ipv4Address="10.0.0.5/24", ipv6Address="fd00::5/64", ipv4IPIPTunnelAddr="10.65.0.1"
    )


def test_without_bgp_nothing_is_written_about_it() -> None:
    wanted = settings({"CALICO_NETWORKING_BACKEND": "none", "AS": "64513"})
    made = registration.desired(None, "n1", wanted, None, None, [ETH0])
    assert made.spec == NodeSpec()
    assert not registration.has_address(made)


def test_an_address_of_another_node_is_refused_by_both_names() -> None:
    mine, other = node("n1", ipv4Address="10.0.0.5/24"), node("n2", ipv4Address="10.0.0.5/16")
    with pytest.raises(MuslinError, match=r"Node\(n1\): the address 10\.0\.0\.5 .* Node\(n2\)"):
        registration.refuse_duplicates("n1", mine, [mine, other])
    registration.refuse_duplicates("n1", mine, [mine, node("n3", ipv4Address="10.0.0.6/24")])


def test_an_address_that_cannot_be_read_counts_as_none() -> None:
    assert registration.stored_address(node("n1", ipv4Address="ten"), 4) is None
    assert registration.stored_address(node("n1", ipv4Address="10.0.0.5/24"), 4) == V4


def test_asn_of_the_resource_stays_when_the_environment_is_silent() -> None:
    stored = changed(
        node("n1"), spec=NodeSpec(bgp=NodeBGPSpec(asNumber=65001, ipv4Address="10.0.0.5/24"))
    )
    wanted = replace(settings({}), as_number=None)
    assert registration.desired(stored, "n1", wanted, None, None, []) == stored
