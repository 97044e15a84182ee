"""The allocator's objects as custom resources: blocks, affinities, handles, settings.

Their names are made of CIDRs and handle ids, because the API takes fewer characters than etcd.
They are marked as deleted before they are deleted, so that a writer that still works from an
earlier state loses; a reader of a marked one finishes the deletion. Source:
docs/reference/data-model.md#kubernetes-datastore.
Tested in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import msgspec

from libcalico.datastore.interface import Put, Selection
from libcalico.datastore.kubernetes.ipam_names import affinity_labels, affinity_name, cidr_name
from libcalico.datastore.kubernetes.mapping import (
    Asked,
    Collection,
    Place,
    Stored,
    encoded,
    metadata,
)
from libcalico.datastore.kubernetes.metadata import GROUP, Tree, packed
from libcalico.model import codec
from libcalico.model.keys import (
    AffinityKey,
    BlockKey,
    HandleKey,
    IPAMConfigKey,
    IPNetwork,
    Key,
)

_CONFIG = {
    "strict_affinity": "strictAffinity",
    "auto_allocate_blocks": "autoAllocateBlocks",
}


class _Object:
    """The common part of the IPAM objects."""

    two_phases = True
    collection: Collection

    def asked(self, selection: Selection) -> Asked:
        """Ask for all of them."""
        return Asked()

    def place(self, key: Key) -> Place | None:
        """The place by the object's name."""
        return Place(self.name(key))

    def name(self, key: Any) -> str:
        """The name of the custom resource."""
        raise NotImplementedError

    def spec(self, key: Any, tree: Tree) -> Tree:
        """The spec for the tree that etcd would hold."""
        raise NotImplementedError

    def value(self, spec: Tree) -> Tree:
        """The tree that etcd would hold, from the spec."""
        raise NotImplementedError

    def labels(self, key: Any) -> dict[str, str]:
        """The labels of the custom resource."""
        return {}

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The value as etcd holds it, in the very bytes where it has no unknown field."""
        spec = _spec(tree)
        if spec.get("deleted") in (True, "true"):
            return None
        document = self.value(spec)
        raw = encoded(document)
        canonical = codec.encode_value(key, codec.decode_value(key, raw))
        return canonical if msgspec.json.decode(canonical) == document else raw

    def body(self, put: Put, before: Tree | None) -> Tree:
        """The custom resource; unknown fields of its spec stay."""
        base = put.base.raw if put.base else None
        tree = msgspec.json.decode(codec.encode_value(put.key, put.value, base))
        meta = packed("", {"labels": self.labels(put.key)})
        if before is not None:
            meta |= {
                part: metadata(before)[part]
                for part in ("labels", "annotations", "finalizers", "ownerReferences")
                if part in metadata(before)
            }
        meta["name"] = self.name(put.key)
        return {
            "apiVersion": GROUP,
            "kind": self.collection.kind,
            "metadata": meta,
            "spec": self.spec(put.key, tree),
        }


class Blocks(_Object):
    """`Block` is IPAMBlock."""

    collection = Collection(GROUP, "ipamblocks", "IPAMBlock")

    def name(self, key: BlockKey) -> str:
        """The name by the CIDR."""
        return cidr_name(key.cidr)

    def key(self, tree: Tree) -> Key | None:
        """The key by the CIDR."""
        cidr = _network(_spec(tree).get("cidr"))
        return BlockKey(cidr) if cidr else None

    def value(self, spec: Tree) -> Tree:
        """The block without the fields that only the custom resource has."""
        block = {"affinity": None, "unallocated": [], "attributes": [], "deleted": False, **spec}
        block.setdefault("sequenceNumber", 0)
        block.setdefault("sequenceNumberForAllocation", {})
        block.pop("strictAffinity", None)
        if claimed := block.pop("affinityClaimTime", None):
            block["affinity_claim_time"] = claimed
        return block

    def spec(self, key: BlockKey, tree: Tree) -> Tree:
        """The spec; the owner is left out where there is none, `strictAffinity` is always there."""
        host = tree.pop("hostAffinity", None)
        if tree.get("affinity") is None and host:
            tree["affinity"] = f"host:{host}"
        if claimed := tree.pop("affinity_claim_time", None):
            tree["affinityClaimTime"] = claimed
        block = {name: value for name, value in tree.items() if value is not None}
        return {**block, "strictAffinity": False}


class Affinities(_Object):
    """`BlockAffinity`, the allocator's claim."""

    collection = Collection(GROUP, "blockaffinities", "BlockAffinity")

    def name(self, key: AffinityKey) -> str:
        """The name by owner and block."""
        return affinity_name(key.host, key.cidr)

    def key(self, tree: Tree) -> Key | None:
        """The key by owner and block."""
        spec = _spec(tree)
        cidr, host = _network(spec.get("cidr")), spec.get("node")
        return AffinityKey(str(host), cidr, spec.get("type") or "host") if cidr and host else None

    def labels(self, key: AffinityKey) -> dict[str, str]:
        """The labels by which the API finds the claims of a host."""
        return affinity_labels(key.host, key.kind, key.cidr.version)

    def value(self, spec: Tree) -> Tree:
        """The state; the rest is in the key."""
        return {"state": spec.get("state", ""), "deleted": False}

    def spec(self, key: AffinityKey, tree: Tree) -> Tree:
        """The spec; `deleted` is text here."""
        return {
            "state": tree.get("state", ""),
            "node": key.host,
            "type": key.kind,
            "cidr": str(key.cidr),
            "deleted": "true" if tree.get("deleted") else "false",
        }


class Handles(_Object):
    """`Handle` is IPAMHandle; names are lower case, so the id is in its spec."""

    collection = Collection(GROUP, "ipamhandles", "IPAMHandle")

    def name(self, key: HandleKey) -> str:
        """The id in lower case."""
        return key.handle_id.lower()

    def key(self, tree: Tree) -> Key | None:
        """The key by the id."""
        handle = _spec(tree).get("handleID") or metadata(tree).get("name")
        return HandleKey(handle) if handle else None

    def value(self, spec: Tree) -> Tree:
        """The handle without its id."""
        handle = {"block": {}, "deleted": False, **spec}
        handle.pop("handleID", None)
        return handle

    def spec(self, key: HandleKey, tree: Tree) -> Tree:
        """The spec with the id."""
        return {"handleID": key.handle_id, **tree}


class Settings(_Object):
    """`IPAMConfig` and the v3 resource IPAMConfiguration are one object here, `default`."""

    two_phases = False
    collection = Collection(GROUP, "ipamconfigs", "IPAMConfig")

    def name(self, key: Key) -> str:
        """The only name."""
        return "default"

    def key(self, tree: Tree) -> Key | None:
        """The only key."""
        return IPAMConfigKey() if metadata(tree).get("name") == "default" else None

    def value(self, spec: Tree) -> Tree:
        """The settings under their names in etcd; a missing one is off, as in etcd."""
        other = {there: here for here, there in _CONFIG.items()}
        settings = {other.get(name, name): value for name, value in spec.items() if value}
        return settings

    def spec(self, key: Key, tree: Tree) -> Tree:
        """The spec with both switches, or the API server would put its defaults there."""
        settings = {_CONFIG.get(name, name): value for name, value in tree.items()}
        return {"strictAffinity": False, "autoAllocateBlocks": False, **settings}


def _spec(tree: Tree) -> Tree:
    spec = tree.get("spec")
    return spec if isinstance(spec, dict) else {}


def _network(text: object) -> IPNetwork | None:
    try:
        return ip_network(str(text))
    except ValueError:
        return None


MAPPINGS: dict[str, Stored] = {
    "Block": Blocks(),
    "BlockAffinity": Affinities(),
    "Handle": Handles(),
    "IPAMConfig": Settings(),
}
"""By family."""
