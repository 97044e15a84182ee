"""Five bugs of the kind that costs clusters their addresses, put into the production code.

Each is a context manager: inside it the allocator or the collector makes one mistake. The
model is worth something only if it finds every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ipam.allocator import claim_loading, transaction_draft, worker
from ipam.allocator.committer import settle
from ipam.collector import collector, leak_evidence
from ipam.records import blocks
from libcalico.datastore.interface import Change, Put
from libcalico.model.keys import BlockKey, HandleKey
from libcalico.model.resources.ipam import PENDING


@contextmanager
def dropped_compare() -> Iterator[None]:
    """A block is written whatever revision it has by now."""
    real = transaction_draft.TransactionDraft.changes

    def changes(self: transaction_draft.TransactionDraft) -> list[Change]:
        return [
            Put(change.key, change.value, None, change.base)
            if isinstance(change, Put) and isinstance(change.key, BlockKey)
            else change
            for change in real(self)
        ]

    with mock.patch.object(transaction_draft.TransactionDraft, "changes", changes):
        yield


@contextmanager
def late_handle() -> Iterator[None]:
    """The handle is written after the block, in a transaction of its own."""

    class Splitting:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        async def commit(self, changes: Sequence[Change]) -> int:
            handles = [c for c in changes if isinstance(c.key, HandleKey)]
            rest = [c for c in changes if not isinstance(c.key, HandleKey)]
            revision = int(await self._real.commit(rest)) if rest else 0
            return int(await self._real.commit(handles)) if handles else revision

    async def split(store: Any, *arguments: Any, **named: Any) -> Any:
        return await settle(Splitting(store), *arguments, **named)

    with mock.patch.object(worker, "settle", split):
        yield


@contextmanager
def release_without_sequence() -> Iterator[None]:
    """Whoever releases does not ask whether the address was given out anew."""
    held = leak_evidence.Held

    def blurred(address: Any, _sequence: int | None, cidr: Any) -> leak_evidence.Held:
        return held(address, None, cidr)

    def unasked(*_arguments: Any) -> None:
        return None

    with (
        mock.patch.object(blocks, "require_sequence", unasked),
        mock.patch.object(leak_evidence, "Held", blurred),
    ):
        yield


@contextmanager
def pending_taken_as_confirmed() -> Iterator[None]:
    """A claim that nobody finished counts as one."""
    real = claim_loading._recover

    async def recover(
        store: Any, view: Any, host: str, affinity: Any, entry: Any, *rest: Any
    ) -> bool:
        if entry and affinity.value.state == PENDING and blocks.owner_host(entry.value) == host:
            view.learn({entry.key: entry})
            return True
        return await real(store, view, host, affinity, entry, *rest)

    with mock.patch.object(claim_loading, "_recover", recover):
        yield


@contextmanager
def borrowed_address_collected() -> Iterator[None]:
    """The collector judges what lies in its node's blocks, also what others borrowed."""

    real = leak_evidence.judge

    def judge(node: str, entries: Any, endpoints: Any, evidence: Any) -> leak_evidence.Judgement:
        def allocations(block: Any) -> Iterator[blocks.Allocation]:
            for item in blocks.allocations(block):
                lent = blocks.owner_host(block) == node
                attributes = {**item.attributes, "node": node} if lent else item.attributes
                yield blocks.Allocation(item.address, item.handle_id, attributes, item.sequence)

        blind = SimpleNamespace(**{**vars(blocks), "allocations": allocations})
        with mock.patch.object(leak_evidence, "blocks", blind):
            return real(node, entries, endpoints, evidence)

    with mock.patch.object(collector, "judge", judge):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "dropped compare": dropped_compare,
    "late handle": late_handle,
    "release without sequence": release_without_sequence,
    "pending taken as confirmed": pending_taken_as_confirmed,
    "borrowed address collected": borrowed_address_collected,
}
