"""Objects of the Kubernetes API as ours: names, metadata, pods. The store: tests/apiserver."""

from __future__ import annotations

import copy
import hashlib
import json
import uuid
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.conversion.pods import is_endpoint, workload
from libcalico.datastore.interface import Put, Selection
from libcalico.datastore.kubernetes.decode import entry_of, selected
from libcalico.datastore.kubernetes.ipam_names import affinity_labels, affinity_name, cidr_name
from libcalico.datastore.kubernetes.metadata import PACKED, packed, shown_uid, unpacked
from libcalico.datastore.kubernetes.nodes import Nodes
from libcalico.datastore.kubernetes.pods import Pods
from libcalico.datastore.kubernetes.resources import CustomResource
from libcalico.datastore.kubernetes.table import Table
from libcalico.model.keys import ResourceKey

TEXTS = st.dictionaries(st.text("abc/.-", min_size=1), st.text(), max_size=3)


@given(st.uuids())
def test_a_uid_is_shown_as_another_and_back(uid: uuid.UUID) -> None:
    shown = shown_uid(str(uid))
    assert shown_uid(shown) == str(uid)
    assert uuid.UUID(shown).bytes[6] == uid.bytes[6]
    assert shown_uid("not one") == "not one"


def test_bits_of_a_uid_are_reversed_in_each_byte() -> None:
    assert shown_uid("01000000-0000-4000-8000-0000000000f0").endswith("00000f")
    assert shown_uid("01000000-0000-4000-8000-0000000000f0").startswith("80000000-0000-4000-80")


@given(TEXTS, TEXTS)
def test_metadata_comes_back(labels: dict[str, str], annotations: dict[str, str]) -> None:
    before = {"name": "x", "labels": labels, "annotations": annotations}
    after = unpacked("IPPool", packed("IPPool", before))
    assert after.get("labels", {}) == labels
    assert after.get("annotations", {}) == annotations


def test_labels_of_the_project_stand_natively_as_well() -> None:
    native = packed("Tier", {"name": "x", "labels": {"projectcalico.org/tier": "t", "a": "b"}})
    assert native["labels"] == {"projectcalico.org/tier": "t"}
    metadata = unpacked("Tier", {**native, "labels": {"c": "d"}, "creationTimestamp": "T"})
    assert metadata["labels"] == {"a": "b", "c": "d", "projectcalico.org/tier": "t"}
    assert metadata["creationTimestamp"] == "T"


def test_labels_and_annotations_of_others_stay_with_the_custom_resource() -> None:
    pools = Table().of_family("IPPool")[0]
    assert isinstance(pools, CustomResource)
    tree = {
        "metadata": {
            "name": "p",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "muslin"},
        },
        "spec": {"cidr": "10.0.0.0/16"},
    }
    key = ResourceKey("IPPool", "p")
    entry, reason = entry_of(pools, key, tree)
    assert entry is not None, reason
    assert entry.value.metadata.labels == {"app.kubernetes.io/managed-by": "Helm"}
    meta = msgspec.structs.replace(
        entry.value.metadata, labels={**entry.value.metadata.labels, "a": "b"}
    )
    put = Put(key, msgspec.structs.replace(entry.value, metadata=meta), entry.revision, entry)
    body = pools.body(put, tree)
    assert body["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Helm"}
    assert body["metadata"]["annotations"]["meta.helm.sh/release-name"] == "muslin"
    assert json.loads(body["metadata"]["annotations"][PACKED])["labels"] == {"a": "b"}
    # What they change counts, and what they take away is gone.
    body["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "another"
    del body["metadata"]["annotations"]["meta.helm.sh/release-name"]
    after, _ = entry_of(pools, key, body)
    assert after is not None
    assert after.value.metadata.labels == {"a": "b", "app.kubernetes.io/managed-by": "another"}
    assert not after.value.metadata.annotations


def test_owners_are_translated() -> None:
    owner = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "Tier",
        "name": "t",
        "uid": str(uuid.uuid4()),
    }
    native = packed("Tier", {"name": "x", "ownerReferences": [owner]})
    assert native["ownerReferences"][0]["apiVersion"] == "crd.projectcalico.org/v1"
    assert unpacked("Tier", native)["ownerReferences"] == [owner]


def test_names_of_ipam_objects() -> None:
    assert cidr_name(ip_network("10.244.0.0/26")) == "10-244-0-0-26"
    assert cidr_name(ip_network("fd00:1::/122")) == "fd00-1---122"
    assert affinity_name("n1", ip_network("10.244.0.0/26")) == "n1-10-244-0-0-26"
    long = affinity_name("n" * 250, ip_network("10.244.0.0/26"))
    assert len(long) <= 253
    assert long != affinity_name("n" * 250, ip_network("10.244.0.64/26"))
    digest = hashlib.sha256(("n" * 240 + "+10-244-0-0-26").encode()).hexdigest()[:11]
    longest = affinity_name("n" * 240, ip_network("10.244.0.0/26"))
    assert longest == f"{'n' * 226}-10-244-0-0-26-{digest}"
    assert len(affinity_name("n" * 238, ip_network("10.244.0.0/26"))) == 252
    labels = affinity_labels("n1", "host", 4)
    assert len(labels["projectcalico.org/hostname-hash"]) == 52


def pod(**more: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "metadata": {"name": "web-0", "namespace": "prod", "labels": {"app": "web"}},
        "spec": {"nodeName": "n-1", "serviceAccountName": "sa", "containers": [{}]},
        "status": {},
    }
    for part, members in more.items():
        document[part] = {**document[part], **members}
    return document


@pytest.mark.parametrize(
    ("changed", "addresses"),
    [
        (
            {"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}},
            ["10.0.0.1/32", "fd00::1/128"],
        ),
        ({"status": {"podIP": "10.0.0.1"}}, ["10.0.0.1/32"]),
        (
            {"metadata": {"annotations": {"cni.projectcalico.org/podIP": "10.0.0.2/32"}}},
            ["10.0.0.2/32"],
        ),
        (
            {
                "metadata": {"annotations": {"cni.projectcalico.org/podIPs": "10.0.0.2/32"}},
                "status": {"podIP": "10.0.0.1"},
            },
            ["10.0.0.1/32"],
        ),
        ({"status": {"podIP": "10.0.0.1", "phase": "Succeeded"}}, []),
        (
            {
                "metadata": {
                    "deletionTimestamp": "T",
                    "annotations": {"cni.projectcalico.org/podIP": ""},
                },
                "status": {"podIP": "10.0.0.1"},
            },
            [],
        ),
    ],
)
def test_addresses_of_a_pod(changed: dict[str, Any], addresses: list[str]) -> None:
    assert workload(pod(**changed), {}).spec.ipNetworks == addresses


def test_who_is_an_endpoint() -> None:
    assert is_endpoint(pod())
    assert not is_endpoint(pod(spec={"nodeName": ""}))
    assert not is_endpoint(pod(spec={"hostNetwork": True}))
    key = Pods().key(pod())
    assert key == ResourceKey("WorkloadEndpoint", "n--1-k8s-web--0-eth0", "prod")
    assert Pods().place(ResourceKey("WorkloadEndpoint", "n--1-k8s-web--0-net1", "prod")) is None


@pytest.mark.parametrize(
    ("prefix", "selector"),
    [
        ("n--1-k8s-web--0-", "metadata.name=web-0"),
        ("n--1-", "spec.nodeName=n-1"),
        ("n--1-k8s-", "spec.nodeName=n-1"),
        ("n--1", "spec.nodeName!="),
        ("", "spec.nodeName!="),
    ],
)
def test_what_a_prefix_asks_for(prefix: str, selector: str | None) -> None:
    asked = Pods().asked(Selection("WorkloadEndpoint", "prod", name_prefix=prefix))
    assert asked.parameters.get("fieldSelector") == selector


def test_one_node_is_asked_for_alone() -> None:
    asked = Nodes().asked(Selection("Node", host="n-1"))
    assert asked.parameters == {"fieldSelector": "metadata.name=n-1"}
    assert Nodes().asked(Selection("Node")).parameters == {}
    assert selected(Selection("Node", host="n-1"), ResourceKey("Node", "n-1"))
    assert not selected(Selection("Node", host="n-1"), ResourceKey("Node", "n-12"))


def test_the_tunnel_address_follows_from_the_pod_network() -> None:
    tree = {"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.244.3.0/24"]}}
    raw = Nodes(pod_cidr=True).raw(ResourceKey("Node", "n1"), tree)
    assert raw is not None
    assert json.loads(raw)["spec"]["bgp"]["ipv4IPIPTunnelAddr"] == "10.244.3.1"


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("ASNumber", "abc"),
        ("ASNumber", "4294967296"),
        ("ASNumber", "²"),
        ("Interfaces", "[1]"),
        ("Interfaces", '[{"name": 1}]'),
        ("Interfaces", "{}"),
        ("Interfaces", "[" * 100_000),
        ("labels", '{"a": 1, "b": "c"}'),
        ("labels", "[]"),
        ("annotations", '{"a": {}}'),
        ("annotations", '{"a"'),
        ("IPv4Address", "fd00::1/64"),
        ("IPv6Address", "10.0.0.1/24"),
        ("IPv4IPIPTunnelAddr", "10.0.0"),
        ("IPv6VXLANTunnelAddr", "none"),
        ("VXLANTunnelMACAddr", "66:00"),
    ],
)
def test_a_malformed_annotation_takes_no_node_away(
    annotation: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    key, own = ResourceKey("Node", "n1"), {"projectcalico.org/IPv4VXLANTunnelAddr": "10.65.0.1"}
    good = {"metadata": {"name": "n1", "annotations": own, "labels": {"role": "a"}}}
    bad = copy.deepcopy(good)
    bad["metadata"]["annotations"][f"projectcalico.org/{annotation}"] = text  # type: ignore[index]
    nodes = Nodes()
    entry, reason = entry_of(nodes, key, bad)
    assert (entry is not None, reason) == (True, "")
    assert entry is not None
    sound, _ = entry_of(nodes, key, good)
    assert sound is not None
    expected = sound.value
    if '"c"' in text:
        labels = {"b": "c", "role": "a"}
        meta = msgspec.structs.replace(expected.metadata, labels=labels)
        expected = msgspec.structs.replace(expected, metadata=meta)
    assert entry.value == expected
    entry_of(nodes, key, bad)
    entry_of(nodes, key, bad)
    assert [vars(one)["annotation"] for one in caplog.records] == [
        f"projectcalico.org/{annotation}"
    ] * 2


def test_annotations_of_a_node_that_are_sound() -> None:
    annotations = {
        "ASNumber": "1.10",
        "Interfaces": '[{"name": "eth0", "addresses": ["10.0.0.1"]}]',
        "labels": '{"a": "b"}',
        "annotations": '{"c": "d"}',
        "IPv4Address": "10.0.0.1/24",
        "IPv6Address": "fd00::1",
        "VXLANTunnelMACAddrV6": "66:00:00:00:00:01",
    }
    prefixed = {f"projectcalico.org/{name}": text for name, text in annotations.items()}
    entry, reason = entry_of(
        Nodes(), ResourceKey("Node", "n1"), {"metadata": {"name": "n1", "annotations": prefixed}}
    )
    assert entry is not None
    assert reason == ""
    spec, meta = entry.value.spec, entry.value.metadata
    assert (spec.bgp.asNumber, spec.bgp.ipv4Address) == (65546, "10.0.0.1/24")
    assert (spec.bgp.ipv6Address, spec.vxlanTunnelMACAddrV6) == ("fd00::1", "66:00:00:00:00:01")
    assert [one.name for one in spec.interfaces] == ["eth0"]
    assert (meta.labels, meta.annotations["c"]) == ({"a": "b"}, "d")
