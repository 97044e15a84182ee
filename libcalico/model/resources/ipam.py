"""Block IPAM: plain values with the JSON names Calico stores
(docs/reference/data-model.md#ipam-keys, #ipam-objects, #block).

Tested in tests/libcalico/test_golden.py and tests/ipam/test_blocks.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject

CONFIRMED, PENDING, PENDING_DELETION = "confirmed", "pending", "pendingDeletion"


class Attribute(Struct, frozen=True):
    """The holder of addresses of a block: a handle and its attributes."""

    handle_id: str | None = None
    secondary: dict[str, str] = {}
    alternateOwnerAttrs: dict[str, str] = {}
    releasedAt: str | None = None


class Block(Struct, frozen=True, kw_only=True):
    """One block. `allocations[i]` is None (free) or an index into `attributes`.

    Every ordinal is either allocated or exactly once in the queue `unallocated`.
    `affinity` is `host:<node>`, `virtual:load-balancer` or None; very old data may carry
    the node's name in `hostAffinity` instead.
    """

    cidr: str
    affinity: str | None = always(None)
    affinity_claim_time: str | None = None
    allocations: list[int | None]
    unallocated: list[int] = always([])
    attributes: list[Attribute] = always([])
    sequenceNumber: int = always(0)
    sequenceNumberForAllocation: dict[str, int] = always({})
    deleted: bool = always(False)
    hostAffinity: str | None = None

    @property
    def owner(self) -> str | None:
        """The affinity, from either of its two spellings."""
        if self.affinity is None and self.hostAffinity:
            return f"host:{self.hostAffinity}"
        return self.affinity


class BlockAffinity(Struct, frozen=True):
    """A claim on a block; `state` is confirmed (also empty), pending or pendingDeletion."""

    state: str = always(CONFIRMED)
    deleted: bool = always(False)

    @property
    def confirmed(self) -> bool:
        """Whether the block may be used; older nodes wrote no state."""
        return self.state in (CONFIRMED, "")


class Handle(Struct, frozen=True):
    """The addresses of a handle: block CIDR -> number of addresses."""

    block: dict[str, int] = always({})
    deleted: bool = always(False)


class IPAMConfig(Struct, frozen=True):
    """The allocator's settings as stored; absent means `DEFAULT_IPAM_CONFIG`."""

    strict_affinity: bool = False
    auto_allocate_blocks: bool = False
    maxBlocksPerHost: int = 0
    kubeVirtVMAddressPersistence: str | None = None
    ipCooldownSeconds: int = 0


DEFAULT_IPAM_CONFIG = IPAMConfig(strict_affinity=False, auto_allocate_blocks=True)


class IPAMConfigurationSpec(Struct, frozen=True):
    """The v3 resource's settings, which the allocator does not read in etcd mode."""

    strictAffinity: bool = always(False)
    maxBlocksPerHost: int = 0
    autoAllocateBlocks: bool = always(True)
    kubeVirtVMAddressPersistence: str | None = None
    ipCooldownSeconds: int = 0


class IPAMConfiguration(APIObject, frozen=True, kw_only=True):
    """The v3 resource named `default`."""

    kind: str = always("IPAMConfiguration")
    spec: IPAMConfigurationSpec = always(IPAMConfigurationSpec())
