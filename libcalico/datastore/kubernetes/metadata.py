"""An object's metadata between `projectcalico.org/v3` and its custom resource.

Calico packs what it knows into an annotation of the custom resource, because the API server has
its own mind about the rest. Labels and annotations of the projects' own domains stand beside it
natively, so that selectors of the API find them. Source:
docs/reference/data-model.md#kubernetes-datastore.
Tested in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from libcalico.kubernetes.errors import UNREADABLE
from libcalico.model.resources.policy import NAME_ANNOTATION

Tree = dict[str, Any]
PACKED = "projectcalico.org/metadata"
NATIVE = ("projectcalico.org/", "operator.tigera.io/")
NAMED = frozenset(
    {"NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy"}
)
"""Kinds whose packed metadata holds the name that people see."""
GROUP, V3 = "crd.projectcalico.org/v1", "projectcalico.org/v3"
_LEFT_OUT = (
    "name",
    "namespace",
    "resourceVersion",
    "uid",
    "selfLink",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_REVERSED = [int(f"{byte:08b}"[::-1], 2) for byte in range(256)]


def shown_uid(uid: str) -> str:
    """The uid under which Calico shows a Kubernetes object: its own inverse.

    The bits of each byte are reversed, except where a UUID keeps its version and variant.
    """
    try:
        raw = bytes.fromhex(uid.replace("-", ""))
    except ValueError:
        return uid
    if len(raw) != 16:
        return uid
    text = bytes(b if at in (6, 8) else _REVERSED[b] for at, b in enumerate(raw)).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def packed(kind: str, metadata: Tree, before: Tree | None = None) -> Tree:
    """The metadata of a custom resource from that of a v3 object, without a resourceVersion.

    Labels and annotations that others gave the custom resource `before` stay where they are.
    """
    annotations, labels = (dict(metadata.get(part) or {}) for part in ("annotations", "labels"))
    annotations.pop(NAME_ANNOTATION, None)
    before = before or {}
    given = {part: _of_others(before.get(part) or {}) for part in ("annotations", "labels")}
    # What only repeats them would stand still when others change theirs.
    annotations = _without(annotations, given["annotations"])
    labels = _without(labels, given["labels"])
    metadata = {**metadata, "labels": labels}
    inner: Tree = {key: value for key, value in metadata.items() if key not in _LEFT_OUT and value}
    if annotations:
        inner["annotations"] = dict(sorted(annotations.items()))
    else:
        inner.pop("annotations", None)
    if kind in NAMED:
        inner = {"name": metadata.get("name", ""), **inner}
    native: Tree = {"name": metadata.get("name", "")}
    if metadata.get("namespace"):
        native["namespace"] = metadata["namespace"]
    if own := {**given["labels"], **_native(labels)}:
        native["labels"] = own
    if finalizers := metadata.get("finalizers"):
        native["finalizers"] = list(finalizers)
    if owners := metadata.get("ownerReferences"):
        native["ownerReferences"] = [_owner(one, V3, GROUP) for one in owners]
    text = _text(inner)
    native["annotations"] = {**given["annotations"], **_native(annotations), PACKED: text}
    return native


def unpacked(kind: str, native: Tree) -> Tree:
    """The v3 metadata of a custom resource; policies keep their name where the codec reads it."""
    annotations = dict(native.get("annotations") or {})
    inner = _inner(annotations.pop(PACKED, ""))
    labels = {**(native.get("labels") or {}), **(inner.get("labels") or {})}
    annotations |= inner.get("annotations") or {}
    if kind in NAMED and inner.get("name"):
        annotations[NAME_ANNOTATION] = _text({"name": inner["name"]})
    owners = [_owner(one, GROUP, V3) for one in native.get("ownerReferences") or ()]
    meta: Tree = {
        **inner,
        "name": native.get("name", ""),
        "namespace": native.get("namespace", ""),
        "uid": shown_uid(str(native.get("uid", ""))),
        "creationTimestamp": inner.get("creationTimestamp") or native.get("creationTimestamp", ""),
        "deletionTimestamp": native.get("deletionTimestamp"),
        "labels": dict(sorted(labels.items())),
        "annotations": dict(sorted(annotations.items())),
        "finalizers": native.get("finalizers") or inner.get("finalizers"),
        "ownerReferences": owners or inner.get("ownerReferences"),
    }
    return {key: value for key, value in meta.items() if value}


def native_metadata(tree: Tree, name: str, namespace: str = "") -> Tree:
    """The v3 metadata of a resource that stands for one of Kubernetes' own objects."""
    meta = tree.get("metadata") or {}
    shown = {
        "name": name,
        "namespace": namespace,
        "uid": shown_uid(str(meta.get("uid", ""))),
        "creationTimestamp": meta.get("creationTimestamp"),
    }
    return {key: value for key, value in shown.items() if value}


def _text(tree: Tree) -> str:
    return msgspec.json.encode(tree).decode()


def _inner(text: str) -> Tree:
    with suppress(*UNREADABLE):
        meta = msgspec.json.decode(text)
        if isinstance(meta, dict):
            return {key: value for key, value in meta.items() if value is not None}
    return {}


def _native(texts: Mapping[str, str]) -> dict[str, str]:
    return {key: texts[key] for key in sorted(texts) if any(one in key for one in NATIVE)}


def _of_others(texts: Mapping[str, str]) -> dict[str, str]:
    ours = _native(texts)
    return {key: text for key, text in texts.items() if key not in ours}


def _without(texts: Mapping[str, str], repeated: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in texts.items() if repeated.get(key) != text}


def _owner(reference: Tree, before: str, after: str) -> Tree:
    owner = dict(reference)
    if owner.get("apiVersion") == before:
        owner["apiVersion"] = after
        owner["uid"] = shown_uid(str(owner.get("uid", "")))
    return owner
