"""Manifests as the tests read them: objects by kind and name, containers by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "manifests"
FLAT = ("calico-etcd.yaml", "calico.yaml", "canal.yaml")
Tree = dict[str, Any]


def objects(text: str) -> list[Tree]:
    """The objects of a YAML stream."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(text, loader) if one]


def by_name(text: str) -> dict[str, Tree]:
    """The objects by `Kind/name`."""
    found = objects(text)
    named = {f"{one['kind']}/{one['metadata']['name']}": one for one in found}
    assert len(named) == len(found), "an object stands twice"
    return named


def without_crds(text: str) -> dict[str, Tree]:
    """The objects that the chart makes; the others are long, and are left out unread."""
    parts = re.split(r"^---\n", text, flags=re.MULTILINE)
    kept = [one for one in parts if "\nkind: CustomResourceDefinition\n" not in f"\n{one}"]
    return by_name("---\n".join(kept))


def pod(workload: Tree) -> Tree:
    """The pod of a DaemonSet or Deployment."""
    found: Tree = workload["spec"]["template"]["spec"]
    return found


def container(workload: Tree, name: str) -> Tree:
    """A container or init container of a workload by its name."""
    spec = pod(workload)
    everyone = [*spec.get("initContainers", []), *spec["containers"]]
    (found,) = [one for one in everyone if one["name"] == name]
    chosen: Tree = found
    return chosen


def environment(one: Tree) -> dict[str, Any]:
    """A container's variables: a text, or where it comes from (`ConfigMap/key`, a field)."""
    found: dict[str, Any] = {}
    for each in one.get("env", []):
        source = each.get("valueFrom", {})
        if "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            found[each["name"]] = f"{reference['name']}/{reference['key']}"
        elif "fieldRef" in source:
            found[each["name"]] = source["fieldRef"]["fieldPath"]
        else:
            found[each["name"]] = each["value"]
    return found


def mounts(one: Tree) -> dict[str, str]:
    """A container's mounts: volume to path."""
    return {each["name"]: each["mountPath"] for each in one.get("volumeMounts", [])}
