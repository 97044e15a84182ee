"""Events that our processes wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calicoctl.session import Options
from libcalico.process import paths, unlooped
from web.facts.events import lines_of, read_events


def event(component: str, when: str, message: str = "down") -> dict[str, object]:
    """An Event about a node."""
    return {
        "involvedObject": {"kind": "Node", "name": "n1"},
        "source": {"component": component},
        "reason": "CalicoBGP", "message": message, "lastTimestamp": when, "count": 3,
        "type": "Warning",
    }  # fmt: skip


def test_ours_the_newest_first_and_without_secrets() -> None:
    raw = {
        "items": [
            event("calico-node", "2026-11-27T10:00:00Z"),
            event("kubelet", "2026-11-27T12:00:00Z"),
            event("calico-cni", "2026-11-27T11:00:00Z", "https://u:canary@etcd:2379 is away"),
        ]
    }
    lines = lines_of(json.dumps(raw).encode())
    assert [one.component for one in lines] == ["calico-cni", "calico-node"]
    assert (lines[1].subject, lines[1].count) == ("Node n1", 3)
    assert "canary" not in str(lines)


def test_etcd_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", tmp_path / "none.cfg")
    monkeypatch.setenv("DATASTORE_TYPE", "etcdv3")
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://127.0.0.1:1")
    assert unlooped.run(read_events(Options())) == (None, "")


def test_an_api_that_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    settings = f"{tmp_path}/calicoctl.cfg"
    with open(settings, "w") as file:
        file.write(
            "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n"
            "  datastoreType: kubernetes\n  k8sAPIEndpoint: http://127.0.0.1:1\n"
        )
    lines, why = unlooped.run(read_events(Options(settings)))
    assert lines == ()
    assert why.startswith("Events cannot be read: ")


def test_the_api_is_found_by_kubectls_own_file_as_the_datastore_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KUBECONFIG", "DATASTORE_TYPE", "KUBERNETES_SERVICE_HOST", "K8S_API_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", tmp_path / "none.cfg")
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    _, why = unlooped.run(read_events(Options()))
    assert "127.0.0.1" in why
