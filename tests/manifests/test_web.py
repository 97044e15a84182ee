"""The page in the chart: off by default, read-only, closed without certificate and review."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from manifests import chart
from web.guard.reviews import RIGHT
from web.main import parser

Tree = dict[str, Any]
OPEN = {"enabled": True, "tlsSecret": "web-tls", "aggregator": "goldmane:7443"}


def objects(store: str, web: Tree) -> dict[tuple[str, str], Tree]:
    """The page's objects by kind and name."""
    rendered = chart.render({"datastore": store, "web": web})
    return {
        (one["kind"], one["metadata"]["name"]): one
        for one in yaml.safe_load_all(rendered)
        if one["metadata"]["name"].startswith("calico-web")
    }


def container(found: dict[tuple[str, str], Tree]) -> Tree:
    """The page's container."""
    spec = found["Deployment", "calico-web"]["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    only["pod"] = spec
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("store", ["etcd", "kubernetes"])
def test_it_is_off_by_default(store: str) -> None:
    assert objects(store, {}) == {}


@pytest.mark.parametrize("store", ["etcd", "kubernetes"])
def test_by_port_forward_it_listens_on_its_pods_loopback(store: str) -> None:
    found = objects(store, {"enabled": True})
    page = container(found)
    assert page["args"] == ["calico-web"]
    assert "ports" not in page
    assert ("Service", "calico-web") not in found
    assert ("ClusterRoleBinding", "calico-web-review") not in found
    given = parser().parse_args(page["args"][1:])
    assert (given.listen, given.token_review) == ("127.0.0.1", False)


@pytest.mark.parametrize("store", ["etcd", "kubernetes"])
def test_by_its_service_tokens_are_reviewed_behind_tls(store: str) -> None:
    found = objects(store, OPEN)
    page = container(found)
    given = parser().parse_args(page["args"][1:])
    assert given.token_review
    assert (given.tls_cert, given.tls_key) == ("/tls/tls.crt", "/tls/tls.key")
    assert given.aggregator == "goldmane:7443"
    assert found["Service", "calico-web"]["spec"]["ports"][0]["targetPort"] == "https"
    assert ("ClusterRoleBinding", "calico-web-review") in found
    probe = parser().parse_args(page["livenessProbe"]["exec"]["command"][1:])
    assert (probe.check, probe.port) == (True, 8443)


@pytest.mark.parametrize("store", ["etcd", "kubernetes"])
def test_its_account_reads_and_no_secret(store: str) -> None:
    found = objects(store, OPEN)
    for rule in found["ClusterRole", "calico-web"]["rules"]:
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert "secrets" not in rule["resources"]
        assert "*" not in (*rule["resources"], *rule["verbs"], *rule["apiGroups"])
    review = found["ClusterRole", "calico-web-review"]["rules"]
    asked = {resource for rule in review for resource in rule["resources"]}
    assert asked == {"tokenreviews", "subjectaccessreviews"}
    assert all(rule["verbs"] == ["create"] for rule in review)
    (viewer,) = found["ClusterRole", "calico-web-viewer"]["rules"]
    assert viewer == {"nonResourceURLs": [RIGHT], "verbs": ["get"]}


@pytest.mark.parametrize("store", ["etcd", "kubernetes"])
def test_its_pod_may_nothing_on_a_node(store: str) -> None:
    page = container(objects(store, OPEN))
    context, pod = page["securityContext"], page["pod"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert "hostNetwork" not in pod
    assert not [one for one in pod["volumes"] if "hostPath" in one]
