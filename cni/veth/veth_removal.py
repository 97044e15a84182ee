"""Removing host interfaces: many at the price of one, and no longer waited for than needed.

The kernel takes 15 to 40 ms for a link, of which it waits nearly all for readers, after the link
is gone; and as long for a hundred at once as for one. So the DELs that wait go together as a link
group, and each goes on as soon as the kernel tells that its link has left. A thread stays with
the kernel until the end; what it hears (a refusal, say) ends the wait otherwise.

Invariants:
  UNP-1  Only links that carry the mark of their container are put into the group (CNI-14).
  UNP-2  A removal ends when the link has left, or with the kernel's word that it did not.
Tested in tests/cni/test_veth_removal.py.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from linux import links
from linux.link_removals import LinkRemovals
from linux.netlink import Socket

BATCHES = 3
"""How many batches may be with the kernel at a time: each holds a thread until it tidied up."""

Outcomes = list[bool | Exception]
"""For each removal whether there was a link, or why it stays."""


@dataclass(slots=True, eq=False)
class _Removal:
    name: str
    mark: str
    done: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def end(self, outcome: bool | Exception) -> None:
        if self.done.done():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
            self.done.exception()  # its caller may have been cancelled
        else:
            self.done.set_result(outcome)


class VethRemover:
    """Removes the pairs of one daemon. `start` runs blocking calls in a thread."""

    def __init__(self, start: Callable[..., asyncio.Future[Outcomes]]) -> None:
        self._start = start
        self._waiting: list[_Removal] = []
        self._leaving: dict[tuple[str, str], _Removal] = {}
        self._running = 0
        self._departures: LinkRemovals | None = None
        # Of this process alone: no foreign link is in it.
        self._group = secrets.randbits(30) | 1 << 30

    async def remove(self, name: str, mark: str) -> bool:
        """Remove the link of this name if it carries the mark; returns whether there was one.

        Raises `KernelError`. It comes to its end even if the caller is cancelled.
        """
        removal = _Removal(name, mark)
        self._waiting.append(removal)
        self._go_on()
        return await removal.done

    def _go_on(self) -> None:
        """Send the waiting removals, unless others are in the exclusive part."""
        if not self._waiting or self._leaving or self._running >= BATCHES:
            return
        if self._departures is None:
            self._departures = LinkRemovals(self._left)
        batch: dict[tuple[str, str], _Removal] = {}
        later = []
        for removal in self._waiting:
            if batch.setdefault((removal.name, removal.mark), removal) is not removal:
                later.append(removal)
        self._waiting = later
        self._leaving = batch
        self._running += 1
        removals = list(batch.values())
        work = self._start(remove_all, [(r.name, r.mark) for r in removals], self._group)
        work.add_done_callback(lambda ended: self._ended(removals, ended))

    def _left(self, link: links.Link | None) -> None:
        removal = self._leaving.pop((link.name, link.alias), None) if link else None
        if removal is not None:
            removal.end(True)
            self._go_on()

    def _ended(self, removals: Sequence[_Removal], work: asyncio.Future[Outcomes]) -> None:
        self._running -= 1
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        outcomes = [error] * len(removals) if error else work.result()
        for removal, each in zip(removals, outcomes, strict=True):
            if self._leaving.get((removal.name, removal.mark)) is removal:
                del self._leaving[removal.name, removal.mark]
            removal.end(each if isinstance(each, (bool, Exception)) else OSError(str(each)))
        self._go_on()

    def close(self) -> None:
        """Stop hearing of links that went; removals that the kernel has come to their end."""
        if self._departures is not None:
            self._departures.close()


def remove_all(targets: Sequence[tuple[str, str]], group: int) -> Outcomes:
    """Remove those of these (name, mark) that are there: whether it was, or why not, each.

    Blocks 15 to 40 ms. Raises `KernelError` when the socket fails.
    """
    with Socket() as host:
        looks = host.transact([links.request(name) for name, _ in targets])
        outcomes: Outcomes = []
        indexes: list[int] = []
        places: list[int] = []
        for place, ((name, mark), look) in enumerate(zip(targets, looks, strict=True)):
            link = links.decode(look.answers[0][1]) if look.ok and look.answers else None
            outcomes.append(False)
            if not look.ok and look.errno != errno.ENODEV:
                outcomes[place] = look.error(f"look up link {name}") or False
            elif link is not None and link.alias == mark:
                indexes.append(link.index)
                places.append(place)
        if len(indexes) > 1:
            host.transact([links.set_group(index, group) for index in indexes])
            host.transact([links.delete_group(group)])
            # The group's own result says too little: what is left is asked for one by one.
            end_links = host.transact([links.request(index) for index in indexes])
            left = [i for i, end in enumerate(end_links) if end.errno != errno.ENODEV]
        else:
            left = list(range(len(indexes)))
        for i in range(len(indexes)):
            outcomes[places[i]] = True
        if left:
            results = host.transact([links.delete(indexes[i]) for i in left])
            for i, result in zip(left, results, strict=True):
                if result.errno == errno.ENODEV:
                    outcomes[places[i]] = len(indexes) > 1
                elif not result.ok:
                    outcomes[places[i]] = result.error(f"remove {targets[places[i]][0]}") or False
        return outcomes
