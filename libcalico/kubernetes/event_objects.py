"""What an Event of Kubernetes is about, and its name.

Tested in tests/libcalico/test_events.py and tests/apiserver/test_events.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from libcalico.kubernetes.objects import Object, Resource

NODE_NAMESPACE = "default"


class Event(Object, kw_only=True):
    """`v1` Event, as far as we read it."""

    count: int = 0


EVENTS = Resource("v1", "events", Event)


@dataclass(frozen=True, slots=True)
class About:
    """The object of an Event. A pod without `uid` is looked up before each write."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def place(self) -> str:
        """The namespace of its Events."""
        return self.namespace or NODE_NAMESPACE


def node(name: str) -> About:
    """A node; its Events bear its name as the uid, as the kubelet's do."""
    return About("Node", name, uid=name)


def pod(namespace: str, name: str, uid: str = "") -> About:
    """A pod."""
    return About("Pod", name, namespace, uid)


def name_of(about: About, component: str, reason: str, subject: str = "") -> str:
    """The name of an Event: its object's, and a digest of what it says. Pure."""
    said = "\0".join((about.kind, about.uid, component, reason, subject))
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return f"{about.name[:230].rstrip('-.')}.{digest}"
