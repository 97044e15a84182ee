"""What both sides find in etcd before a test, and how stored bytes are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.support.etcd import Etcd

RESOURCES = "/calico/resources/v3/projectcalico.org"
TIERS = ("default", "security", "a", "a-tier")
"""What policies of the documents name: Calico refuses a policy of a tier that is not there."""

# Only these may differ when both create the same object: each draws them itself.
_OWN = (
    (re.compile(rb'"uid":"[0-9a-f-]{36}"'), b'"uid":"-"'),
    (re.compile(rb'"creationTimestamp":"[^"]*"'), b'"creationTimestamp":"-"'),
)


def comparable(raw: bytes | None) -> bytes | None:
    """Stored bytes without what each writer draws by itself."""
    for pattern, constant in _OWN if raw is not None else ():
        assert raw is not None
        raw = pattern.sub(constant, raw)
    return raw


def document(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "") -> str:
    """A resource as JSON text."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    tree = {"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec}
    return json.dumps(tree)


def put_tiers(etcd: Etcd) -> None:
    """The tiers that policies of the documents name."""
    for name in TIERS:
        etcd.put(f"{RESOURCES}/tiers/{name}", document("Tier", name, {"order": 100}))


def everything(etcd: Etcd) -> dict[str, bytes]:
    """All that is stored."""
    found: dict[str, bytes] = {}
    keys = etcd.keys()
    for key in keys:
        value = etcd.get(key)
        assert value is not None
        found[key] = value
    return found


def restore(etcd: Etcd, before: Mapping[str, bytes]) -> None:
    """Make the store what it was; only what changed is written."""
    now = everything(etcd)
    for key in now.keys() - before.keys():
        etcd.ctl("del", key)
    for key, value in before.items():
        if now.get(key) != value:
            etcd.put(key, value)
