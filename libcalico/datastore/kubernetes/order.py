"""The order in which the changes of a commit are applied, where there are no transactions.

At every moment between two of these writes, wherever a process dies:

Invariants (tests/libcalico/test_kubernetes_order.py, tests/apiserver/test_kdd_crash.py):
  KDD-1  A handle counts at least what the blocks hold for it: it grows before its blocks and
         shrinks after them. So a reader that knows a handle finds all of its addresses.
  KDD-2  An address is free in its block only after no endpoint of the same commit has it: an
         endpoint goes before its addresses, and comes after them.
  KDD-3  A claim is confirmed after its block is written, and removed after its block is gone or
         has lost its owner; a block is created only while a claim on it stands.

A process that dies leaves addresses, handles or claims behind that are not in use: the allocator
takes half-made claims up, and the collector takes the rest back (docs/ipam.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from libcalico.datastore.interface import ABSENT, Change, Check, Delete, Put
from libcalico.model import Handle
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, Key, ResourceKey
from libcalico.model.resources.ipam import PENDING, BlockAffinity

Before = Callable[[Key], Handle | None]
Phase = list[Change]


def phases(changes: Sequence[Change], before: Before) -> list[Phase]:
    """Groups of writes: one group after the other, the writes of a group in any order.

    A key may come twice, with an intermediate state and its final one; the guard of the second
    applies to the result of the first. `before` gives the present state of a handle. `Check`s are
    left out.
    """
    detached: Phase = []
    wide: Phase = []
    blocks: Phase = []
    claims: Phase = []
    narrow: Phase = []
    attached: Phase = []
    others: list[Phase] = []
    created = {
        change.key.cidr
        for change in changes
        if isinstance(change.key, BlockKey) and isinstance(change, Put) and change.guard == ABSENT
    }
    for change in changes:
        key = change.key
        if isinstance(change, Check):
            continue
        if isinstance(key, BlockKey):
            blocks.append(change)
        elif isinstance(key, AffinityKey):
            confirmed = isinstance(change, Put) and change.value.confirmed
            if confirmed and change.guard == ABSENT and key.cidr in created:
                assert isinstance(change, Put)
                wide.append(replace(change, value=BlockAffinity(state=PENDING)))
            (claims if confirmed or isinstance(change, Delete) else wide).append(change)
        elif isinstance(key, HandleKey):
            first, last = _handle(change, before(key))
            wide += first
            narrow += last
        elif isinstance(key, ResourceKey) and key.kind == "WorkloadEndpoint":
            (detached if isinstance(change, Delete) else attached).append(change)
        else:
            others.append([change])
    return [phase for phase in (detached, wide, blocks, claims, narrow, *others, attached) if phase]


def _handle(change: Change, old: Handle | None) -> tuple[Phase, Phase]:
    """The writes before the blocks, and those after them."""
    had = dict(old.block) if old else {}
    if isinstance(change, Delete):
        return [], [change]
    assert isinstance(change, Put)
    desired = change.value.block
    widest = {cidr: max(had.get(cidr, 0), desired.get(cidr, 0)) for cidr in {**had, **desired}}
    if widest == desired:
        return [change], []
    if widest == had:
        return [], [change]
    between = replace(change, value=Handle(block=dict(sorted(widest.items()))))
    return [between], [change]


def is_handle(change: Change) -> bool:
    """Whether a change writes a handle, so that its present counts must be read."""
    return isinstance(change.key, HandleKey) and isinstance(change, Put)
