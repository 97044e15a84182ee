"""The custom resources that hold a v3 resource as it is: spec and status, metadata packed.

Tested in tests/libcalico/test_kubernetes_objects.py and tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from libcalico.datastore.interface import Put, Selection
from libcalico.datastore.kubernetes.mapping import Asked, Collection, Place, encoded, metadata
from libcalico.datastore.kubernetes.metadata import GROUP, V3, Tree, packed, unpacked
from libcalico.errors import InvalidValue
from libcalico.model import codec
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.kinds import check_name

_STATUS = frozenset({"CalicoNodeStatus", "IPPool", "KubeControllersConfiguration", "Tier"})
_OPTIONAL = frozenset(
    {
        "StagedNetworkPolicy",
        "StagedGlobalNetworkPolicy",
        "StagedKubernetesNetworkPolicy",
        "IPReservation",
        "BGPFilter",
        "CalicoNodeStatus",
    }
)
"""Kinds that came late: a cluster whose definitions are older has none of them."""


@dataclass(frozen=True, slots=True)
class CustomResource:
    """One kind. `plural` names the collection; `stored` is the kind there where it has another.

    `reserved` is the prefix of names of Kubernetes' own objects of the same family. A custom
    resource with such a name must not stand for, or hide, the object that it names.
    """

    kind: str
    plural: str
    namespaced: bool
    stored: str = ""
    reserved: str = ""

    @property
    def collection(self) -> Collection:
        """The collection of this kind."""
        return Collection(
            GROUP,
            self.plural,
            self.stored or self.kind,
            self.namespaced,
            optional=self.kind in _OPTIONAL,
            status=self.kind in _STATUS,
        )

    @property
    def two_phases(self) -> bool:
        """False: these are deleted at once."""
        return False

    def place(self, key: Key) -> Place | None:
        """The place by the key's name."""
        assert isinstance(key, ResourceKey)
        return Place(key.name, key.namespace)

    def key(self, tree: Tree) -> Key | None:
        """The key by the object's name. Raises InvalidValue for a reserved name."""
        meta = metadata(tree)
        namespace = meta.get("namespace", "") if self.namespaced else ""
        key = ResourceKey(self.kind, meta.get("name", ""), namespace)
        if self.reserved and key.name.startswith(self.reserved):
            rule = f"names of {self.reserved}* belong to Kubernetes' own policies; rename it"
            raise InvalidValue("metadata.name", key.name, rule, str(key))
        return key

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The v3 form; unknown fields of spec and status are kept."""
        document = {
            "kind": self.kind,
            "apiVersion": V3,
            "metadata": unpacked(self.kind, metadata(tree)),
        }
        document |= {part: tree[part] for part in ("spec", "status") if part in tree}
        return encoded(document)

    def asked(self, selection: Selection) -> Asked:
        """Restrict the request to the selection's namespace, if it has one."""
        return Asked(selection.namespace if self.namespaced else "")

    def body(self, put: Put, before: Tree | None) -> Tree:
        """The custom resource.

        Native labels of others stay (Calico's own client would lose them).
        """
        key = put.key
        assert isinstance(key, ResourceKey)
        check_name(key, put.value)
        base = put.base.raw if put.base else None
        tree: Tree = msgspec.json.decode(codec.encode_value(key, put.value, base))
        document: Tree = {
            "apiVersion": GROUP,
            "kind": self.stored or self.kind,
            "metadata": packed(self.kind, tree["metadata"], metadata(before) if before else {}),
        }
        document["metadata"]["name"] = key.name
        document |= {part: tree[part] for part in ("spec", "status") if tree.get(part)}
        document.setdefault("spec", {})
        return document
