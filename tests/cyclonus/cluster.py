"""What a case changes, as kubectl would, and the cluster that comes of it. Pure.

A change applies or deletes one Kubernetes object. A case is a list of steps, each some changes
after which the whole matrix must be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Document = dict[str, Any]
Labels = Mapping[str, str]
PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
PORTS = (80, 81)
DOORS = tuple(f"{protocol.lower()}:{port}" for protocol in PROTOCOLS for port in PORTS)
NAMESPACES, NAMES = ("x", "y", "z"), ("a", "b", "c")


@dataclass(frozen=True)
class Change:
    """One object that is applied or deleted."""

    verb: Literal["apply", "delete"]
    document: Document


@dataclass(frozen=True)
class Case:
    """One case. `family` and `name` are its pytest id."""

    family: str
    name: str
    steps: tuple[tuple[Change, ...], ...]

    @property
    def title(self) -> str:
        """family/name"""
        return f"{self.family}/{self.name}"


@dataclass(frozen=True)
class Cluster:
    """Namespaces and pods with their labels, policies by (namespace, name)."""

    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    pods: Mapping[str, Labels] = field(default_factory=dict)
    policies: Mapping[tuple[str, str], Document] = field(default_factory=dict)

    def after(self, changes: Iterable[Change]) -> Cluster:
        """The cluster that these changes make of this one."""
        made = self
        for change in changes:
            made = made.changed(change)
        return made

    def changed(self, change: Change) -> Cluster:
        """The cluster after one change; what is in a deleted namespace goes with it."""
        meta, kind = change.document["metadata"], change.document["kind"]
        space, name = meta.get("namespace", ""), meta["name"]
        gone = change.verb == "delete"
        if kind == "Namespace" and gone:
            pods = {t: v for t, v in self.pods.items() if t.partition("/")[0] != name}
            policies = {k: v for k, v in self.policies.items() if k[0] != name}
            return Cluster(without(self.namespaces, name), pods, policies)
        if kind == "Namespace":
            labels = {**meta["labels"], "kubernetes.io/metadata.name": name}
            return replace(self, namespaces={**self.namespaces, name: labels})
        if kind == "Pod":
            title = f"{space}/{name}"
            pods = without(self.pods, title) if gone else {**self.pods, title: meta["labels"]}
            return replace(self, pods=pods)
        if gone:
            return replace(self, policies=without(self.policies, (space, name)))
        return replace(self, policies={**self.policies, (space, name): change.document})


def without(found: Mapping[Any, Any], key: Any) -> dict[Any, Any]:
    """A mapping with one key less; KeyError when it is not there."""
    made = dict(found)
    del made[key]
    return made


def namespace(name: str, **labels: str) -> Document:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def pod(title: str, **labels: str) -> Document:
    """What of a Pod changes while it lives."""
    space, _, name = title.partition("/")
    metadata = {"namespace": space, "name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def apply(*documents: Document) -> tuple[Change, ...]:
    """A step, or a part of one."""
    return tuple(Change("apply", document) for document in documents)


def delete(*documents: Document) -> tuple[Change, ...]:
    """The same for what goes."""
    return tuple(Change("delete", document) for document in documents)


START = Cluster().after(
    apply(
        *(namespace(space, ns=space) for space in NAMESPACES),
        *(pod(f"{space}/{name}", pod=name) for space in NAMESPACES for name in NAMES),
    )
)


def histories(case: Case) -> Iterator[Cluster]:
    """The cluster after each step of a case."""
    cluster = START
    for step in case.steps:
        cluster = cluster.after(step)
        yield cluster
