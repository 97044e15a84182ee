"""The stream of an export: Calico's layout, nodes under their Kubernetes names, read back whole."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from calicoctl import datastream, exporting
from ipam.records import blocks
from libcalico.datastore.interface import Entry, Listing
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import BlockAffinity, Handle, IPAMConfig
from libcalico.model.codec import decode_value, resource_from_tree
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPAMConfigKey, Key, ResourceKey
from tests.calicoctl.conftest import Ctl

CIDR = ip_network("10.65.0.0/30")
CLUSTER: dict[str, Any] = {
    "kind": "ClusterInformation",
    "apiVersion": "projectcalico.org/v3",
    "metadata": {"name": "default", "resourceVersion": "7"},
    "spec": {"clusterGUID": "abc", "datastoreReady": False},
}


def resource(kind: str, name: str, namespace: str = "", **spec: Any) -> Entry:
    metadata = {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if namespace:
        metadata["namespace"] = namespace
    value = resource_from_tree(
        {
            "kind": kind,
            "apiVersion": "projectcalico.org/v3",
            "metadata": metadata,
            "spec": spec,
        }
    )
    return Entry(ResourceKey(kind, name, namespace), value, 5, b"{}")


def node(name: str, kubernetes: str) -> Entry:
    refs = [{"nodeName": kubernetes, "orchestrator": "k8s"}] if kubernetes else []
    return resource("Node", name, orchRefs=refs)


def listings(*entries: Entry) -> dict[str, Listing]:
    return {
        kind: Listing([e for e in entries if e.value.kind == kind], 9, [])
        for kind in datastream.KINDS_IN_ORDER
    }


def records() -> list[Entry]:
    block = blocks.create(CIDR, "host:etcd1", "2026-01-01T00:00:00Z", 5)
    block, _ = blocks.assign(block, 1, "ipip-tunnel-addr-etcd1", {"node": "etcd1", "type": "x"})
    block, _ = blocks.assign(block, 1, "k8s.c1", {"node": "etcd1", "pod": "web"})
    values: list[tuple[Key, Any]] = [
        (AffinityKey("etcd1", CIDR), BlockAffinity()),
        (AffinityKey("load-balancer", CIDR, "virtual"), BlockAffinity()),
        (BlockKey(CIDR), blocks.written(block, block)),
        (HandleKey("ipip-tunnel-addr-etcd1"), Handle(block={str(CIDR): 1})),
        (HandleKey("vxlan-v6-tunnel-addr-etcd1"), Handle(block={str(CIDR): 1})),
        (HandleKey("k8s.c1"), Handle(block={str(CIDR): 1})),
        (IPAMConfigKey(), IPAMConfig(strict_affinity=True, auto_allocate_blocks=True)),
    ]
    return [Entry(key, value, 3, b"{}") for key, value in values]


def exported(*entries: Entry) -> str:
    names = exporting.node_names([e for e in entries if e.value.kind == "Node"])
    return datastream.render(
        exporting.lists(listings(*entries), names),
        CLUSTER,
        exporting.ipam_records(records(), names),
    )


def test_the_layout_is_calicos() -> None:
    text = exported(node("etcd1", "kube1"), resource("IPPool", "p", cidr="10.65.0.0/16"))
    resources, cluster, ipam = text.split("===\n")
    assert resources.startswith("apiVersion: projectcalico.org/v3\nitems:\n- apiVersion:")
    assert resources.count("---\n") == len(datastream.KINDS_IN_ORDER)
    assert resources.endswith('kind: BGPFilterList\nmetadata:\n  resourceVersion: "9"\n---\n')
    assert "creationTimestamp" not in resources
    assert "uid:" not in resources
    assert json.loads(cluster) == CLUSTER
    tree = json.loads(ipam)
    assert list(tree) == ["block_affinities", "blocks", "handles", "config"]
    assert [pair["Key"] for pair in tree["block_affinities"]] == [
        "/calico/ipam/v2/host/kube1/ipv4/block/10.65.0.0-30",
        "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.65.0.0-30",
    ]
    assert list(tree["blocks"][0]) == ["Key", "Value", "TTL"]
    value = tree["blocks"][0]["Value"]
    assert value["affinity"] == "host:kube1"
    assert [one["handle_id"] for one in value["attributes"]] == [
        "ipip-tunnel-addr-kube1",
        "k8s.c1",
    ]
    assert {one["secondary"]["node"] for one in value["attributes"]} == {"kube1"}
    assert [pair["Key"].rpartition("/")[2] for pair in tree["handles"]] == [
        "ipip-tunnel-addr-kube1",
        "vxlan-v6-tunnel-addr-kube1",
        "k8s.c1",
    ]


def test_what_names_a_node_names_it_as_kubernetes_does() -> None:
    text = exported(
        node("etcd1", "kube1"),
        resource("FelixConfiguration", "node.etcd1", defaultEndpointToHostAction="RETURN"),
        resource("BGPConfiguration", "node.etcd1"),
        resource("BGPConfiguration", "node.gone"),
        resource("BGPPeer", "tor", node="etcd1", peerIP="10.0.0.1", asNumber=64500),
        resource("HostEndpoint", "hep", node="etcd1", interfaceName="eth0"),
        resource("NetworkPolicy", "knp.default.web", "ns"),
        resource("NetworkPolicy", "own", "ns"),
    )
    stream = datastream.parse(text, "export")
    found: dict[tuple[str, str], Any] = {(d.kind, d.name): d.resource for d in stream.resources}
    assert ("Node", "kube1") in found
    assert found["BGPPeer", "tor"].spec.node == "kube1"
    assert found["HostEndpoint", "hep"].spec.node == "kube1"
    assert found["FelixConfiguration", "node.kube1"].spec.defaultEndpointToHostAction == "Return"
    assert ("BGPConfiguration", "node.kube1") in found
    assert ("BGPConfiguration", "node.gone") in found
    policies = [name for kind, name in found if kind == "NetworkPolicy"]
    assert policies == ["own"]
    assert found["NetworkPolicy", "own"].metadata.namespace == "ns"


def test_what_is_read_is_what_was_written() -> None:
    stream = datastream.parse(exported(node("n", "n")), "export")
    assert stream.cluster.spec.clusterGUID == "abc"
    names = {"n": "n"}
    expected = exporting.ipam_records(records(), names)
    assert list(stream.ipam) == list(expected)
    for key, value in expected.items():
        raw = json.dumps(datastream._pair(key, value)["Value"]).encode()
        assert stream.ipam[key] == decode_value(key, raw)


def test_a_node_without_a_name_in_kubernetes_stops_the_export() -> None:
    with pytest.raises(MuslinError, match="node etcd2 missing a 'k8s' orchestrator reference"):
        exporting.node_names([node("etcd1", "kube1"), node("etcd2", "")])
    with pytest.raises(MuslinError, match="several nodes refer to the Kubernetes node kube1"):
        exporting.node_names([node("etcd1", "kube1"), node("etcd2", "kube1")])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace("===\n", "", 1), "has 2 part"),
        (lambda text: text.replace('"clusterGUID": "abc",', '"clusterGUID": abc,'), "is no JSON"),
        (
            lambda text: text.replace('"clusterGUID":', '"clusterGUID": "x", "clusterGUID":'),
            "the key 'clusterGUID' stands twice",
        ),
        (lambda text: text.replace("ClusterInformation", "Tier"), "kind"),
        (lambda text: text.replace('"handles"', '"handls"'), "handls"),
        (lambda text: text.replace("/calico/ipam/v2/assignment", "/calico/x"), r"blocks\[0\].Key"),
        (lambda text: text.replace('"allocations": [', '"allocations": ["x", '), r"blocks\[0\]"),
    ],
)
def test_a_damaged_stream_is_refused_with_its_place(change: Any, told: str) -> None:
    text = change(exported(node("n", "n")))
    with pytest.raises((MuslinError, InvalidValue), match=told):
        datastream.parse(text, "export")


def test_an_export_that_is_no_text_is_refused_with_its_line(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATASTORE_TYPE", "kubernetes")
    export = tmp_path / "export"
    export.write_bytes(b"---\n===\n\xff\n")
    done = ctl("datastore", "migrate", "import", "-f", str(export))
    assert (done.code, done.err) == (1, f"{export}: line 3: must be text in UTF-8\n")
