"""Asks nodes through the datastore: a CalicoNodeStatus each, which is deleted afterwards.

It needs nothing but the datastore, so it works where no aggregator is. Requests carry a label and
the time after which they have no owner: what a killed command left behind is removed by the next
one. Invariants:
  ASK-1  No request of ours outlives the command that made it, or the next one after its time.
Tested in `tests/calicoctl/test_status_asking.py` on a real etcd.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from secrets import token_hex

from libcalico.datastore.interface import ABSENT, Datastore, Delete, Put, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata, now_text, seconds_at
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.resources.nodestatus import CalicoNodeStatus, CalicoNodeStatusSpec
from libcalico.process.unlooped import pause

KIND = "CalicoNodeStatus"
LABEL = "muslin/asked-by"
UNTIL = "muslin/asked-until"
PREFIX = "muslin-asked-"
MOST = 200
"""Nodes that are asked at once: each node hears of every request and of every answer."""
KEPT = 120.0
"""Seconds for which a request counts as used by the command that made it."""
TOGETHER = 50
LOOK = 0.25


def checked(names: Sequence[str], option: str = "--ask") -> None:
    """Raise InvalidValue for more nodes than may be asked through the datastore at once."""
    if len(names) > MOST:
        raise InvalidValue(
            option,
            f"{len(names)} nodes",
            f"at most {MOST} nodes at once through the datastore (choose with --node), or an"
            " aggregator",
        )


class Asking:
    """Requests of one command. `close` deletes them, also after an error."""

    def __init__(self, store: Datastore, classes: Sequence[str]) -> None:
        self._store, self._classes = store, list(classes)
        self._mine: dict[ResourceKey, str] = {}

    async def ask(self, names: Iterable[str]) -> None:
        """Store a request for each node. Raises MuslinError where that is not permitted."""
        await self._forget_leftovers()
        turn = token_hex(3)
        changes: list[Put] = []
        for number, name in enumerate(names):
            key = ResourceKey(KIND, f"{PREFIX}{turn}-{number}")
            changes.append(Put(key, _request(key.name, name, self._classes), ABSENT))
            self._mine[key] = name
        for start in range(0, len(changes), TOGETHER):
            await self._store.commit(changes[start : start + TOGETHER])

    async def reports(self, seconds: float) -> tuple[list[CalicoNodeStatus], list[str]]:
        """The reports that came within so many seconds, and the nodes that gave none."""
        until = time.monotonic() + seconds
        while True:
            current = await self._store.get_many(list(self._mine))
            there = [entry.value for entry in current.values() if entry is not None]
            answered = [one for one in there if one.status.lastUpdated]
            if len(answered) == len(self._mine) or time.monotonic() >= until:
                break
            await pause(LOOK)
        reporting = {one.spec.node for one in answered}
        return answered, [name for name in self._mine.values() if name not in reporting]

    async def close(self) -> None:
        """Delete the requests."""
        keys, self._mine = list(self._mine), {}
        await self._delete(keys)

    async def _delete(self, keys: Sequence[Key]) -> None:
        for start in range(0, len(keys), TOGETHER):
            await self._store.commit([Delete(key) for key in keys[start : start + TOGETHER]])

    async def _forget_leftovers(self) -> None:
        try:
            listed = await self._store.list(Selection(KIND, name_prefix=PREFIX))
        except MuslinError:
            return  # who may not list them cannot clean up either; asking itself is told about
        await self._delete([entry.key for entry in listed.entries if expired(entry.value)])


def _request(name: str, node: str, classes: list[str]) -> CalicoNodeStatus:
    until = datetime.fromtimestamp(time.time() + KEPT, UTC)
    return CalicoNodeStatus(
        metadata=Metadata(
            name=name, labels={LABEL: "calicoctl"}, annotations={UNTIL: now_text(until)}
        ),
        spec=CalicoNodeStatusSpec(node, classes, 0),
    )


def expired(report: CalicoNodeStatus) -> bool:
    """Whether a request is one of ours whose command is long over."""
    metadata = report.metadata
    if LABEL not in metadata.labels:
        return False
    until = seconds_at(metadata.annotations.get(UNTIL, ""))
    return until is None or until < time.time()
