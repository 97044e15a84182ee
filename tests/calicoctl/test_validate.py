"""`validate`: offline, and what is stored but not enforced is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.calicoctl.conftest import Ctl
from tests.support.etcd import Etcd

POLICY = """\
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: g}
spec:
  selector: a == 'b'
  ingress:
  - action: Allow
    protocol: TCP
    destination: {ports: [80]}
"""


def test_a_good_file_needs_no_datastore(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://127.0.0.1:1")
    done = ctl("validate", "-f", "-", stdin=POLICY)
    assert (done.code, done.err) == (0, "")
    assert done.out == "Successfully validated 1 'GlobalNetworkPolicy' resource(s)\n"


def test_every_problem_of_every_document_is_told_with_its_line(ctl: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    bad = POLICY.replace("[80]", "[80, 0]").replace("a == 'b'", "a = b")
    file.write_text(bad + "---\n" + POLICY.replace("Allow", "allow"))
    done = ctl("validate", "-f", str(file))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("failed to validate any 'GlobalNetworkPolicy' resources: [")
    for told in (
        "bad.yaml: line 5: GlobalNetworkPolicy(g): spec.selector: 'a = b' is not valid",
        "bad.yaml: line 9: GlobalNetworkPolicy(g): spec.ingress[0].destination.ports[1]: 0",
        "bad.yaml: line 17: GlobalNetworkPolicy(g): spec.ingress[0].action: 'allow'",
    ):
        assert told in done.err


@pytest.mark.parametrize("verb", ["validate", "apply"])
def test_what_is_not_enforced_is_named(ctl: Ctl, etcd: Etcd, verb: str) -> None:
    rules = """\
  applyOnForward: true
  egress:
  - action: Deny
    destination: {services: {name: s, namespace: n}}
"""
    text = POLICY.replace("    protocol: TCP\n", "    protocol: TCP\n    http: {methods: [GET]}\n")
    done = ctl(verb, "-f", "-", stdin=text + rules)
    assert done.code == 0
    for told in (
        "line 9: GlobalNetworkPolicy(g): spec.ingress[0].http: not enforced: HTTP is not looked"
        " into; this Allow rule matches nothing",
        "line 14: GlobalNetworkPolicy(g): spec.egress[0].destination.services: not enforced",
        "this rule applies without that match",
    ):
        assert told in done.err
    assert "applyOnForward" not in done.err


def test_encryption_is_refused_here_too(ctl: Ctl) -> None:
    text = (
        "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\n"
        "metadata: {name: default}\nspec: {wireguardEnabled: true}\n"
    )
    assert ctl("validate", "-f", "-", stdin=text).code == 1
    assert ctl("validate", "--accept-unenforced", "-f", "-", stdin=text).code == 0


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            "{peerIP: 10.99.1.254}",
            "line 4: BGPPeer(tor): spec.asNumber: 0 is not valid: is required with spec.peerIP",
        ),
        ("{asNumber: 64500}", "BGPPeer(tor): spec.peerIP: '' is not valid: is required"),
        ("{}", "BGPPeer(tor): spec.peerIP: '' is not valid: is required"),
        ("{peerIP: 127.0.0.1, asNumber: 1}", "spec.peerIP: '127.0.0.1' is not valid: must be the"),
        ("{peerIP: '::', asNumber: 1}", "spec.peerIP: '::' is not valid: must be the"),
        ("{peerIP: '224.0.0.5:179', asNumber: 1}", "spec.peerIP: '224.0.0.5:179' is not valid"),
        (
            "{peerIP: 10.9.1.2, asNumber: 1, ttlSecurity: 255}",
            "line 4: BGPPeer(tor): spec.ttlSecurity: 255 is not valid: must be 0 (off) to 254 hops",
        ),
        (
            "{peerIP: 10.9.1.2, asNumber: 1, maxRestartTime: -5s}",
            "spec.maxRestartTime: '-5s' is not valid: must not be negative",
        ),
        (
            "{peerIP: 10.9.1.2, asNumber: 1, keepaliveTime: -1m}",
            "spec.keepaliveTime: '-1m0s' is not valid: must not be negative",
        ),
        (
            "{peerIP: 10.9.1.2, asNumber: 1, password: {}}",
            "spec.password: {} is not valid: must have a secretKeyRef",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["validate", "apply", "create"])
def test_a_peer_that_can_have_no_session_is_refused(
    ctl: Ctl, etcd: Etcd, verb: str, spec: str, told: str
) -> None:
    text = (
        f"apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {{name: tor}}\nspec: {spec}\n"
    )
    done = ctl(verb, "-f", "-", stdin=text)
    assert done.code == 1
    assert told in done.err
    assert ctl("get", "bgppeer", "-o", "name").out == ""


@pytest.mark.parametrize(
    ("kind", "spec", "told"),
    [
        ("BGPConfiguration", "{nodeMeshPassword: {}}", "spec.nodeMeshPassword: {} is not valid"),
        (
            "BGPConfiguration",
            "{nodeMeshMaxRestartTime: -5s}",
            "spec.nodeMeshMaxRestartTime: '-5s' is not valid: must not be negative",
        ),
        (
            "BGPFilter",
            "{importV4: [{action: Accept, cidr: 10.0.0.0/8, matchOperator: In,"
            " prefixLength: {min: 24, max: 16}}]}",
            "spec.importV4[0].prefixLength: {'min': 24, 'max': 16} is not valid: min",
        ),
        (
            "BGPFilter",
            "{exportV6: [{action: Accept, cidr: 'fd00::/64', matchOperator: NotIn,"
            " prefixLength: {max: 48}}]}",
            "spec.exportV6[0].prefixLength: {'min': None, 'max': 48} is not valid: min (by default"
            " the cidr's, 64) must be at most max",
        ),
    ],
)
def test_settings_of_which_nothing_can_come_are_refused(
    ctl: Ctl, kind: str, spec: str, told: str
) -> None:
    text = (
        f"apiVersion: projectcalico.org/v3\nkind: {kind}\nmetadata: {{name: default}}\n"
        f"spec: {spec}\n"
    )
    done = ctl("validate", "-f", "-", stdin=text)
    assert (done.code, done.out) == (1, "")
    assert told in done.err


@pytest.mark.parametrize(
    "spec",
    [
        "{peerIP: '127.0.0.1:1790', asNumber: 1}",
        "{peerIP: 10.9.1.2, asNumber: 1, ttlSecurity: 254, maxRestartTime: 0s}",
        "{peerIP: 10.9.1.2, asNumber: 1, password: {secretKeyRef: {name: a, key: b}}}",
    ],
)
def test_a_peer_that_can_have_a_session_is_taken(ctl: Ctl, spec: str) -> None:
    text = (
        f"apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {{name: tor}}\nspec: {spec}\n"
    )
    assert ctl("validate", "-f", "-", stdin=text).err == ""


def test_a_peer_loses_its_as_number_to_no_patch(ctl: Ctl, etcd: Etcd) -> None:
    text = (
        "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: tor}\n"
        "spec: {peerIP: 10.99.1.254, asNumber: 64500}\n"
    )
    assert ctl("apply", "-f", "-", stdin=text).code == 0
    done = ctl("patch", "bgppeer", "tor", "-p", '{"spec": {"asNumber": null}}')
    assert done.code == 1
    assert "spec.asNumber: 0 is not valid" in done.err
