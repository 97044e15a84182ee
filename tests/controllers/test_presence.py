"""Whether a node is gone: each answer of store and API (GC-5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controllers.presence import is_gone
from libcalico.datastore.interface import Entry
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.kubernetes.errors import Busy, ObjectNotFound, Unreachable
from libcalico.model import Metadata, Node
from libcalico.model.keys import ResourceKey
from libcalico.model.node import NodeSpec, OrchRef

KEY = ResourceKey("Node", "n1")


def node(own: str) -> Entry:
    refs = [OrchRef(nodeName=own, orchestrator="k8s")] if own else []
    return Entry(KEY, Node(metadata=Metadata(name="n1"), spec=NodeSpec(orchRefs=refs)), 1, b"")


class Says:
    """A store and an API that give one answer each."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def get(self, *_: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("stored", "api", "gone"),
    [
        (None, None, True),
        (InvalidValue("$", "{", "must be JSON"), None, False),
        (DatastoreUnavailable("away"), None, False),
        (node(""), None, False),
        (node("k1"), object(), False),
        (node("k1"), ObjectNotFound("GET k1", 404, "NotFound"), True),
        (node("k1"), Unreachable("away"), False),
        (node("k1"), Busy("GET k1", 429), False),
    ],
)
def test_who_is_gone(stored: object, api: object, gone: bool) -> None:
    assert asyncio.run(is_gone(Says(stored), Says(api), "n1")) is gone  # type: ignore[arg-type]
