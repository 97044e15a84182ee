"""Values in the annotations of a Node: addresses, interfaces, pairs of text, read with care.

Tested in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from ipaddress import ip_interface
from typing import Any

import msgspec

from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.model.resources.node import NodeInterface

_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")


def readable(word: str, text: str) -> bool:
    """Whether an annotation is an address of the type that its name says."""
    if "MACAddr" in word:
        return _MAC.fullmatch(text) is not None
    if "Addr" not in word:
        return True
    with suppress(ValueError):
        return ip_interface(text).version == (6 if word.startswith("IPv6") else 4)
    return False


def interfaces_of(text: str) -> list[object] | None:
    """The interfaces in an annotation of a node; None where they cannot be read."""
    with suppress(ValueError, RecursionError):
        interfaces = json.loads(text)
        msgspec.convert(interfaces, list[NodeInterface])
        return interfaces if isinstance(interfaces, list) else None
    return None


def pairs_of(text: str | None) -> tuple[dict[str, str], bool]:
    """The pairs of text in an annotation, and whether it holds nothing else."""
    if not text:
        return {}, True
    with suppress(ValueError, RecursionError):
        pairs = json.loads(text)
        if isinstance(pairs, dict):
            kept = {name: one for name, one in pairs.items() if isinstance(one, str)}
            return kept, len(kept) == len(pairs)
    return {}, False


def set_at(tree: Tree, path: tuple[str, ...], value: object) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def value_at(tree: Tree, path: tuple[str, ...]) -> Any:
    value: Any = tree
    for step in path:
        value = (value or {}).get(step)
    return value if value not in ("", None) else None


def as_text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
