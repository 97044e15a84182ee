"""What a check of IPAM's records may find, in which classes.

`ipam.admin.check` finds, `ipam.admin.report` writes to a file, `calicoctl ipam check` prints. What
needs no action is a note, not a problem: a claim that its node will settle, an address that cools
down. Tested in tests/ipam/test_check.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ipam.records.blocks import IPAddress
from libcalico.model.keys import IPNetwork


class Kind(StrEnum):
    """The classes of findings."""

    LEAKED = "allocated but not in use"
    NOT_IN_POOL = "in use but in no active pool"
    NOT_ALLOCATED = "in use but not allocated"
    DOUBLE_OWNER = "several owners"
    HANDLE_UNUSED = "handle without addresses"
    HANDLE_MISSING = "handle missing"
    HANDLE_COUNT = "handle counts wrong"
    BLOCKS_OVERLAP = "blocks overlap"
    BLOCK_INVALID = "block invalid"
    BLOCK_SIZE = "block of another size than its pool"
    BLOCK_UNCLAIMED = "block without affinity"
    AFFINITY_STALE = "affinity without block"
    UNREADABLE = "not readable"
    # Notes.
    NODE_MISSING = "of a node that is no Node"
    CLAIM_UNSETTLED = "claim not settled yet"
    BLOCK_ORPHANED = "block in no pool"
    COOLING = "cooling down"
    RESERVED = "allocated and reserved"


NOTES = frozenset(
    {
        Kind.NODE_MISSING,
        Kind.CLAIM_UNSETTLED,
        Kind.BLOCK_ORPHANED,
        Kind.COOLING,
        Kind.RESERVED,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` is the address, block CIDR or handle id that it is about."""

    kind: Kind
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """One allocation and who uses it: an entry of the report file.

    `node` is the attribute, else the block's owner; `sequence` None in very old data.
    """

    address: IPAddress
    block: IPNetwork
    handle_id: str
    sequence: int | None
    attributes: Mapping[str, str]
    node: str
    borrowed: bool
    cooling: bool
    in_use: bool
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything found. `problems` need an operator's action, `notes` do not."""

    records: tuple[Record, ...]
    problems: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    def of(self, *kinds: Kind) -> list[Finding]:
        """The problems and notes of some classes."""
        return [one for one in (*self.problems, *self.notes) if one.kind in kinds]

    def leaked(self) -> list[Record]:
        """The allocations that are not in use."""
        return [record for record in self.records if not record.in_use and not record.cooling]
