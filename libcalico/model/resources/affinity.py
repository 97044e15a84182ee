"""The v3 BlockAffinity resource (docs/reference/data-model.md#ipam-objects), which the allocator
does not read in etcd mode.

`deleted` is a boolean in the API and text in etcd (1.6). The structs have the boolean, and the
codec writes `StoredBlockAffinity`. The allocator's claims are
`libcalico.model.resources.ipam.BlockAffinity`.
Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class BlockAffinitySpec(Struct, frozen=True):
    """A node's claim on a block; `state` is confirmed (also empty), pending or pendingDeletion."""

    state: str = always("")
    node: str = always("")
    type: str = ""
    cidr: str = always("")
    deleted: bool | str = always(False)

    def __post_init__(self) -> None:
        # Text that is no boolean is left for `validate`.
        if isinstance(self.deleted, str) and self.deleted in ("true", "false", ""):
            force_setattr(self, "deleted", self.deleted == "true")


class BlockAffinityResource(APIObject, frozen=True, kw_only=True):
    """A claim on a block, as an API object."""

    kind: str = always("BlockAffinity")
    spec: BlockAffinitySpec = always(BlockAffinitySpec())


class _StoredSpec(Struct, frozen=True):
    state: str = always("")
    node: str = always("")
    type: str = ""
    cidr: str = always("")
    deleted: str = always("false")


class StoredBlockAffinity(APIObject, frozen=True, kw_only=True):
    """The resource as etcd holds it."""

    kind: str = always("BlockAffinity")
    spec: _StoredSpec = always(_StoredSpec())


def stored(resource: BlockAffinityResource) -> StoredBlockAffinity:
    """The form that is written."""
    spec = resource.spec
    deleted = spec.deleted if isinstance(spec.deleted, str) else str(spec.deleted).lower()
    return StoredBlockAffinity(
        metadata=resource.metadata,
        spec=_StoredSpec(spec.state, spec.node, spec.type, spec.cidr, deleted),
    )
