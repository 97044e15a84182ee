"""Kubernetes' own objects that are only read: namespaces, service accounts, network policies.

They are changed in Kubernetes, not here.
Source: docs/reference/data-model.md#labels-and-profiles-of-pods, #kubernetes-networkpolicy. Tested
in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from libcalico.conversion import (
    POLICY_PREFIX,
    namespace_profile,
    network_policy,
    service_account_profile,
)
from libcalico.datastore.interface import Selection
from libcalico.datastore.kubernetes.mapping import Asked, Collection, Place, metadata
from libcalico.datastore.kubernetes.metadata import Tree, native_metadata
from libcalico.model import codec
from libcalico.model.base.base import Struct
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import Key, ResourceKey

NAMESPACE, ACCOUNT = "kns.", "ksa."


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """One collection; `convert` makes the resource from the object."""

    collection: Collection
    kind: str
    convert: Callable[[Tree], Struct]
    named: Callable[[str, str], str]
    """The name of the resource, of the object's namespace and name."""
    placed: Callable[[ResourceKey], Place | None]

    def place(self, key: Key) -> Place | None:
        """The place by the key's name, without its prefix."""
        assert isinstance(key, ResourceKey)
        return self.placed(key)

    def key(self, tree: Tree) -> Key | None:
        """The key of the resource."""
        meta = metadata(tree)
        space = meta.get("namespace", "")
        namespace = space if self.kind == "NetworkPolicy" else ""
        return ResourceKey(self.kind, self.named(space, meta.get("name", "")), namespace)

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The v3 form of the object."""
        assert isinstance(key, ResourceKey)
        value = self.convert(tree)
        shown = msgspec.convert(native_metadata(tree, key.name, key.namespace), Metadata)
        return codec.encode_value(key, msgspec.structs.replace(value, metadata=shown))

    def asked(self, selection: Selection) -> Asked:
        """Restrict the request to the selection's namespace, if it has one."""
        return Asked(selection.namespace if self.kind == "NetworkPolicy" else "")


def _namespace_place(key: ResourceKey) -> Place | None:
    return Place(key.name[len(NAMESPACE) :]) if key.name.startswith(NAMESPACE) else None


def _account_place(key: ResourceKey) -> Place | None:
    if not key.name.startswith(ACCOUNT):
        return None
    namespace, _, name = key.name[len(ACCOUNT) :].partition(".")
    return Place(name, namespace) if name else None


def _policy_place(key: ResourceKey) -> Place | None:
    if not key.name.startswith(POLICY_PREFIX):
        return None
    return Place(key.name[len(POLICY_PREFIX) :], key.namespace)


NAMESPACES = ReadOnly(
    Collection("v1", "namespaces", "Namespace"),
    "Profile",
    namespace_profile,
    lambda _, name: NAMESPACE + name,
    _namespace_place,
)
ACCOUNTS = ReadOnly(
    Collection("v1", "serviceaccounts", "ServiceAccount", namespaced=True),
    "Profile",
    service_account_profile,
    lambda namespace, name: f"{ACCOUNT}{namespace}.{name}",
    _account_place,
)
POLICIES = ReadOnly(
    Collection("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", namespaced=True),
    "NetworkPolicy",
    lambda tree: network_policy(tree)[0],
    lambda _, name: POLICY_PREFIX + name,
    _policy_place,
)
