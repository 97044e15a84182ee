"""Documents of the first generation: the issue's own, byte for byte, and every kind."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from libcalico import apiconfig
from libcalico.legacy import convert_document, is_legacy, names
from libcalico.legacy.apiconfig import NOTICE, as_v3
from libcalico.legacy.pools import merged
from libcalico.model import IPPool, IPPoolSpec, Metadata
from libcalico.model.codec import resource_from_tree
from libcalico.model.defaults import apply_defaults
from libcalico.model.validation.validate import problems

POOL = """\
apiVersion: v1
kind: ipPool
metadata:
  cidr: 192.168.0.0/16
spec:
  ipip:
    enabled: true
    mode: always
  nat-outgoing: true
"""
CONFIG = """\
apiVersion: v1
kind: calicoApiConfig
metadata:
spec:
  datastoreType: "etcdv2"
  etcdEndpoints: "https://192.0.2.1:2379,https://192.0.2.2:2379,https://192.0.2.3:2379"
  etcdKeyFile: /etc/calico/calico.key
  etcdCertFile: /etc/calico/calico.crt
  etcdCACertFile: /etc/calico/ca.crt
"""


def converted(text: str) -> Any:
    """The v3 tree of a v1 text, which must be valid."""
    (tree,) = convert_document(yaml.safe_load(text))
    resource = apply_defaults(resource_from_tree(tree, strict=True))
    assert problems(resource) == []
    return tree


def test_the_documents_are_those_of_the_issue() -> None:
    # A changed blank would be another document than the one that operators have.
    assert (
        hashlib.sha256(POOL.encode()).hexdigest()
        == "969c95ae7fa4b18986db4218bc724bd2b3151c523e09dd1cdb84af43ee2ad2ff"
    )
    assert (
        hashlib.sha256(CONFIG.encode()).hexdigest()
        == "6ebf04a19bc6333dd45789dc726a954b4e87ce46a080598a460a3e1c1aff978a"
    )


@pytest.mark.promise("M-167")
@pytest.mark.promise("M-176")
def test_the_issues_pool() -> None:
    assert is_legacy(yaml.safe_load(POOL))
    assert converted(POOL) == {
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPPool",
        "metadata": {"name": "192-168-0-0-16"},
        "spec": {
            "cidr": "192.168.0.0/16",
            "ipipMode": "Always",
            "natOutgoing": True,
            "disabled": False,
        },
    }


@pytest.mark.promise("M-176")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{ipip: {enabled: true, mode: always}}", ("Always", False, False)),
        ("{ipip: {enabled: true}}", ("Always", False, False)),
        ("{ipip: {enabled: true, mode: cross-subnet}}", ("CrossSubnet", False, False)),
        ("{ipip: {enabled: false}}", ("Never", False, False)),
        ("{ipip: {enabled: false, mode: always}}", ("Never", False, False)),
        ("{ipip: {mode: cross-subnet}}", ("Never", False, False)),
        ("{ipip:}", ("Never", False, False)),
        ("", ("Never", False, False)),
        ("{nat-outgoing: true}", ("Never", True, False)),
        ("{disabled: true, nat-outgoing: false}", ("Never", False, True)),
    ],
)
def test_modes_of_a_pool(spec: str, expected: tuple[str, bool, bool]) -> None:
    text = f"apiVersion: v1\nkind: IPPOOL\nmetadata: {{cidr: 10.0.0.0/8}}\nspec: {spec}\n"
    spec_of_v3 = converted(text)["spec"]
    assert (spec_of_v3["ipipMode"], spec_of_v3["natOutgoing"], spec_of_v3["disabled"]) == expected


@pytest.mark.promise("M-169")
@pytest.mark.promise("M-170")
@pytest.mark.parametrize("kind", ["calicoApiConfig", "CalicoAPIConfig", "calicoapiconfig"])
def test_the_issues_configuration(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "calicoctl.cfg"
    path.write_text(CONFIG.replace("calicoApiConfig", kind))
    config = apiconfig.load(path, {})
    config.check()
    assert config.datastore_type == "etcdv3"
    assert config.endpoints == tuple(f"https://192.0.2.{n}:2379" for n in (1, 2, 3))
    assert config.key_file == "/etc/calico/calico.key"
    assert config.cert_file == "/etc/calico/calico.crt"
    assert config.ca_file == "/etc/calico/ca.crt"
    assert config.notices == (NOTICE,)


def test_other_configurations() -> None:
    v1 = {"apiVersion": "v1", "kind": "calicoApiConfig"}
    tree, notice = as_v3({**v1, "spec": {"etcdAuthority": "h:1", "etcdScheme": "https"}})
    assert (tree["spec"], notice) == (
        {"datastoreType": "etcdv3", "etcdEndpoints": "https://h:1"},
        "",
    )
    assert as_v3({**v1, "spec": {"datastoreType": "kubernetes"}})[0]["spec"] == {
        "datastoreType": "kubernetes"
    }
    assert as_v3({**v1, "spec": None, "metadata": None})[0]["kind"] == "CalicoAPIConfig"
    others: list[object] = [
        None,
        [],
        {"apiVersion": "v1", "kind": "ipPool"},
        {"kind": "calicoApiConfig"},
    ]
    for other in others:
        assert as_v3(other) == (other, "")


@pytest.mark.promise("M-167")
def test_a_policy() -> None:
    tree = converted(
        """
apiVersion: v1
kind: policy
metadata: {name: Prod/web_1, annotations: {who: me}}
spec:
  order: 10
  selector: calico/k8s_ns == 'x'
  types: [ingress, Egress]
  preDNAT: false
  ingress:
  - action: allow
    protocol: tcp
    notProtocol: udplite
    source: {tag: t1, net: 10.0.0.1/24, nets: [10.1.0.0/16], notSelector: a == 'b', notTag: c}
    destination: {ports: [80, '90:92'], notNet: 10.2.3.4}
  - {action: deny, ipVersion: 6, protocol: icmpv6, icmp: {type: 8, code: 0}}
  egress:
  - {action: next-tier, protocol: 132, notICMP: {type: 1}, destination: {selector: has(x), tag: t}}
"""
    )
    assert tree["kind"] == "GlobalNetworkPolicy"
    name = "Prod/web_1"
    mark = hashlib.sha1(name.encode()).hexdigest()[:8]
    assert tree["metadata"] == {"name": f"prod-web-1-{mark}", "annotations": {"who": "me"}}
    assert tree["spec"] == {
        "order": 10,
        "selector": "projectcalico.org/namespace == 'x'",
        "types": ["Ingress", "Egress"],
        "ingress": [
            {
                "action": "Allow",
                "protocol": "TCP",
                "notProtocol": "UDPLite",
                "source": {
                    "nets": ["10.1.0.0/16", "10.0.0.0/24"],
                    "selector": "t1 == ''",
                    "notSelector": "(a == 'b') || c == ''",
                },
                "destination": {"ports": [80, "90:92"], "notNets": ["10.2.3.4/32"]},
            },
            {
                "action": "Deny",
                "ipVersion": 6,
                "protocol": "ICMPv6",
                "icmp": {"type": 8, "code": 0},
            },
        ],
        "egress": [
            {
                "action": "Pass",
                "protocol": 132,
                "notICMP": {"type": 1},
                "destination": {"selector": "(has(x)) && t == ''"},
            }
        ],
    }


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ("{}", ["Ingress"]),
        ("{ingress: [{action: deny}]}", ["Ingress"]),
        ("{egress: [{action: deny}]}", ["Egress"]),
        ("{ingress: [{action: deny}], egress: [{action: log}]}", ["Ingress", "Egress"]),
    ],
)
def test_directions_of_a_policy_that_names_none(spec: str, types: list[str]) -> None:
    tree = converted(f"apiVersion: v1\nkind: policy\nmetadata: {{name: a}}\nspec: {spec}\n")
    assert tree["spec"]["types"] == types


def test_a_policy_before_nat_applies_to_what_is_forwarded() -> None:
    text = "apiVersion: v1\nkind: policy\nmetadata: {name: a}\nspec: {preDNAT: true}\n"
    assert converted(text)["spec"] == {
        "types": ["Ingress"],
        "preDNAT": True,
        "applyOnForward": True,
    }


@pytest.mark.promise("M-167")
def test_other_kinds() -> None:
    documents = """
apiVersion: v1
kind: profile
metadata: {name: k8s_ns.default, tags: [db], labels: {a: b}}
spec: {ingress: [{action: allow, source: {tag: db}}], egress: [{action: allow}]}
---
apiVersion: v1
kind: hostEndpoint
metadata: {name: eth0, node: Node_1, labels: {role: edge}}
spec:
  interfaceName: eth0
  expectedIPs: [192.0.2.1]
  profiles: [p1]
  ports: [{name: http, protocol: tcp, port: 80}]
---
apiVersion: v1
kind: workloadEndpoint
metadata:
  {name: eth0, workload: default.web-0, orchestrator: k8s, node: n1, activeInstanceID: abc,
   labels: {calico/k8s_ns: default}}
spec:
  ipNetworks: [10.0.0.1/32]
  ipNATs: [{internalIP: 10.0.0.1, externalIP: 192.0.2.9}]
  profiles: [k8s_ns.default]
  interfaceName: cali1
  mac: ee:ee:ee:ee:ee:ee
  allow_spoofed_source_prefixes: [10.9.0.0/16]
---
apiVersion: v1
kind: bgpPeer
metadata: {scope: global, peerIP: 192.0.2.1}
spec: {asNumber: 64512}
---
apiVersion: v1
kind: bgpPeer
metadata: {scope: node, node: N1, peerIP: '2001:db8::1'}
spec: {asNumber: '1.10'}
---
apiVersion: v1
kind: node
metadata: {name: Rack1_Host2}
spec:
  bgp: {asNumber: 64512, ipv4Address: 10.0.0.5/24, ipv6Address: ''}
  orchRefs: [{nodeName: worker-1, orchestrator: k8s}]
"""
    trees = [converted(yaml.safe_dump(one)) for one in yaml.safe_load_all(documents)]
    profile, host, workload, peer, own_peer, node = trees
    assert profile["metadata"]["name"] == "kns.default"
    assert profile["spec"]["labelsToApply"] == {"a": "b", "db": ""}
    assert profile["spec"]["ingress"][0]["source"] == {"selector": "db == ''"}
    assert host["metadata"] == {"name": "node-1.eth0", "labels": {"role": "edge"}}
    assert host["spec"]["node"] == "node-1"
    assert host["spec"]["ports"] == [{"name": "http", "protocol": "TCP", "port": 80}]
    assert workload["metadata"] == {
        "name": "n1-k8s-web--0-eth0",
        "labels": {"projectcalico.org/namespace": "default"},
        "namespace": "default",
    }
    assert workload["spec"]["containerID"] == "abc"
    assert workload["spec"]["allowSpoofedSourcePrefixes"] == ["10.9.0.0/16"]
    assert peer["metadata"]["name"] == "192-0-2-1"
    assert own_peer["metadata"]["name"] == "n1.2001-0db8-0000-0000-0000-0000-0000-0001"
    assert own_peer["spec"] == {"node": "n1", "peerIP": "2001:db8::1", "asNumber": 65546}
    assert node["metadata"]["name"] == "rack1-host2"
    assert node["spec"]["bgp"] == {"asNumber": 64512, "ipv4Address": "10.0.0.5/24"}


@pytest.mark.parametrize(
    ("orchestrator", "workload", "spec", "name"),
    [
        ("cni", "abc", {"containerID": "abc"}, "n-cni-abc-e"),
        ("libnetwork", "x", {"workload": "libnetwork"}, "n-libnetwork-libnetwork-e"),
        ("openstack", "vm-1", {"workload": "vm-1"}, "n-openstack-vm--1-e"),
    ],
)
def test_workloads_of_other_orchestrators(
    orchestrator: str, workload: str, spec: dict[str, str], name: str
) -> None:
    metadata = {"name": "e", "workload": workload, "orchestrator": orchestrator, "node": "n"}
    text = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "workloadendpoint",
            "metadata": metadata,
            "spec": {"interfaceName": "cali1"},
        }
    )
    tree = converted(text)
    assert tree["metadata"] == {"name": name, "namespace": "default"}
    assert tree["spec"].items() >= spec.items()


def test_names() -> None:
    assert names.pool_name(ip_network("fd00:1::/64")) == "fd00-1---64"
    assert names.address_name(ip_address("10.0.0.1")) == "10-0-0-1"
    assert names.node_name("Host/A_b..c.-") == "host.a-b.c"
    assert names.name("plain-name.x") == "plain-name.x"
    assert names.name("A") == "a-" + hashlib.sha1(b"A").hexdigest()[:8]


def test_what_v1_cannot_say_stays_as_it_is_stored() -> None:
    def pool(name: str, **spec: Any) -> IPPool:
        spec = {"cidr": "10.0.0.0/8", **spec}
        return IPPool(metadata=Metadata(name=name, uid="u"), spec=IPPoolSpec(**spec))

    stored = pool("mine", blockSize=24, nodeSelector="has(x)", vxlanMode="Always", disabled=True)
    off = merged(stored, pool("10-0-0-0-8", ipipMode="Never", natOutgoing=True))
    assert off.metadata == stored.metadata
    assert off.spec == IPPoolSpec(
        cidr="10.0.0.0/8",
        blockSize=24,
        nodeSelector="has(x)",
        vxlanMode="Always",
        ipipMode="Never",
        natOutgoing=True,
    )
    on = merged(stored, pool("10-0-0-0-8", ipipMode="CrossSubnet"))
    assert (on.spec.ipipMode, on.spec.vxlanMode) == ("CrossSubnet", "Never")
