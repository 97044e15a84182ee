"""The pods of the cluster, reduced to what is judged: where they run, and their addresses.

Tested in tests/controllers/test_collection.py.
"""

from __future__ import annotations

import sys

from controllers.addresses.leaks import PodView
from controllers.addresses.pods import Pods
from controllers.mirror.objects import Pod
from libcalico.kubernetes.names import Name

POD_IPS = ("cni.projectcalico.org/podIPs", "cni.projectcalico.org/podIP")


def view_of(pod: Pod) -> PodView:
    """A pod as it is judged (docs/reference/data-model.md#labels-and-profiles-of-pods: where its
    addresses stand)."""
    status = pod.status
    texts = [one.ip for one in status.podIPs or ()] or [status.podIP]
    notes = pod.metadata.annotations or {}
    for name in POD_IPS:
        texts += notes.get(name, "").split(",")
    return PodView(
        sys.intern(pod.spec.nodeName),
        frozenset(text.partition("/")[0].strip() for text in texts if text.strip()),
        status.phase == "Failed" and status.reason == "Evicted",
    )


class PodTable:
    """The pods of the cluster, reduced to what is judged."""

    def __init__(self, pods: Pods) -> None:
        self.known: dict[tuple[str, str], PodView] = {}
        pods.takers.append(self)

    def put(self, name: Name, value: Pod) -> None:
        """Store a pod."""
        self.known[name] = view_of(value)

    def gone(self, name: Name) -> None:
        """Remove it."""
        self.known.pop(name, None)

    def listed(self) -> None:
        """Note that the list is complete."""
