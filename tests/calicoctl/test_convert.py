"""`convert`: Kubernetes documents in, documents that `apply` takes out."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libcalico.conversion import convert, is_kubernetes
from libcalico.errors import MuslinError
from libcalico.legacy import convert_document
from tests.calicoctl.conftest import Ctl
from tests.size import examples

KUBERNETES = """\
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ServiceAccount
  metadata: {name: default, namespace: shop}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: web, namespace: shop}
  spec:
    podSelector: {}
    ingress:
    - ports: [{port: 80}]
"""
BAD = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - ports: [{port: 80}]
  - form: []
"""


def test_convert_and_apply(ctl: Ctl) -> None:
    converted = ctl("convert", "-f", "-", stdin=KUBERNETES)
    assert (converted.code, converted.err) == (0, "")
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(converted.out)]
    assert names == ["kns.shop", "ksa.shop.default", "web"]
    applied = ctl("apply", "-f", "-", stdin=converted.out)
    assert applied.out == "Successfully applied 3 resource(s)\n", applied.err
    again = ctl("apply", "-f", "-", stdin=ctl("convert", "-f", "-", stdin=KUBERNETES).out)
    assert again.code == 0
    shown = json.loads(ctl("get", "np", "web", "-n", "shop", "-o", "json").out)
    assert shown["spec"]["ingress"] == [
        {"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}}
    ]


def test_json_and_the_names_of_the_controller(ctl: Ctl) -> None:
    done = ctl("convert", "-f", "-", "-o", "json", "--kubernetes-names", stdin=KUBERNETES)
    assert json.loads(done.out)[2]["metadata"] == {"name": "knp.default.web", "namespace": "shop"}


def test_documents_of_calico_pass_through(ctl: Ctl) -> None:
    mine = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\nspec: {order: 1}\n"
    done = ctl("convert", "-f", "-", stdin=mine)
    assert yaml.safe_load(done.out)["spec"] == {"order": 1}


def test_what_was_left_out_is_told_with_its_line(ctl: Ctl) -> None:
    done = ctl("convert", "-f", "-", stdin=BAD)
    assert done.code == 1
    assert done.err == (
        "standard input: line 8: NetworkPolicy(web): spec.ingress[1].form: [] is not valid:"
        " is no such field\n"
    )
    assert len(yaml.safe_load(done.out)["spec"]["ingress"]) == 1
    ignored = ctl("convert", "-f", "-", "--ignore-validation", stdin=BAD)
    assert (ignored.code, ignored.err, ignored.out) == (0, done.err, done.out)


def test_refusals(ctl: Ctl, tmp_path: Path) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
    assert "Pod of apiVersion v1 is not a resource of" in ctl("convert", "-f", "-", stdin=pod).err
    assert "not valid YAML" in ctl("convert", "-f", "-", stdin="{").err
    assert "No resources specified" in ctl("convert", "-f", "-", stdin="").err
    assert "cannot read" in ctl("convert", "-f", str(tmp_path / "no")).err
    assert "unrecognized output format" in ctl("convert", "-f", "-", "-o", "wide").err
    nameless = "apiVersion: v1\nkind: Namespace\nmetadata: {}\n"
    assert "metadata.name" in ctl("convert", "-f", "-", stdin=nameless).err


OLD = """\
apiVersion: v1
kind: ipPool
metadata: {cidr: 192.168.0.0/16}
spec:
  ipip: {enabled: true, mode: cross-subnet}
  nat-outgoing: true
"""


def test_first_generation_documents_are_converted(ctl: Ctl) -> None:
    done = ctl("convert", "-f", "-", stdin=f"{OLD}---\n{KUBERNETES}")
    assert done.code == 0, done.err
    found = list(yaml.safe_load_all(done.out))
    assert [one["kind"] for one in found] == ["IPPool", "Profile", "Profile", "NetworkPolicy"]
    assert found[0] == {
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPPool",
        "metadata": {"name": "192-168-0-0-16"},
        "spec": {"cidr": "192.168.0.0/16", "ipipMode": "CrossSubnet", "natOutgoing": True},
    }
    bad = ctl("convert", "-f", "-", stdin=OLD.replace("192.168.0.0/16", "192.168.0.0/33"))
    assert (bad.code, bad.out) == (1, "")
    assert "192.168.0.0/33" in bad.err


CLUSTER = """\
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: fence}
spec:
  tier: Admin
  priority: 3
  subject: {namespaces: {}}
  egress:
  - {action: Deny, to: [{networks: [10.0.0.0/8]}]}
"""


def test_a_cluster_network_policy_is_converted_and_applied(ctl: Ctl) -> None:
    named = ctl("convert", "-f", "-", "--kubernetes-names", stdin=CLUSTER)
    assert (named.code, named.err) == (0, "")
    assert yaml.safe_load(named.out)["metadata"]["name"] == "kcnp.fence"
    done = ctl("convert", "-f", "-", stdin=CLUSTER)
    assert ctl("apply", "-f", "-", stdin=done.out).code == 0
    shown = json.loads(ctl("get", "gnp", "fence", "-o", "json").out)
    assert (shown["spec"]["tier"], shown["spec"]["order"]) == ("kube-admin", 3)


def test_the_kinds_that_were_given_up_are_refused_by_name(ctl: Ctl) -> None:
    for kind, tier in (("AdminNetworkPolicy", "Admin"), ("BaselineAdminNetworkPolicy", "Baseline")):
        text = CLUSTER.replace("ClusterNetworkPolicy", kind).replace("v1alpha2", "v1alpha1")
        done = ctl("convert", "-f", "-", stdin=text)
        assert done.code != 0
        assert f"{kind} is not enforced" in done.err
        assert (
            f"ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2); write one with tier {tier}"
            in (" ".join(done.err.split()))
        )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=examples(200), deadline=None)
@given(
    version=st.sampled_from(["v1", "networking.k8s.io/v1"]) | json_values,
    kind=st.sampled_from(["Namespace", "NetworkPolicy", "ServiceAccount", "policy"]) | json_values,
    metadata=st.fixed_dictionaries({"name": st.just("x") | json_values}) | json_values,
    spec=json_values,
)
@example(version=None, kind=["a"], metadata=None, spec=None)
@example(version={"a": "b"}, kind="Namespace", metadata={"name": "x"}, spec=None)
@example(version="v1", kind=["a"], metadata={}, spec={})
def test_any_document_is_converted_or_refused(
    version: Any, kind: Any, metadata: Any, spec: Any
) -> None:
    tree = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    with suppress(MuslinError):
        is_kubernetes(tree)
        convert(tree)
    with suppress(MuslinError):
        convert_document(tree)


def test_a_kind_that_is_no_word_is_refused_by_name(ctl: Ctl) -> None:
    for text, word in (("kind: [a]", "['a']"), ("apiVersion: v1\nkind: {a: b}", "{'a': 'b'}")):
        done = ctl("convert", "-f", "-", stdin=text)
        assert (done.code, done.out) == (1, "")
        assert f"standard input: line 1: {word}" in done.err


def test_a_direction_that_is_none_is_told_and_what_remains_is_printed(ctl: Ctl) -> None:
    text = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {}
  policyTypes: [Egress, foo]
"""
    done = ctl("convert", "-f", "-", stdin=text)
    assert done.code == 1
    assert (
        "NetworkPolicy(web): spec.policyTypes[1]: 'foo' is not valid: must be Ingress" in done.err
    )
    assert yaml.safe_load(done.out)["spec"]["types"] == ["Egress"]
