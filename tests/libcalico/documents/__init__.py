"""Documents that Calico refuses, and borderline ones that it takes: one module by subject.

A case is one YAML document. Refused ones say at which path and by which rule; what stands
in these tables was taken from the rules of the reference, not from our validators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from libcalico.errors import InvalidValue
from libcalico.model.base.shape import shape_problems
from libcalico.model.codec import resource_from_tree
from libcalico.model.defaults import apply_defaults
from libcalico.model.kinds import KINDS
from libcalico.model.validation.validate import problems

NAMESPACED = frozenset(kind.name for kind in KINDS.values() if kind.namespaced)


@dataclass(frozen=True, slots=True)
class Refused:
    """A document with one fault: its path and a part of the rule."""

    id: str
    text: str
    path: str
    rule: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A document at the border, on the right side of it."""

    id: str
    text: str


def document(kind: str, spec: str, metadata: str = "", tail: str = "") -> str:
    """The YAML of a resource; `metadata` and `spec` in flow style, without braces."""
    if "name:" not in metadata.replace("generateName:", ""):
        metadata = f"name: x, {metadata}".rstrip(", ")
    if kind in NAMESPACED and "namespace:" not in metadata:
        metadata += ", namespace: default"
    lines = [
        "apiVersion: projectcalico.org/v3",
        f"kind: {kind}",
        f"metadata: {{{metadata}}}",
        f"spec: {{{spec}}}",
        tail,
    ]
    return "\n".join(lines) + "\n"


def complaints(text: str) -> list[InvalidValue]:
    """All that `calicoctl` would say about a document, types before values."""
    tree: dict[str, Any] = yaml.safe_load(text)
    errors = shape_problems(KINDS[tree["kind"]].type, tree)
    if errors:
        return errors
    return problems(apply_defaults(resource_from_tree(tree)))
