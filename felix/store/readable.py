"""What is readable of the documents of policy, with what the node remembers of before its start.

The decision (felix.calc.last_readable) and the file (felix.store.readable_store), put together. The
file is believed only once ClusterInformation has said which cluster the datastore is of; nothing is
programmed before that either. Tested in tests/felix/store/test_last_readable.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from felix.calc.graph import CLUSTER
from felix.calc.last_readable import LastReadable, Unreadable, Word
from felix.store.readable_store import ReadableStore
from libcalico.datastore.syncer import Update
from libcalico.model import Key, ResourceKey

log = logging.getLogger(__name__)


class Readable:
    """The documents of policy of one felix; its memory is the file `path`.

    Without `open` and `run` nothing is read or written.
    """

    def __init__(self, path: Path) -> None:
        self._store = ReadableStore(path)
        self._last = LastReadable(self._store)
        self._cluster: str | None = None
        self.open, self.run, self.close = self._store.open, self._store.run, self._store.close

    @property
    def unreadable(self) -> Mapping[Key, Unreadable]:
        """The objects whose stored bytes cannot be read."""
        return self._last.unreadable

    def identify(self, updates: Iterable[Update]) -> bool:
        """See which cluster the datastore is of; returns whether it became known just now."""
        before = self._cluster
        for update in updates:
            if update.key == CLUSTER and update.entry is not None:
                self._cluster = update.entry.value.spec.clusterGUID
        if self._cluster is not None and self._cluster != before and self._last.settled:
            self._store.believe(self._cluster)
        return before is None and self._cluster is not None

    def apply_update(self, update: Update) -> Word:
        """Apply an update; returns the version of the object that counts."""
        word = self._last.apply_entry(update.key, update.entry)
        if self._last.settled:
            self._say(update.key)
        return word

    async def settle(self) -> list[tuple[ResourceKey, Any]]:
        """The datastore has been read whole: versions of before the start that count."""
        if self._cluster is None or self._last.settled:
            return []
        self._store.believe(self._cluster)
        remembered = await self._store.recall(self._last.doubtful)
        restored = self._last.settle(self._store.known, remembered)
        for key in self._last.unreadable:
            self._say(key)
        return restored

    def conditions(self) -> list[tuple[str, str]]:
        """What an operator must know of each object, and of the file."""
        reports = [(str(key), one.message) for key, one in self._last.unreadable.items()]
        return reports + self._store.conditions()

    def _say(self, key: Key) -> None:
        one = self._last.unreadable.get(key)
        if one is not None:
            log.error("%s", one.message, extra={"object": str(key)})
