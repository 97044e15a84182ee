"""The lab of tests/netpol made to look like a cluster of a case, and its matrices measured.

A cluster is reached by differences from what stands, policies of the case before included, so a
case costs one delete and one apply. When the fence (tests/netpol/world.py) has let packets in at
its new port, the change is in force on every node.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.cyclonus.cluster import DOORS, START, Cluster, Document, namespace, pod
from tests.netpol import pods
from tests.netpol.matrix import Pair, differences, table
from tests.netpol.world import (
    FENCE,
    LEAST_LOOKS,
    MATRIX_SECONDS,
    NODES,
    OPEN_TRIES,
    World,
    documents,
    namespace_yaml,
    patience,
)
from tests.support.patience import patient

BEFORE = Cluster({name: {} for name in START.namespaces}, START.pods)
Matrices = Mapping[str, Mapping[Pair, bool]]


@dataclass
class Runner:
    """The world and the cluster that stands in it. `late` tells what was right only later."""

    world: World
    stands: Cluster = field(default_factory=lambda: BEFORE)
    late: list[str] = field(default_factory=list)

    @property
    def addresses(self) -> dict[str, str]:
        """Where each pod is found."""
        return {name: prober.address for name, prober in self.world.probers.items()}

    def become(self, wanted: Cluster) -> None:
        """Make the cluster stand; returns when every node enforces it."""
        stands = self.stands
        policies = [d for key, d in stands.policies.items() if key not in wanted.policies]
        spaces = [namespace(name) for name in stands.namespaces if name not in wanted.namespaces]
        self.world.drop(policies)
        for title in set(stands.pods) - set(wanted.pods):
            self.world.stop(title)
        self.world.drop(spaces)
        changed: list[Document] = [
            namespace(name, **labels)
            for name, labels in wanted.namespaces.items()
            if labels != stands.namespaces.get(name)
        ]
        changed += [d for key, d in wanted.policies.items() if d != stands.policies.get(key)]
        changed += [
            pod(title, **labels)
            for title, labels in wanted.pods.items()
            if title in stands.pods and labels != stands.pods[title]
        ]
        new = [title for title in wanted.pods if title not in stands.pods]
        if new:
            # Their namespaces are there before them, as in a cluster.
            for space in {title.partition("/")[0] for title in new}:
                self.world.have_namespace(space)
        self.world.store(changed)
        for number, title in enumerate(new):
            self.world.start(title, NODES[number % 2])
        self.stands = wanted
        self.world.fence()

    def expect(self, expected: Matrices, title: str) -> None:
        """All doors become as expected within a deadline.

        Right at the first look is right; right only later must be so twice. Each look is more
        patient than the one before: a machine that is busy with much else loses no packet, it is
        late.
        """
        deadline = time.monotonic() + patient(MATRIX_SECONDS)
        right = looks = 0
        while right < max(1, min(looks, 2)):
            seen = self.observe(expected, patience(looks))
            looks += 1
            wrong = [door for door in DOORS if differences(expected[door], seen[door])]
            right = 0 if wrong else right + 1
            if wrong and looks >= LEAST_LOOKS and time.monotonic() > deadline:
                shown = "\n".join(f"{door}\n{table(expected[door], seen[door])}" for door in wrong)
                raise AssertionError(f"{title} is not as expected\n{shown}")
        if looks > 1:
            self.late.append(title)

    def observe(self, expected: Matrices, timeout: float) -> dict[str, dict[Pair, str]]:
        """One look at everything. Several tries only where it should be open: a busy machine may
        lose a packet that passes, and never passes one that is dropped."""
        probers = [p for name, p in self.world.probers.items() if name not in FENCE]
        several = {
            door: {pair: OPEN_TRIES for pair, open_ in matrix.items() if open_}
            for door, matrix in expected.items()
        }
        return pods.observe_all(probers, several, timeout)

    def leave(self) -> None:
        """The world as tests/netpol has it: namespaces without labels, no policies."""
        self.become(Cluster(START.namespaces, START.pods))
        self.world.store(
            [one for name in START.namespaces for one in documents(namespace_yaml(name))]
        )
        self.world.fence()
