"""What one request would take or give back, given what the group before it does. Pure.

Source: docs/reference/data-model.md#automatic-assignment step 6 and 7 (own blocks, then borrowed
ones), 4.6 (fixed addresses), 4.7 (release). Tested in tests/ipam/test_planner.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from ipam.allocator.release_choice import blocks_of, give_back
from ipam.allocator.requests import Allocate, Answer, Companion, Granted, Release, Short, Unclaimed
from ipam.allocator.transaction_draft import Step, TransactionDraft
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from ipam.records.errors import NotOwner
from ipam.records.pool_choice import serving
from ipam.records.pools import Pool, within
from libcalico.model import Block
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork

MAX_CHANGES = 124


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a request may take its addresses from, in this order.

    `affine` are this node's confirmed blocks, `borrowable` blocks of others that may be
    used because no block can be claimed any more. `reserved` networks are given out only by
    name. Times are nanoseconds, the cool-down seconds (0: none).
    """

    host: str
    affine: Sequence[IPNetwork] = ()
    borrowable: Sequence[IPNetwork] = ()
    strict: bool = False
    reserved: Sequence[IPNetwork] = ()
    now: int = 0
    cooldown: int = 0


def choose_addresses(
    draft: TransactionDraft, request: Allocate, usable: Sequence[Pool], sources: Sources
) -> tuple[Answer, Step]:
    """The addresses that a request gets, and what changes by that."""
    companion = request.companion
    step = Step(request.handle_id, request.attributes)
    if companion and (kept := _kept(draft, request, companion, step)):
        step.companion = companion.change(draft.view.get(companion.key), kept)
        return Granted(tuple(kept), fresh=False), step
    answer = (
        _fixed(draft, request, usable, sources, step)
        if request.fixed
        else _automatic(draft, request, usable, sources, step)
    )
    if isinstance(answer, Granted) and request.replaces:
        give_back(draft, Release(request.handle_id), step)
    if isinstance(answer, Granted) and companion:
        step.companion = companion.change(draft.view.get(companion.key), answer.addresses)
    return answer, step


def _automatic(
    draft: TransactionDraft, request: Allocate, usable: Sequence[Pool], sources: Sources, step: Step
) -> Answer:
    companion = request.companion
    got: list[IPAddress] = []
    for family in request.families:
        count = request.count_of(family)
        taken = _take(draft, usable, family, count, sources, step)
        if len(taken) < count and not (request.partial and taken):
            if companion:
                # Before more is sought: perhaps this attachment has its address already.
                draft.require(companion.key)
            return Short(family, count - len(taken))
        got += taken
    return Granted(tuple(got))


def _take(
    draft: TransactionDraft,
    usable: Sequence[Pool],
    family: int,
    count: int,
    sources: Sources,
    step: Step,
) -> list[IPAddress]:
    taken: list[IPAddress] = []
    # One transaction takes so many objects; the handle and the companion are two of them.
    room = MAX_CHANGES - 2 - len(step.given)
    names = tuple(pool.name for pool in usable)
    candidates = draft.candidates.get((family, names))
    if candidates is None:
        candidates = list(_candidates(draft, usable, family, sources))
        draft.candidates[family, names] = candidates
    dry = 0
    for key, reserved in candidates:
        if len(taken) >= count or room <= 0:
            break
        edit = draft.edit(key)
        assert edit is not None
        ordinals = edit.free(count - len(taken), reserved)
        if ordinals:
            room -= 1
            taken += _note(draft, step, key, ordinals)
        elif not taken:
            dry += 1
    # What is dry stays so, but for what a release of this plan frees: then the list is made anew.
    del candidates[:dry]
    return taken


def _candidates(
    draft: TransactionDraft, usable: Sequence[Pool], family: int, sources: Sources
) -> Iterator[tuple[BlockKey, Collection[int]]]:
    own = blocks.owner_text(sources.host)
    borrowable = () if sources.strict else sources.borrowable
    # A block twice would give one ordinal twice to one request.
    for cidr in dict.fromkeys((*sources.affine, *borrowable)):
        if cidr.version != family:
            continue
        key = BlockKey(cidr)
        block: Block | None = draft.view.value(key)
        if block is None or not (block.unallocated or draft.frees(key)):
            continue
        if not any(within(cidr, pool.cidr) for pool in usable) or not draft.view.sound(key):
            continue
        if not sources.strict or block.owner == own:
            yield key, blocks.reserved_ordinals(cidr, sources.reserved)


def _note(
    draft: TransactionDraft, step: Step, key: BlockKey, ordinals: list[int]
) -> list[IPAddress]:
    step.given.append((key, ordinals))
    cidr = str(key.cidr)
    step.handle[cidr] = step.handle.get(cidr, 0) + len(ordinals)
    return draft.addresses(key, ordinals)


def _fixed(
    draft: TransactionDraft, request: Allocate, usable: Sequence[Pool], sources: Sources, step: Step
) -> Answer:
    companion = request.companion
    if companion:
        # Perhaps this attachment has the addresses already: then they are not in others' use.
        draft.require(companion.key)
    by_block: dict[BlockKey, list[IPAddress]] = {}
    for address in dict.fromkeys(request.fixed):
        pool = serving(usable, address, request.use, disabled=request.restores)
        block_network = ip_network(f"{address}/{pool.block_size}", strict=False)
        by_block.setdefault(BlockKey(block_network), []).append(address)
    draft.require(*by_block)
    for key, addresses in by_block.items():
        edit = draft.edit(key)
        if edit is None:
            return Unclaimed(key.cidr)
        blocks.require_sound(edit.block)
        owner = edit.block.owner
        strict = sources.strict and not request.restores
        if strict and owner != blocks.owner_text(sources.host):
            raise NotOwner(
                f"address {addresses[0]} is in block {key.cidr} of {owner or 'no owner'}, and "
                f"strict affinity lets {sources.host} use its own blocks only"
            )
        ordinals = [int(a) - int(key.cidr.network_address) for a in addresses]
        for ordinal, address in zip(ordinals, addresses, strict=True):
            blocks.require_free(edit, ordinal, address)
        _note(draft, step, key, ordinals)
    return Granted(tuple(request.fixed))


def _kept(
    draft: TransactionDraft, request: Allocate, companion: Companion, step: Step
) -> list[IPAddress]:
    """The addresses that this attachment has already, if they are all still its own."""
    addresses = list(companion.addresses_in(draft.view.get(companion.key)))
    if not addresses:
        return []
    if request.fixed:
        if set(addresses) != set(request.fixed):
            return []
    elif {address.version for address in addresses} != set(request.families):
        return []
    draft.require(HandleKey(request.handle_id))
    owned: set[IPAddress] = set()
    for key in blocks_of(draft, draft.handle(request.handle_id)):
        step.seen.append(key)
        edit = draft.edit(key)
        if edit is not None:
            owned.update(draft.addresses(key, edit.ordinals_of(request.handle_id)))
    return addresses if owned.issuperset(addresses) else []
