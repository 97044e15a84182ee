"""What is asked of the allocator, and what it answers.

A request may bring a companion: one further object (the pod's WorkloadEndpoint) that
changes in the same transaction as block and handle. The allocator does not know what it is.
Tested in tests/ipam/test_planner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ipam.records.blocks import IPAddress
from ipam.records.pools import WORKLOAD
from libcalico.datastore.interface import Change, Entry
from libcalico.model.keys import IPNetwork, Key


@dataclass(frozen=True, slots=True)
class Companion:
    """An object that is written with the addresses.

    `change(current, addresses)` returns its guarded change, or None to leave it alone;
    `addresses_in(current)` returns the addresses that it records for this very attachment already.
    Both are pure. `current` is None where the object is absent or unknown: the change must
    then be guarded as a creation.
    """

    key: Key
    change: Callable[[Entry | None, Sequence[IPAddress]], Change | None]
    addresses_in: Callable[[Entry | None], Sequence[IPAddress]] = lambda _current: ()


@dataclass(frozen=True, slots=True)
class Allocate:
    """Addresses for a handle: of each family one, or as many as `counts` says; all or none.

    `requested` names pools (by name or CIDR) per family and overrides their selectors. `fixed`
    are the very addresses to have: families, counts and requested pools then do not matter, nor
    do reservations. `namespace_labels` serve pools with a namespaceSelector; without them the
    service reads those of `namespace`. With `partial` fewer addresses are an answer as well,
    but never none. `restores`: the fixed addresses are those of a pod that runs, so neither a pool
    that is disabled nor strict affinity matters: free in its block, one would be given out again.
    An attachment that holds its addresses already (`companion.addresses_in`) keeps them. With
    `replaces` the handle gives back what it held before, in the same transaction.
    """

    handle_id: str
    attributes: Mapping[str, str]
    families: tuple[int, ...] = (4,)
    requested: Mapping[int, Sequence[str]] = field(default_factory=dict)
    use: str = WORKLOAD
    companion: Companion | None = None
    fixed: tuple[IPAddress, ...] = ()
    namespace: str = ""
    namespace_labels: Mapping[str, str] | None = None
    counts: Mapping[int, int] = field(default_factory=dict)
    partial: bool = False
    max_blocks: int = 0
    restores: bool = False
    replaces: bool = False

    def count_of(self, family: int) -> int:
        """How many addresses of a family."""
        return self.counts.get(family, 1)


@dataclass(frozen=True, slots=True)
class Release:
    """Everything that a handle holds, except the `spared` addresses of its other interfaces.

    Nothing held is no error. `only` narrows it to some addresses, `attributes` to those whose own
    attributes do not say otherwise. `known` are entries that the caller remembers, so that they
    need not be read; the commit's guards prove them.
    """

    handle_id: str
    spared: frozenset[IPAddress] = frozenset()
    companion: Companion | None = None
    only: frozenset[IPAddress] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[Key, Entry | None] = field(default_factory=dict)


Request = Allocate | Release


@dataclass(frozen=True, slots=True)
class Granted:
    """Done: the addresses that were assigned, kept or released; `fresh` if newly assigned.

    `entries` are the handle and the companion's object as they are after the commit, as far
    as the allocator knows them.
    """

    addresses: tuple[IPAddress, ...]
    fresh: bool = True
    entries: Mapping[Key, Entry | None] = field(default_factory=dict)

    def revision_of(self, key: Key) -> int:
        """The datastore's revision of one of `entries`; 0: it is not known."""
        entry = self.entries.get(key)
        return entry.revision if entry is not None else 0


@dataclass(frozen=True, slots=True)
class Short:
    """The blocks at hand lack `missing` addresses of this family; family 0: ask again later."""

    family: int
    missing: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """The request cannot be served; nothing of it was done."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A fixed address lies in a block without owner: claim it first."""

    cidr: IPNetwork


Answer = Granted | Short | Refused | Unclaimed
