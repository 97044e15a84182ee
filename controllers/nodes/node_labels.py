"""Labels of a Kubernetes node on its Calico Node, beside those that operators set there.

An annotation holds what was copied last, so that a label that Kubernetes lost is taken away and
one of an operator's is not (docs/reference/data-model.md#labels-of-nodes). Pure. Tested in
tests/controllers/test_node_rules.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec.structs import replace

from libcalico.model import Node

COPIED = "projectcalico.org/kube-labels"


def synced(node: Node, labels: Mapping[str, str]) -> Node | None:
    """The Node with these labels of Kubernetes; None where it has them."""
    metadata = node.metadata
    before = _copied(metadata.annotations.get(COPIED, ""))
    kept = {key: value for key, value in metadata.labels.items() if key not in before}
    record = json.dumps(dict(sorted(labels.items())), separators=(",", ":"), ensure_ascii=False)
    fresh = replace(
        metadata,
        labels={**kept, **labels},
        annotations={**metadata.annotations, COPIED: record},
    )
    if fresh.labels == metadata.labels and before == labels and COPIED in metadata.annotations:
        return None
    return replace(node, metadata=fresh)


def _copied(text: str) -> dict[str, str]:
    try:
        labels = json.loads(text or "{}")
    except ValueError:
        return {}
    return labels if isinstance(labels, dict) else {}
