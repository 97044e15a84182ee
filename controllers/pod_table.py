"""The pods of the cluster, reduced to what is judged: where they run, and their addresses."""

from __future__ import annotations

from controllers.leaks import PodView
from controllers.objects import PODS, Pod
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.reflector import Reflector

POD_IPS = ("cni.projectcalico.org/podIPs", "cni.projectcalico.org/podIP")


def view_of(pod: Pod) -> PodView:
    """A pod as it is judged (data model 3.3: where its addresses stand)."""
    status = pod.status
    texts = [one.ip for one in status.podIPs or ()] or [status.podIP]
    notes = pod.metadata.annotations or {}
    for name in POD_IPS:
        texts += notes.get(name, "").split(",")
    return PodView(
        pod.spec.nodeName,
        frozenset(text.partition("/")[0].strip() for text in texts if text.strip()),
        status.phase == "Failed" and status.reason == "Evicted",
    )


class PodTable:
    """The pods of the cluster, reduced to what is judged."""

    def __init__(self, client: Client) -> None:
        self.known: dict[tuple[str, str], PodView] = {}
        self.reflector = Reflector(client, PODS, self)

    def put(self, name: Name, value: Pod) -> None:
        """A pod is so now."""
        self.known[name.namespace, name.name] = view_of(value)

    def gone(self, name: Name) -> None:
        """It is gone."""
        self.known.pop((name.namespace, name.name), None)

    def listed(self) -> None:
        """All have been told."""
