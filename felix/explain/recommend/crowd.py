"""The endpoints behind the aggregated names of flows, with the labels that selectors may use.

`web-7d4b9-*` is every pod whose name goes on with one word more. Pods that are gone are known by
the labels that their flows had.

Tested in tests/policy_recommend/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from felix.explain.misses.labelled import Directory
from felix.explain.world import World
from flows.record import End, EndKind
from libcalico.model import ResourceKey
from libcalico.policy_selectors import (
    NAMESPACE_PREFIX,
    SERVICE_ACCOUNT_LABEL,
    SERVICE_ACCOUNT_PREFIX,
)

VOLATILE = frozenset(
    {
        "pod-template-hash", "pod-template-generation", "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "controller-uid",
        "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index",
        "job-name", "batch.kubernetes.io/job-name",
    }
)  # fmt: skip
"""Labels that the next pod of the same work will not have."""
_CALICO = "projectcalico.org/"


@dataclass(frozen=True, slots=True)
class Entry:
    """An endpoint, or what is known of ones that are gone; `labels` that are worth naming."""

    title: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    key: ResourceKey | None = None

    def values(self) -> Mapping[str, str]:
        """Its labels by name."""
        return dict(self.labels)


class Crowd:
    """All endpoints by namespace, and ends found among them."""

    def __init__(
        self, world: World, reported: Mapping[End, tuple[str, ...]], *, accounts: bool = True
    ) -> None:
        """`accounts`: whether service accounts may tell endpoints apart."""
        directory = Directory(world)
        self._accounts = accounts
        self.by_namespace: dict[str, list[Entry]] = {}
        self._pods: dict[ResourceKey, str] = {}
        for key, value in sorted(world.of("WorkloadEndpoint")):
            pod = value.spec.pod or value.spec.workload
            entry = Entry(f"{key.namespace}/{pod}", key.namespace,
                          self._kept(directory.of(key).labels), key)  # fmt: skip
            self.by_namespace.setdefault(key.namespace, []).append(entry)
            self._pods[key] = pod
        self._found: dict[End, tuple[Entry, ...]] = {}
        for end, labels in sorted(
            reported.items(), key=lambda one: (one[0].namespace, one[0].name)
        ):
            if end.kind is EndKind.WORKLOAD:
                self._found[end] = self._look(end, labels)

    def of(self, end: End) -> tuple[Entry, ...]:
        """The entries of a workload's end; never empty for one that flows told of."""
        return self._found[end]

    def others(self, mine: Iterable[Entry], namespace: str) -> list[Entry]:
        """All entries of a namespace but these."""
        own = set(mine)
        return [entry for entry in self.by_namespace.get(namespace, ()) if entry not in own]

    def beside(self, mine: Iterable[Entry], namespace: str) -> list[Mapping[str, str]]:
        """The label sets of the others, each once: thousands of pods have a few."""
        return [dict(labels) for labels in {e.labels: None for e in self.others(mine, namespace)}]

    def _look(self, end: End, reported: tuple[str, ...]) -> tuple[Entry, ...]:
        there = self.by_namespace.get(end.namespace, ())
        entries = tuple(
            e for e in there if e.key is not None and named(end.name, self._pods[e.key])
        )
        if entries:
            return entries
        labels = dict(label.partition("=")[::2] for label in reported)
        return (Entry(f"{end.namespace}/{end.name}", end.namespace, self._kept(labels)),)

    def _kept(self, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        kept = lasting(labels)
        if self._accounts:
            return kept
        return tuple(label for label in kept if label[0] != SERVICE_ACCOUNT_LABEL)


def named(name: str, pod: str) -> bool:
    """Whether an aggregated name is that of a pod."""
    if not name.endswith("*"):
        return name == pod
    prefix = name.removesuffix("*")
    rest = pod.removeprefix(prefix)
    return pod.startswith(prefix) and bool(rest) and "-" not in rest


def lasting(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels that the next pod of the same work will have, too; own ones alone."""
    return tuple(
        sorted(
            (name, value)
            for name, value in labels.items()
            if name == SERVICE_ACCOUNT_LABEL
            or not (
                name in VOLATILE
                or name.startswith((_CALICO, NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX))
            )
        )
    )
