"""Namespaces and service accounts of the lab's pods, made as profiles in the open.

In a cluster of Kubernetes the profiles `kns.*` and `ksa.*` come from the API. Here the lab is the
API: it writes Namespace and ServiceAccount as YAML, `calicoctl convert` makes profiles of them and
`calicoctl apply` stores them, both on the first node and nothing else (LAB-1). What was declared
lies in the lab's state directory. Tested in tests/e2e/test_namespaces.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from lab import state
from lab.cluster import Lab
from lab.errors import LabError

ACCOUNT = "default"
NAME_LABEL = "kubernetes.io/metadata.name"
_lock = threading.Lock()


def document(kind: str, name: str, labels: Mapping[str, str], namespace: str = "") -> str:
    """One YAML document of Kubernetes' core API; its values are JSON, hence YAML. Pure."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {json.dumps(metadata)}\n"


def documents(name: str, labels: Mapping[str, str], account_labels: Mapping[str, str]) -> str:
    """The namespace with the label every API server adds, and its default service account. Pure."""
    namespace = document("Namespace", name, {NAME_LABEL: name, **labels})
    return f"{namespace}---\n{document('ServiceAccount', ACCOUNT, account_labels, name)}"


def add(
    lab: Lab,
    name: str,
    labels: Mapping[str, str] | None = None,
    account_labels: Mapping[str, str] | None = None,
) -> str:
    """Make a namespace or change its labels; the YAML that was converted. Raises LabError."""
    if not lab.state.agents:
        raise LabError(f"lab {lab.name} is bare: nobody there knows namespaces")
    if lab.kubernetes:
        raise LabError(f"the namespaces of lab {lab.name} are those of its Kubernetes API")
    text = documents(name, labels or {}, account_labels or {})
    with _lock:
        node = lab.nodes[0]
        converted = node.run(["calicoctl", "convert", "-f", "-"], stdin=text.encode()).stdout
        node.run(["calicoctl", "apply", "-f", "-"], stdin=converted.encode())
        path = record(lab, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return text


def ensure(lab: Lab, name: str) -> None:
    """Make a namespace unless it was made before; a bare lab has none, an API its own."""
    if lab.state.agents and not lab.kubernetes and not record(lab, name).exists():
        add(lab, name)


def record(lab: Lab, name: str) -> Path:
    """The path of a namespace's YAML."""
    return state.directory(lab.name) / "namespaces" / f"{name}.yaml"
