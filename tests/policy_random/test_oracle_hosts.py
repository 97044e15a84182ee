"""The oracle against tables written by hand: services, host endpoints, staged policies."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.policy_random.oracle import Oracle
from tests.policy_random.test_oracle import DB, OTHER, PODS, WEB, tcp

SLICE: dict[str, Any] = {
    "metadata": {
        "name": "s-1",
        "namespace": "n",
        "labels": {"kubernetes.io/service-name": "svc"},
    },
    "endpoints": [],
    "ports": [{"protocol": "TCP", "port": 80}],
}


def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(PODS + text) if one]


def slices(*titles: str) -> list[dict[str, Any]]:
    """A slice of service n/svc with these pods."""
    addresses = [
        str(n.network_address) for t in titles for n in Oracle(documents("")).endpoints[t].nets
    ]
    return [{**SLICE, "endpoints": [{"addresses": addresses}]}]


def policy(direction: str, rule: str, selector: str = "all()") -> str:
    types = direction.title()
    return (
        "kind: NetworkPolicy\nmetadata: {name: p, namespace: n}\n"
        f'spec: {{selector: "{selector}", types: [{types}], {direction}: [{rule}]}}\n'
    )


OUT = "{action: Allow, destination: {services: {name: svc}}}"


def test_a_destination_is_reached_at_a_port_of_its_service() -> None:
    text = policy("egress", OUT, "app == 'web'")
    oracle = Oracle(documents(text), slices(DB))
    assert oracle.egress(tcp(WEB, DB, 80)).allowed
    assert not oracle.egress(tcp(WEB, DB, 81)).allowed
    assert not oracle.egress(tcp(WEB, OTHER, 80)).allowed
    assert not Oracle(documents(text), slices(OTHER)).egress(tcp(WEB, DB, 80)).allowed


def test_a_source_is_any_address_of_its_service() -> None:
    text = policy("ingress", "{action: Allow, source: {services: {name: svc}}}", "app == 'db'")
    assert Oracle(documents(text), slices(WEB)).ingress(tcp(WEB, DB, 81)).allowed
    assert not Oracle(documents(text), slices(OTHER)).ingress(tcp(WEB, DB, 81)).allowed


@pytest.mark.parametrize(
    ("rules", "known", "unknown"),
    [
        (OUT, True, False),
        (f"{OUT.replace('Allow', 'Deny')}, {{action: Allow}}", False, False),
        (f"{OUT.replace('Allow', 'Deny').replace('svc', 'other')}, {{action: Allow}}", True, False),
        (f"{OUT.replace('Allow', 'Pass')}, {{action: Allow}}", False, False),
        (f"{OUT.replace('Allow', 'Log')}, {{action: Allow}}", True, True),
        ("{action: Allow}", True, True),
    ],
)
def test_what_nobody_tells_of_is_never_wider(rules: str, known: bool, unknown: bool) -> None:
    text = policy("egress", rules, "app == 'web'")
    # Pass leads to the profiles, of which the pod has none that allows.
    without_profiles = [d for d in documents(text) if d["kind"] != "Profile"]
    flow = tcp(WEB, DB, 80)
    assert Oracle(without_profiles, slices(DB)).egress(flow).allowed is known
    assert Oracle(without_profiles).egress(flow).allowed is unknown


HOST = (
    "kind: HostEndpoint\nmetadata: {name: h, labels: {role: edge}}\n"
    "spec: {node: x, interfaceName: eth0, expectedIPs: [%s], profiles: [p]}\n---\n"
)


def test_a_host_endpoint_is_meant_by_its_addresses() -> None:
    address = str(Oracle(documents("")).endpoints[WEB].nets[0].network_address)
    rule = "{action: Allow, source: {selector: role == 'edge', namespaceSelector: global()}}"
    text = policy("ingress", rule, "app == 'db'")
    assert Oracle(documents(HOST % address + text)).ingress(tcp(WEB, DB)).allowed
    assert not Oracle(documents(HOST % "192.0.2.1" + text)).ingress(tcp(WEB, DB)).allowed


def test_the_lists_of_a_host_endpoint() -> None:
    def everywhere(name: str, spec: str) -> str:
        head = f"kind: GlobalNetworkPolicy\nmetadata: {{name: {name}}}\n"
        return f"{head}spec: {{selector: role == 'edge', {spec}}}\n---\n"

    text = HOST % "192.0.2.1"
    text += everywhere("n", "types: [Egress], order: 2")
    text += everywhere("f", "types: [Ingress], order: 1, applyOnForward: true")
    text += everywhere("u", "types: [Ingress, Egress], doNotTrack: true, applyOnForward: true")
    text += everywhere("d", "types: [Ingress], preDNAT: true, applyOnForward: true")
    text += everywhere("x", "namespaceSelector: all()")
    found = Oracle(documents(text)).lists("h")
    n, f, u, d = (f"{name}//GlobalNetworkPolicy" for name in "nfud")
    assert found == {
        "tiers": [("default", [f], [n])],
        "forward": [("default", [f], [])],
        "untracked": [("default", [u], [u])],
        "pre_dnat": [("default", [d], [])],
    }


def test_staged_policies_and_those_of_hosts_decide_nothing_about_pods() -> None:
    closing = policy("ingress", "{action: Deny}")
    assert not Oracle(documents(closing)).ingress(tcp(WEB, DB)).allowed
    staged = closing.replace("kind: Network", "kind: StagedNetwork")
    assert Oracle(documents(staged)).ingress(tcp(WEB, DB)).allowed
