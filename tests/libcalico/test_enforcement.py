"""One table says what is enforced; it is whole, and what is not enforced is named (ENF-1, 2)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from felix.config.parameters import PARAMETERS
from felix.config.resolve import resolve
from libcalico.datastore.etcd.keys import key_of_path
from libcalico.model import KINDS, FelixConfigurationSpec, ResourceKey, fields
from libcalico.model.codec import decode_value, resource_from_tree
from libcalico.model.defaults import apply_defaults
from libcalico.model.enforcement.lacking import Lacking
from libcalico.model.enforcement.states import State
from libcalico.model.enforcement.table import felix_parameter, not_enforced, row_of, table
from tests.libcalico.golden_data import documents, pairs

ROOT = Path(__file__).parents[2]


def named(kind: str, spec: dict[str, Any], name: str = "default") -> dict[str, str]:
    tree = {"kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": spec}
    return dict(not_enforced(resource_from_tree(tree)))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_field_has_a_row(kind: str) -> None:
    paths = [path for path, _ in fields.leaves(KINDS[kind].type)]
    assert [path for path in paths if row_of(kind, path) is None] == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_row_names_a_field(kind: str) -> None:
    paths = [path for path, _ in fields.leaves(KINDS[kind].type)]
    idle = [row for row in table()[kind] if not any(f"{p}.".startswith(f"{row}.") for p in paths)]
    assert idle == []


def test_the_rows_of_felix_are_its_parameters() -> None:
    rows = {
        path.removeprefix("spec."): row
        for path, row in table()["FelixConfiguration"].items()
        if path.startswith("spec.")
    }
    acted_on = (State.ENFORCED, State.IN_PART)
    enforced = {name for name, row in rows.items() if row.state in acted_on}
    parameters = {one.field for one in PARAMETERS} & set(FelixConfigurationSpec.__struct_fields__)
    # The selector is no parameter: it says for which nodes the others are.
    assert enforced == parameters | {"nodeSelector"}


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "fields.md").read_text() == fields.text() + "\n", "run ./run fields"


def test_what_a_fresh_cluster_holds_asks_for_nothing_that_lacks() -> None:
    for path, raw in pairs():
        key = key_of_path(path)
        assert key is not None
        value = decode_value(key, raw)
        if hasattr(value, "kind"):
            assert not_enforced(value) == [], path


@pytest.mark.parametrize("kind", ["BGPConfiguration", "FelixConfiguration", "IPAMConfiguration"])
def test_defaults_ask_for_nothing_that_lacks(kind: str) -> None:
    tree = {"kind": kind, "metadata": {"name": "default"}, "spec": {}}
    assert not_enforced(apply_defaults(resource_from_tree(tree))) == []


def test_the_walk_takes_every_document() -> None:
    for golden in documents():
        key = key_of_path(golden.key)
        assert key is not None
        if golden.name in KINDS:
            for path, reason in not_enforced(decode_value(key, golden.raw)):
                assert path.startswith("spec")
                assert reason


def test_rules_say_what_becomes_of_them() -> None:
    services = {"services": {"name": "s", "namespace": "n"}}
    notices = named(
        "NetworkPolicy",
        {
            "ingress": [
                {"action": "Allow"},
                {"action": "Allow", "protocol": "TCP", "http": {"methods": ["GET"]}},
            ],
            "egress": [
                {"action": "Deny", "destination": services},
                {"action": "Log", "destination": services},
                {"action": "Pass", "destination": services},
            ],
        },
    )
    assert set(notices) == {
        "spec.ingress[1].http",
        "spec.egress[0].destination.services",
        "spec.egress[1].destination.services",
        "spec.egress[2].destination.services",
    }
    assert notices["spec.ingress[1].http"].endswith("this Allow rule matches nothing")
    assert notices["spec.egress[0].destination.services"].endswith("applies without that match")
    assert "denies" in notices["spec.egress[2].destination.services"]


def test_an_excluded_icmp_type_is_enforced_but_for_what_the_kernel_lacks() -> None:
    def rule(**members: Any) -> dict[str, str]:
        return named("Profile", {"egress": [{"action": "Deny", **members}]})

    assert rule(notICMP={"type": 8}) == {}
    assert rule(notICMP={"type": 8}, protocol="ICMP") == {}
    assert set(rule(notICMP={})) == {"spec.egress[0].notICMP"}
    assert set(rule(notICMP={"type": 8}, notProtocol="TCP")) == {"spec.egress[0].notICMP"}


@pytest.mark.parametrize(
    ("kind", "spec", "paths"),
    [
        ("IPPool", {"cidr": "10.0.0.0/16", "ipipMode": "Never", "vxlanMode": "Never"}, set()),
        ("IPPool", {"cidr": "10.0.0.0/16", "ipipMode": "Always"}, set()),
        ("HostEndpoint", {"node": "n", "interfaceName": "eth0"}, set()),
        ("BGPPeer", {"peerIP": "10.0.0.1", "asNumber": 1, "nextHopMode": "Auto"}, set()),
        ("BGPPeer", {"filters": ["f"], "password": {}, "reachableBy": "10.0.0.2"}, set()),
        ("BGPPeer", {"localWorkloadSelector": "all()"}, {"spec.localWorkloadSelector"}),
        (
            "WorkloadEndpoint",
            {"qosControls": {"ingressBurst": 1}, "ports": [{"name": "p", "port": 1}]},
            set(),
        ),
        ("GlobalNetworkPolicy", {"applyOnForward": True, "preDNAT": True}, set()),
        ("StagedNetworkPolicy", {"ingress": [{"action": "Allow", "http": {}}]}, set()),
        ("IPAMConfiguration", {"strictAffinity": True}, {"spec.strictAffinity"}),
        ("FelixConfiguration", {"bpfEnabled": False, "bpfMapSizeRoute": 5}, set()),
        (
            "FelixConfiguration",
            {"bpfEnabled": True, "removeExternalRoutes": True, "healthEnabled": True},
            {"spec.bpfEnabled", "spec.removeExternalRoutes"},
        ),
    ],
)
def test_what_is_named(kind: str, spec: dict[str, Any], paths: set[str]) -> None:
    assert set(named(kind, spec)) == paths


def test_felix_names_the_parameters_that_have_no_effect() -> None:
    stored = {
        "default": {"spec": {"bpfEnabled": True, "wireguardEnabled": False, "maxIpsetSize": 9}}
    }
    environ = {"FELIX_XDPENABLED": "true", "FELIX_AWSSRCDSTCHECK": "Disable"}
    resolved = resolve("n1", environ=environ, stored=stored)
    assert [(one.name, one.unknown) for one in resolved.problems] == [
        ("bpfEnabled", False),
        ("AWSSRCDSTCHECK", False),
    ]
    assert "not enforced: there is no eBPF data plane" in str(resolved.problems[0])
    assert resolved.config.max_ipset_size == 9
    assert felix_parameter("NoSuchThing") is None


def test_agents_say_it_once_and_keep_it_for_their_status(caplog: pytest.LogCaptureFixture) -> None:
    def settings(**spec: Any) -> Any:
        kind = "BGPConfiguration"
        return resource_from_tree({"kind": kind, "metadata": {"name": "default"}, "spec": spec})

    key = ResourceKey("BGPConfiguration", "default")
    lacking = Lacking(logging.getLogger("test"))
    lacking.update(key, settings(asNumber=64513))
    assert lacking.conditions() == []
    lacking.update(key, settings(localWorkloadPeeringIPV4="10.0.0.2"))
    both = {"localWorkloadPeeringIPV4": "10.0.0.3", "localWorkloadPeeringIPV6": "fd00::3"}
    lacking.update(key, settings(**both))
    messages = [record.getMessage() for record in caplog.records]
    fields = ["spec.localWorkloadPeeringIPV4", "spec.localWorkloadPeeringIPV6"]
    assert [one.partition(":")[0] for one in messages] == fields
    assert [subject for subject, _ in lacking.conditions()] == ["BGPConfiguration(default)"] * 2
    lacking.update(key, None)
    assert lacking.conditions() == []


def test_annotations_that_mark_a_hosts_traffic_are_named() -> None:
    def named(**annotations: str) -> list[str]:
        metadata = {"name": "h", "annotations": annotations}
        tree = {"kind": "HostEndpoint", "metadata": metadata, "spec": {"node": "me"}}
        return [path for path, _ in not_enforced(resource_from_tree(tree))]

    assert named(**{"qos.projectcalico.org/dscp": "EF"}) == ["metadata.annotations"]
    assert named(**{"example.org/qos": "1M"}) == []
