"""Which collections of the API hold which family of ours: the only place.

RBAC of the manifests follows from it (docs/datastores.md).
Tested in tests/libcalico/test_kubernetes_table.py.
"""

from __future__ import annotations

from functools import cache

from libcalico.conversion import POLICY_PREFIX
from libcalico.conversion.cluster_policy import policy_name
from libcalico.datastore.kubernetes import native
from libcalico.datastore.kubernetes.cluster_policies import ClusterPolicies
from libcalico.datastore.kubernetes.ipam import Affinities, Blocks, Handles, Settings
from libcalico.datastore.kubernetes.mapping import Mapping
from libcalico.datastore.kubernetes.nodes import Nodes
from libcalico.datastore.kubernetes.pods import Pods
from libcalico.datastore.kubernetes.resources import CustomResource
from libcalico.errors import UnsupportedKind
from libcalico.model.keys import (
    AffinityKey,
    BlockKey,
    HandleKey,
    IPAMConfigKey,
    Key,
    ResourceKey,
)
from libcalico.model.kinds import KINDS, kind_named

NOWHERE = frozenset({"FelixStatus", "WorkloadStatus", "HostEndpointStatus", "LiveMigration"})
"""Families that this datastore does not hold: felix reports in CalicoNodeStatus alone."""
_PLAIN: dict[type, str] = {
    BlockKey: "Block",
    AffinityKey: "BlockAffinity",
    HandleKey: "Handle",
    IPAMConfigKey: "IPAMConfig",
}
_OTHERS = {"IPAMConfiguration": ("ipamconfigs", "IPAMConfig")}
_RESERVED = {"NetworkPolicy": POLICY_PREFIX, "GlobalNetworkPolicy": policy_name("")}
_NATIVE = frozenset({"Node", "WorkloadEndpoint", "Profile", *NOWHERE})


class Table:
    """The mappings of each family, in the order in which their objects are listed."""

    def __init__(self, *, pod_cidr: bool = False) -> None:
        self._families: dict[str, tuple[Mapping, ...]] = {
            "Node": (Nodes(pod_cidr),),
            "WorkloadEndpoint": (Pods(),),
            "Profile": (native.NAMESPACES, native.ACCOUNTS),
            "Block": (Blocks(),),
            "BlockAffinity": (Affinities(),),
            "Handle": (Handles(),),
            "IPAMConfig": (Settings(),),
        }
        for kind in KINDS.values():
            if kind.name not in _NATIVE:
                plural, stored = _OTHERS.get(kind.name, (kind.plural, ""))
                reserved = _RESERVED.get(kind.name, "")
                row = CustomResource(kind.name, plural, kind.namespaced, stored, reserved)
                self._families[kind.family] = (row,)
        self._families["NetworkPolicy"] += (native.POLICIES,)
        self._families["GlobalNetworkPolicy"] += (ClusterPolicies(),)

    def of_family(self, family: str) -> tuple[Mapping, ...]:
        """The collections that hold a family; empty for one that this datastore does not hold.

        Raises UnsupportedKind.
        """
        if family in NOWHERE:
            return ()
        mappings = self._families.get(family)
        if mappings is None:
            raise UnsupportedKind(f"{family!r} names nothing that can be listed")
        return mappings

    def of_key(self, key: Key) -> Mapping | None:
        """The collection of an object; None for one that this datastore does not hold.

        Raises UnsupportedKind.
        """
        own: Mapping | None = None
        for mapping in self.of_family(family_of(key)):
            if isinstance(mapping, CustomResource):
                own = mapping
            elif mapping.place(key) is not None:
                return mapping
        return own

    def collections(self) -> set[tuple[str, str]]:
        """Group and plural of every collection."""
        return {
            (mapping.collection.group_version.rpartition("/")[0], mapping.collection.plural)
            for family in self._families.values()
            for mapping in family
        }


@cache
def _family(kind: str) -> str:
    return kind_named(kind).family


def family_of(key: Key) -> str:
    """The family of a key; for a key that this datastore does not hold, some such family."""
    if isinstance(key, ResourceKey):
        return _family(key.kind)
    return _PLAIN.get(type(key), "FelixStatus")
