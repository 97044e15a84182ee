"""Lists and events of a collection as trees, in whichever form the API sends them.

Tested in tests/libcalico/test_kubernetes_answers.py.
"""

from __future__ import annotations

import msgspec

from libcalico.datastore.kubernetes.mapping import Collection
from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.kubernetes.errors import UNREADABLE, Unreachable
from libcalico.kubernetes.protobuf import (
    Unpackable,
    is_packed,
    list_fields,
    read_event,
    read_object,
)


def list_of(path: str, answer: bytes, collection: Collection) -> Tree:
    """A list of the collection. Raises Unreachable where the answer is none."""
    try:
        if collection.fields is not None and is_packed(answer):
            return read_object(answer, list_fields(collection.fields))
        tree = msgspec.json.decode(answer)
    except (*UNREADABLE, Unpackable) as problem:
        raise Unreachable(f"GET {path}: the answer is no list: {problem}") from None
    if not isinstance(tree, dict):
        raise Unreachable(f"GET {path}: the answer is no list")
    return tree


def event_of(tried: str, line: bytes, collection: Collection) -> tuple[str, Tree]:
    """Type and object of an event. Raises Unreachable where it is none."""
    try:
        if collection.fields is not None and not line.startswith(b"{"):
            event = read_event(line, collection.fields)
        else:
            event = msgspec.json.decode(line)
        return event["type"], event["object"]
    except (*UNREADABLE, Unpackable, KeyError, TypeError) as problem:
        raise Unreachable(f"{tried}: an event is none: {problem}") from None
