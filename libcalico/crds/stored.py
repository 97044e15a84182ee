"""The specs of IPAM's objects in Kubernetes
(docs/reference/data-model.md#kubernetes-datastore).

They differ from those in etcd (`libcalico.model.resources.ipam`). A block's spec has
`strictAffinity`, which is always written and never read, and spells the time of its claim
otherwise. A handle says its own name, since object names are lower case. `deleted` of an affinity
is text.
Tested in tests/libcalico/test_crds.py and tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.resources.ipam import Attribute


class IPAMBlockSpec(Struct, frozen=True, kw_only=True):
    """One block of addresses, and the holder of each."""

    cidr: str
    affinity: str | None = None
    affinityClaimTime: str | None = None
    allocations: list[int | None]
    unallocated: list[int] = always([])
    attributes: list[Attribute] = always([])
    sequenceNumber: int = always(0)
    sequenceNumberForAllocation: dict[str, int] = {}
    deleted: bool = False
    strictAffinity: bool = always(False)


class IPAMHandleSpec(Struct, frozen=True, kw_only=True):
    """The addresses of a handle: block CIDR and number of addresses."""

    handleID: str
    block: dict[str, int] = always({})
    deleted: bool = False


class BlockAffinitySpec(Struct, frozen=True, kw_only=True):
    """A claim on a block; `state` is confirmed (also empty), pending or pendingDeletion."""

    state: str = always("")
    node: str = always("")
    type: str = ""
    cidr: str = always("")
    deleted: str = always("false")


class IPAMConfigSpec(Struct, frozen=True, kw_only=True):
    """The allocator's settings, which `IPAMConfiguration` shows."""

    strictAffinity: bool = always(False)
    autoAllocateBlocks: bool = always(True)
    maxBlocksPerHost: int = 0
    kubeVirtVMAddressPersistence: str | None = None
    ipCooldownSeconds: int = 0
