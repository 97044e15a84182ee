"""The client's configuration file of the first generation, as today's tree.

It names fields as today's does. Three things differ: the version, the default datastore `etcdv2`,
and the old pair `etcdScheme` and `etcdAuthority` in place of `etcdEndpoints`. Version 2 of etcd is
not supported: the version 3 store of the same servers is used, and a notice says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libcalico.legacy.convert import CONFIG_KIND, is_legacy
from libcalico.model.base.meta import API_VERSION

NOTICE = (
    "datastoreType etcdv2: the etcd version 3 store of these servers is used;"
    " data of version 2 is not read"
)


def as_v3(tree: object) -> tuple[Any, str]:
    """The tree of a CalicoAPIConfig, and a notice for the operator (empty: none).

    A tree that is no v1 calicoApiConfig is returned as it is. An empty `metadata:` or `spec:` is
    null in YAML and means nothing.
    """
    if not is_legacy(tree) or str(tree.get("kind", "")).lower() != CONFIG_KIND.lower():
        return tree, ""
    spec = tree.get("spec")
    notice = ""
    if isinstance(spec, Mapping):
        spec = dict(spec)
        kind = spec.get("datastoreType") or ""
        if kind in ("", "etcdv2"):
            spec["datastoreType"] = "etcdv3"
            notice = NOTICE if kind else ""
        authority = spec.pop("etcdAuthority", None)
        scheme = spec.pop("etcdScheme", None) or "http"
        if authority and not spec.get("etcdEndpoints"):
            spec["etcdEndpoints"] = f"{scheme}://{authority}"
    return {**tree, "apiVersion": API_VERSION, "kind": "CalicoAPIConfig", "spec": spec}, notice
