"""Which collections of the API hold which family of ours: the only place.

RBAC of the manifests follows from it (docs/datastores.md). The mappings of a family are made when
it is asked for: a short command needs one or two of them, and not what the others import.
Tested in tests/libcalico/test_kubernetes_table.py.
"""

from __future__ import annotations

from functools import cache

from libcalico.datastore.kubernetes.mapping import Mapping
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
_NATIVE = frozenset({"Node", "WorkloadEndpoint", "Profile", *NOWHERE})
_CUSTOM = {kind.family: kind for kind in KINDS.values() if kind.name not in _NATIVE}
_FAMILIES = ("Node", "WorkloadEndpoint", "Profile", *_PLAIN.values(), *_CUSTOM)


class Table:
    """The mappings of each family, in the order in which their objects are listed."""

    def __init__(self, *, pod_cidr: bool = False) -> None:
        self._pod_cidr = pod_cidr
        self._families: dict[str, tuple[Mapping, ...]] = {}

    def of_family(self, family: str) -> tuple[Mapping, ...]:
        """The collections that hold a family; empty for one that this datastore does not hold.

        Raises UnsupportedKind.
        """
        if family in NOWHERE:
            return ()
        mappings = self._families.get(family)
        if mappings is None:
            if family not in _FAMILIES:
                raise UnsupportedKind(f"{family!r} names nothing that can be listed")
            mappings = self._families[family] = self._made(family)
        return mappings

    def _made(self, family: str) -> tuple[Mapping, ...]:
        match family:
            case "Node":
                from libcalico.datastore.kubernetes.nodes import Nodes

                return (Nodes(self._pod_cidr),)
            case "WorkloadEndpoint":
                from libcalico.datastore.kubernetes.pods import Pods

                return (Pods(),)
            case "Profile":
                from libcalico.datastore.kubernetes import native

                return native.NAMESPACES, native.ACCOUNTS
            case "NetworkPolicy":
                from libcalico.conversion import POLICY_PREFIX
                from libcalico.datastore.kubernetes import native

                return _custom(family, POLICY_PREFIX), native.POLICIES
            case "GlobalNetworkPolicy":
                from libcalico.datastore.kubernetes.cluster_policies import PREFIX, ClusterPolicies

                return _custom(family, PREFIX), ClusterPolicies()
            case "Block" | "BlockAffinity" | "Handle" | "IPAMConfig":
                from libcalico.datastore.kubernetes.ipam import MAPPINGS

                return (MAPPINGS[family],)
            case _:
                return (_custom(family),)

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
            for family in _FAMILIES
            for mapping in self.of_family(family)
        }


def _custom(family: str, reserved: str = "") -> CustomResource:
    """The mapping of a custom resource. `reserved`: names that begin so are not its own."""
    kind = _CUSTOM[family]
    plural, stored = _OTHERS.get(kind.name, (kind.plural, ""))
    return CustomResource(kind.name, plural, kind.namespaced, stored, reserved)


@cache
def _family(kind: str) -> str:
    return kind_named(kind).family


def family_of(key: Key) -> str:
    """The family of a key; for a key that this datastore does not hold, some such family."""
    if isinstance(key, ResourceKey):
        return _family(key.kind)
    return _PLAIN.get(type(key), "FelixStatus")
