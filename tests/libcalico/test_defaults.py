"""What is filled in before a resource is stored, per kind (docs/reference/data-model.md#validation,
#side-effects-of-writes and section 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libcalico.model import KINDS, key_of
from libcalico.model.codec import encode_value, resource_from_tree
from libcalico.model.defaults import apply_defaults


def stored(kind: str, spec: dict[str, Any] | None, name: str = "default") -> dict[str, Any]:
    tree = {"kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": spec}
    resource = apply_defaults(resource_from_tree(tree))
    found: dict[str, Any] = json.loads(encode_value(key_of(resource), resource))
    return found


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (
            "BGPConfiguration",
            {},
            {"logSeverityScreen": "Info", "serviceLoadBalancerAggregation": "Enabled"},
        ),
        (
            "BGPConfiguration",
            {
                "logSeverityScreen": "Debug",
                "serviceLoadBalancerAggregation": "Disabled",
                "nodeMeshMaxRestartTime": "240s",
            },
            {
                "logSeverityScreen": "Debug",
                "serviceLoadBalancerAggregation": "Disabled",
                "nodeMeshMaxRestartTime": "4m0s",
            },
        ),
        (
            "BGPPeer",
            {"keepaliveTime": "0", "maxRestartTime": "1.5s"},
            {"maxRestartTime": "1.5s", "keepaliveTime": "0s"},
        ),
        ("BGPFilter", {}, {}),
        (
            "FelixConfiguration",
            {
                "bpfConnectTimeLoadBalancingEnabled": True,
                "bpfConnectTimeLoadBalancing": "Disabled",
                "nftablesFlowTableOffload": "All",
            },
            {
                "nftablesMode": "Auto",
                "nftablesFlowTableOffload": "All",
                "bpfLogLevel": "",
                "bpfConnectTimeLoadBalancingEnabled": True,
                "bpfConnectTimeLoadBalancing": "Enabled",
                "bpfHostNetworkedNATWithoutCTLB": "Disabled",
                "floatingIPs": "Disabled",
            },
        ),
        (
            "FelixConfiguration",
            {"bpfConnectTimeLoadBalancingEnabled": False},
            {
                "nftablesMode": "Auto",
                "nftablesFlowTableOffload": "Disabled",
                "bpfLogLevel": "",
                "bpfConnectTimeLoadBalancingEnabled": False,
                "bpfConnectTimeLoadBalancing": "Disabled",
                "bpfHostNetworkedNATWithoutCTLB": "Disabled",
                "floatingIPs": "Disabled",
            },
        ),
        (
            "FelixConfiguration",
            {},
            {
                "nftablesMode": "Auto",
                "nftablesFlowTableOffload": "Disabled",
                "bpfLogLevel": "",
                "bpfConnectTimeLoadBalancing": "TCP",
                "bpfHostNetworkedNATWithoutCTLB": "Enabled",
                "floatingIPs": "Disabled",
            },
        ),
        (
            "FelixConfiguration",
            {
                "nftablesMode": "Enabled",
                "floatingIPs": "Enabled",
                "bpfConnectTimeLoadBalancing": "Disabled",
                "bpfHostNetworkedNATWithoutCTLB": "Disabled",
                "reportingTTL": "90s",
                "routeRefreshInterval": "x",
            },
            {
                "routeRefreshInterval": "x",
                "reportingTTL": "1m30s",
                "nftablesMode": "Enabled",
                "nftablesFlowTableOffload": "Disabled",
                "bpfLogLevel": "",
                "bpfConnectTimeLoadBalancing": "Disabled",
                "bpfHostNetworkedNATWithoutCTLB": "Disabled",
                "floatingIPs": "Enabled",
            },
        ),
        (
            "IPPool",
            {"cidr": "10.0.0.0/16"},
            {
                "cidr": "10.0.0.0/16",
                "vxlanMode": "Never",
                "ipipMode": "Never",
                "blockSize": 26,
                "nodeSelector": "all()",
                "allowedUses": ["Workload", "Tunnel"],
                "assignmentMode": "Automatic",
            },
        ),
        (
            "IPPool",
            {"cidr": "FD00:0::/48", "assignmentMode": "Manual", "allowedUses": ["LoadBalancer"]},
            {
                "cidr": "fd00::/48",
                "vxlanMode": "Never",
                "ipipMode": "Never",
                "blockSize": 122,
                "nodeSelector": "all()",
                "allowedUses": ["LoadBalancer"],
                "assignmentMode": "Manual",
            },
        ),
        ("IPAMConfiguration", {}, {"strictAffinity": False, "autoAllocateBlocks": True}),
        (
            "KubeControllersConfiguration",
            {},
            {"healthChecks": "Enabled", "prometheusMetricsPort": 9094, "controllers": {}},
        ),
        (
            "KubeControllersConfiguration",
            {
                "prometheusMetricsPort": 0,
                "etcdV3CompactionPeriod": "600s",
                "controllers": {
                    "node": {"reconcilerPeriod": "300s"},
                    "loadBalancer": {},
                    "migration": {},
                    "policyMigration": {},
                },
            },
            {
                "healthChecks": "Enabled",
                "etcdV3CompactionPeriod": "10m0s",
                "prometheusMetricsPort": 0,
                "controllers": {
                    "node": {"reconcilerPeriod": "5m0s", "leakGracePeriod": "15m0s"},
                    "loadBalancer": {"assignIPs": "AllServices"},
                    "policyMigration": {"enabled": "Enabled"},
                    "migration": {"policyNameMigrator": "Enabled"},
                },
            },
        ),
        ("NetworkPolicy", {}, {"tier": "default", "types": ["Ingress"]}),
        (
            "GlobalNetworkPolicy",
            {"egress": [{"action": "Deny"}]},
            {"tier": "default", "egress": [{"action": "Deny"}], "types": ["Egress"]},
        ),
        (
            "StagedNetworkPolicy",
            {"ingress": [{"action": "Deny"}], "egress": [{"action": "Deny"}]},
            {
                "stagedAction": "Set",
                "tier": "default",
                "ingress": [{"action": "Deny"}],
                "egress": [{"action": "Deny"}],
                "types": ["Ingress", "Egress"],
            },
        ),
        (
            "StagedGlobalNetworkPolicy",
            {"stagedAction": "Delete", "types": ["Ingress"]},
            {"stagedAction": "Delete", "tier": "default"},
        ),
        ("StagedKubernetesNetworkPolicy", {}, {"stagedAction": "Set", "podSelector": {}}),
        ("BlockAffinity", {}, {"state": "", "node": "", "cidr": "", "deleted": "false"}),
        ("Tier", {}, {"order": 1000000, "defaultAction": "Deny"}),
    ],
)
def test_the_spec_that_is_stored(
    kind: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec = stored(kind, given)["spec"]
    assert json.dumps(spec) == json.dumps(expected), "order counts"


def test_a_tier_of_ones_own_has_no_order_by_default() -> None:
    assert stored("Tier", {}, "security")["spec"] == {"defaultAction": "Deny"}
    assert stored("Tier", {}, "kube-admin")["spec"] == {"order": 1000, "defaultAction": "Pass"}


@pytest.mark.parametrize(
    "kind",
    ["NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy"],
)
def test_the_tier_is_a_label_and_the_name_an_annotation(kind: str) -> None:
    metadata = stored(kind, {"tier": "security"}, "a")["metadata"]
    assert metadata["labels"] == {"projectcalico.org/tier": "security"}
    assert metadata["annotations"] == {"projectcalico.org/metadata": '{"name":"a"}'}


def test_a_kubernetes_policy_is_not_annotated() -> None:
    assert set(stored("StagedKubernetesNetworkPolicy", {})["metadata"]) == {"name", "namespace"}


def test_an_endpoint_is_named_and_labelled_from_its_spec() -> None:
    spec = {"orchestrator": "k8s", "node": "n-1", "pod": "web-0", "endpoint": "eth0"}
    metadata = stored("WorkloadEndpoint", spec, "")["metadata"]
    assert metadata["name"] == "n--1-k8s-web--0-eth0"
    assert metadata["labels"] == {
        "projectcalico.org/namespace": "ns",
        "projectcalico.org/orchestrator": "k8s",
    }


UNTOUCHED = (
    "Node",
    "HostEndpoint",
    "IPReservation",
    "BGPFilter",
    "Profile",
    "NetworkSet",
    "GlobalNetworkSet",
    "ClusterInformation",
    "CalicoNodeStatus",
    "LiveMigration",
)


@pytest.mark.parametrize("kind", UNTOUCHED)
def test_nothing_is_filled_in(kind: str) -> None:
    tree = {"kind": kind, "metadata": {"name": "default"}, "spec": {}}
    resource = resource_from_tree(tree)
    assert apply_defaults(resource) == resource
    assert kind in KINDS
