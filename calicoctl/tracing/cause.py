"""A cause of a failed connection, as a value.

Tested in tests/calicoctl/test_tracing_cause.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from calicoctl.tracing.evidence import Evidence
from libcalico.local.packet_trace import (
    Link,
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause: `name` for programs, `text` for people, where (`node`), and what to do (`fix`)."""

    name: str
    text: str
    node: str = ""
    fix: str = ""


def links_at(node: Evidence | None, place: str) -> list[Link]:
    """The interfaces of a node, or of a pod on it."""
    return [] if node is None else [link for link in node.facts.links if link.place == place]
