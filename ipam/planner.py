"""Turn a group of requests into one transaction: blocks, handles and companions together.

Pure. The view says what is believed of the datastore; the plan says what to change, under
which guards, and what each request gets. A request that cannot be served leaves no trace
in the plan (IPAM-8); those beside it are served.

Invariants (tests/ipam/test_planner.py, tests/ipam/test_model.py):
  IPAM-5  Block, handle and companion of a request change in one transaction.
  IPAM-8  A request gets all its addresses or none.
  IPAM-9  No plan has more than `MAX_CHANGES` changes: etcd takes 128 operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from ipam import blocks, handles
from ipam.blocks import IPAddress
from ipam.committer import Plan
from ipam.pools import Pool, within
from ipam.requests import Allocate, Answer, Companion, Granted, Refused, Release, Request, Short
from ipam.view import View
from libcalico.datastore.interface import ABSENT, Change, Delete, Put
from libcalico.errors import MuslinError
from libcalico.model import Block, Handle
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork, Key

MAX_CHANGES = 124
MAX_REQUESTS = 40


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a request may take its addresses from, in this order.

    `affine` are this node's confirmed blocks, `borrowable` blocks of others that may be
    used because no block can be claimed any more.
    """

    host: str
    affine: Sequence[IPNetwork] = ()
    borrowable: Sequence[IPNetwork] = ()
    strict: bool = False


@dataclass(slots=True)
class _Draft:
    """The plan in the making: values by key, `None` for what goes away."""

    view: View
    values: dict[Key, Any] = field(default_factory=dict)
    companions: list[Change] = field(default_factory=list)

    def value(self, key: Key) -> Any:
        return self.values[key] if key in self.values else self.view.value(key)

    def fork(self) -> _Draft:
        return _Draft(self.view, dict(self.values), list(self.companions))

    def size(self) -> int:
        return len(self.values) + len(self.companions)

    def collides(self) -> bool:
        """Whether two requests would write one object: etcd takes a key once a transaction."""
        keys = [change.key for change in self.companions]
        return len(keys) != len(set(keys))

    def changes(self) -> list[Change]:
        made: list[Change] = []
        for key, value in self.values.items():
            entry = self.view.get(key)
            guard = entry.revision if entry else ABSENT
            if value is None or (isinstance(value, Block) and blocks.is_abandoned(value)):
                if entry:
                    made.append(Delete(key, guard))
            else:
                if isinstance(value, Block) and entry:
                    value = blocks.written(value, entry.value)
                made.append(Put(key, value, guard, entry))
        return made + self.companions


class _Missing(Exception):
    def __init__(self, *keys: Key) -> None:
        self.keys = keys


def plan(
    view: View,
    requests: Sequence[Request],
    pools: Sequence[Sequence[Pool]],
    sources: Sources,
) -> Plan[list[Answer]]:
    """Serve `requests` in order; `pools[i]` are the pools that may serve request i.

    Requests that do not fit into one transaction any more are answered by `Short` with
    family 0: they belong into the next group.
    """
    draft = _Draft(view)
    answers: list[Answer] = []
    missing: set[Key] = set()
    for request, usable in zip(requests, pools, strict=True):
        attempt = draft.fork()
        try:
            if isinstance(request, Allocate):
                answer = _allocate(attempt, request, usable, sources)
            else:
                answer = _release(attempt, request)
        except _Missing as gap:
            missing.update(gap.keys)
            answer = Short(0)
        except MuslinError as error:
            answer = Refused(error)
        if isinstance(answer, Granted):
            if attempt.size() > MAX_CHANGES or attempt.collides():
                answer = Short(0)
            else:
                draft = attempt
        answers.append(answer)
    return Plan(answers, draft.changes(), frozenset(missing))


def _allocate(draft: _Draft, request: Allocate, usable: Sequence[Pool], sources: Sources) -> Answer:
    companion = request.companion
    if companion and (kept := _kept(draft, request, companion)):
        _accompany(draft, companion, kept)
        return Granted(tuple(kept), fresh=False)
    given: list[IPAddress] = []
    for family in request.families:
        address = _take(draft, request, family, usable, sources)
        if address is None:
            if companion and companion.key not in draft.view:
                # Before more is sought: perhaps this attachment has its address already.
                raise _Missing(companion.key)
            return Short(family)
        given.append(address)
    if companion:
        _accompany(draft, companion, given)
    return Granted(tuple(given))


def _kept(draft: _Draft, request: Allocate, companion: Companion) -> list[IPAddress]:
    """The addresses that this attachment has already, if they are all still its own."""
    addresses = list(companion.held(draft.view.get(companion.key)))
    if not addresses:
        return []
    handle: Handle | None = draft.value(HandleKey(request.handle_id))
    if HandleKey(request.handle_id) not in draft.view and handle is None:
        raise _Missing(HandleKey(request.handle_id))
    held: set[IPAddress] = set()
    for key in _blocks_of(draft, handle):
        block = draft.value(key)
        if block is not None:
            held.update(
                item.address
                for item in blocks.allocations(block)
                if item.handle_id == request.handle_id
            )
    wanted = {address.version for address in addresses} == set(request.families)
    return addresses if wanted and held.issuperset(addresses) else []


def _take(
    draft: _Draft, request: Allocate, family: int, usable: Sequence[Pool], sources: Sources
) -> IPAddress | None:
    candidates = list(sources.affine)
    if not sources.strict:
        candidates += sources.borrowable
    for cidr in candidates:
        key = BlockKey(cidr)
        if cidr.version != family or not any(within(cidr, pool.cidr) for pool in usable):
            continue
        block = draft.value(key)
        if block is None:
            continue
        mine = blocks.owner_host(block) == sources.host
        if not blocks.free_count(block) or (sources.strict and not mine):
            continue
        if key not in draft.values and blocks.problem(block):
            continue
        changed, got = blocks.assign(block, 1, request.handle_id, request.attributes)
        draft.values[key] = changed
        handle_key = HandleKey(request.handle_id)
        draft.values[handle_key] = handles.add(draft.value(handle_key), block.cidr, 1)
        return got[0]
    return None


def _release(draft: _Draft, request: Release) -> Answer:
    wanted: list[Key] = [HandleKey(request.handle_id)]
    if request.companion:
        wanted.append(request.companion.key)
    unknown = [key for key in wanted if key not in draft.view and key not in draft.values]
    if unknown:
        raise _Missing(*unknown)
    handle_key = HandleKey(request.handle_id)
    handle: Handle | None = draft.value(handle_key)
    released: list[IPAddress] = []
    if handle is not None:
        left: Handle | None = handle
        for key in _blocks_of(draft, handle):
            block = draft.value(key)
            count = (handle.block or {}).get(str(key.cidr), 0)
            if block is not None:
                mine = [
                    a.address for a in blocks.allocations(block) if a.handle_id == request.handle_id
                ]
                gone = [address for address in mine if _is_released(request, address)]
                changed, freed = blocks.release(block, gone, request.handle_id)
                released += freed
                if freed:
                    draft.values[key] = changed
                # The true number, not the recorded one: Calico's counts may overstate.
                count -= len(mine) - len(freed)
            left = handles.subtract(left, str(key.cidr), count) if left else None
        draft.values[handle_key] = left
    if request.companion:
        _accompany(draft, request.companion, released)
    return Granted(tuple(released), fresh=False)


def _is_released(request: Release, address: IPAddress) -> bool:
    wanted = request.only is None or address in request.only
    return wanted and address not in request.spared


def _blocks_of(draft: _Draft, handle: Handle | None) -> list[BlockKey]:
    keys = (
        [BlockKey(ip_network(cidr, strict=False)) for cidr in (handle.block or {})]
        if handle
        else []
    )
    unknown = [key for key in keys if key not in draft.view and key not in draft.values]
    if unknown:
        raise _Missing(*unknown)
    return keys


def _accompany(draft: _Draft, companion: Companion, addresses: Sequence[IPAddress]) -> None:
    change = companion.change(draft.view.get(companion.key), addresses)
    if change is not None:
        draft.companions.append(change)
