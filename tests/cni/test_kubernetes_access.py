"""The Kubernetes API as a configuration names it: precedence, files, secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cni.request.config import parse_config
from cni.request.errors import CNIError
from cni.request.kubernetes_access import NOTHING, NamedAccess
from libcalico.kubernetes.errors import NoAccess

CANARY = "canary.token"
POLICY = {"type": "k8s", "k8s_api_root": "https://10.233.0.1:443", "k8s_auth_token": CANARY}


def access(policy: Any = None, kubernetes: Any = None) -> NamedAccess:
    document = {"name": "net", "cniVersion": "0.1.0", "policy": policy, "kubernetes": kubernetes}
    return parse_config(document).kubernetes


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    tree = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "u", "user": {"token": "of-kubeconfig"}}],
    }
    path = tmp_path / "etc/calico-kubeconfig"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(tree))
    return path


def test_most_configurations_name_none() -> None:
    assert access() is NOTHING
    assert access({"type": "k8s"}) is NOTHING


@pytest.mark.promise("M-159")
@pytest.mark.promise("M-160")
def test_the_keys_of_the_first_generation_are_enough() -> None:
    found = access(POLICY).source()()
    assert (found.server, found.token) == ("https://10.233.0.1:443", CANARY)
    for suffix in ("/api/v1", "/api/v1/", "/"):
        policy = {**POLICY, "k8s_api_root": POLICY["k8s_api_root"] + suffix}
        assert access(policy).source()().server == "https://10.233.0.1:443"


@pytest.mark.promise("M-161")
def test_single_keys_win_over_the_kubeconfig(kubeconfig: Path) -> None:
    named = {"kubeconfig": str(kubeconfig)}
    found = access({"type": "k8s"}, named).source()()
    assert (found.server, found.token) == ("https://192.0.2.1:6443", "of-kubeconfig")
    found = access(POLICY, named).source()()
    assert (found.server, found.token) == ("https://10.233.0.1:443", CANARY)
    found = access(POLICY, {**named, "k8s_api_root": "https://192.0.2.3:6443"}).source()()
    assert (found.server, found.token) == ("https://192.0.2.3:6443", CANARY)


def test_a_kubeconfig_of_the_host_is_found_from_a_container(
    kubeconfig: Path, tmp_path: Path
) -> None:
    named = access({"type": "k8s"}, {"kubeconfig": "/etc/calico-kubeconfig"})
    assert named.source(tmp_path)().server == "https://192.0.2.1:6443"


@pytest.mark.promise("M-161")
@pytest.mark.parametrize(
    ("policy", "kubernetes", "part"),
    [
        ({}, {"kubeconfig": "/gone/config"}, "/gone/config"),
        (
            {**POLICY, "k8s_certificate_authority": "/gone/ca"},
            None,
            "policy.k8s_certificate_authority cannot be read: /gone/ca",
        ),
        (
            {**POLICY, "k8s_client_certificate": "/gone/cert"},
            None,
            "policy.k8s_client_certificate cannot be read: /gone/cert",
        ),
        ({**POLICY, "k8s_client_key": "/gone/key"}, None, "policy.k8s_client_key cannot be read"),
        ({**POLICY, "k8s_api_root": "http://192.0.2.1"}, None, "over https only"),
        ({"type": "k8s", "k8s_auth_token": CANARY}, None, "http://HOST:PORT or https://HOST:PORT"),
    ],
)
def test_what_cannot_be_used_is_named(policy: Any, kubernetes: Any, part: str) -> None:
    with pytest.raises(NoAccess) as caught:
        access(policy, kubernetes).source()()
    assert part in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.promise("M-160")
def test_a_token_is_shown_nowhere() -> None:
    named = access(POLICY)
    assert CANARY not in repr(named) + str(named) + named.label + repr(named.source()())
    for bad in (f"{CANARY} x", f"{CANARY}\n"):
        with pytest.raises(CNIError) as caught:
            access({**POLICY, "k8s_auth_token": bad})
        assert "policy.k8s_auth_token must be" in caught.value.msg
        assert CANARY not in str(caught.value)
