"""Why an address could not be had: each error is one sentence that names the pools.

Tested in tests/ipam/test_library.py and tests/ipam/test_restoration.py.
"""

from __future__ import annotations

from libcalico.errors import MuslinError
from libcalico.model.keys import IPNetwork


class IPAMError(MuslinError):
    """The base of every refusal of the allocator."""


class NoPool(IPAMError):
    """No pool may serve the request: none exists, all are disabled, or none selects the node."""


class PoolsExhausted(IPAMError):
    """The pools that may serve the request have no free address for this node."""


class BlockLimit(IPAMError):
    """The node holds as many blocks as it may, and all of them are full."""


class AddressInUse(IPAMError):
    """The requested address is allocated to another holder."""


class SequenceMismatch(IPAMError):
    """The address was given out anew since the caller looked; nothing was released."""


class BlockCorrupt(IPAMError):
    """A stored block breaks the queue invariant; it is not used until someone repairs it."""


class Contention(IPAMError):
    """The retries are used up, because others kept changing the same objects; try again."""


class BadSettings(IPAMError):
    """The allocator's settings contradict each other."""


class NotInPool(IPAMError):
    """The address lies in no enabled pool that allows its use."""


class NotAllocated(IPAMError):
    """Nothing is held under this handle or address."""


class NotOwner(IPAMError):
    """The address or block belongs to another handle or node."""


class BlockInUse(IPAMError):
    """The block still holds addresses, and it was asked to be empty."""


class PoolEdited(IPAMError):
    """The pool was changed or removed since it was read; read it again."""


class NoNode(IPAMError):
    """The node that wants addresses is not in the datastore."""


class BlockOverlaps(IPAMError):
    """A block of another size, `other`, lies where one was to be made."""

    def __init__(self, message: str, other: IPNetwork) -> None:
        super().__init__(message)
        self.other = other


class BlockInDoubt(BlockOverlaps):
    """Addresses of a block are in use, and what has them cannot be read."""


class BlockExpected(BlockOverlaps):
    """A block was deleted under another node, which is to write it again."""
