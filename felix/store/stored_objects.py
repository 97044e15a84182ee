"""The objects of the datastore on their way into the calculation: which version of each counts.

An object that cannot be read counts as it was read last (felix.store.readable), and a version that
waits for confirmation counts until its deadline (felix.calc.commit_confirmed).
Tested in tests/felix/store/test_last_readable.py and tests/felix/calc/test_commit_confirmed.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from felix.calc.commit_confirmed import Unconfirmed
from felix.calc.graph import Calculator
from felix.calc.standing import NEWEST
from felix.config.effective import EffectiveConfig
from felix.store.readable import Readable
from libcalico.datastore.syncer import Update
from libcalico.model import IPPool, Key, ResourceKey, WorkloadEndpoint
from libcalico.model.base.meta import APIObject
from libcalico.model.enforcement.lacking import Lacking
from libcalico.process.waiting import set_within

log = logging.getLogger(__name__)


class StoredObjects:
    """Puts the objects of the datastore into the calculation and the configuration.

    `last_readable`: the file that keeps the last readable versions over a restart.
    """

    def __init__(self, calc: Calculator, config: EffectiveConfig, last_readable: Path) -> None:
        self._calc, self._config = calc, config
        self.readable = Readable(last_readable)
        self._unconfirmed = Unconfirmed(time.monotonic, lambda: datetime.now(UTC))
        self._deadlines = asyncio.Event()
        self._lacking = Lacking(log)

    async def apply(self, updates: Sequence[Update]) -> bool:
        """Put in these updates; returns whether anything that matters changed."""
        changed = False
        if self.readable.identify(updates) and self._calc.in_sync:
            changed |= await self.recall()
        for update in updates:
            self._config.note_unreadable(update)
            word = self.readable.apply_update(update)
            if word.stands:
                continue
            value = self._unconfirmed.effective(update.key, word.value)
            self._config.note_change(update.key, value)
            changed |= self.put(update.key, value)
        self._check_deadlines()
        return changed

    async def recall(self) -> bool:
        """Put in what was readable before this start, where the datastore has worse now.

        Returns whether anything that matters changed.
        """
        changed = False
        for key, value in await self.readable.settle():
            changed |= self.put(key, self._unconfirmed.effective(key, value))
        self._check_deadlines()
        return changed

    def put(self, key: Key, value: object, revision: int = NEWEST) -> bool:
        """Put in one object, None for a deletion; returns whether anything that matters changed."""
        changed = self._calc.update(key, value, revision)
        self._lacking.update(key, _ours(key, value, self._calc.node))
        broken = self._calc.broken.get(key)
        if broken:
            log.warning("left out: %s", broken, extra={"object": str(key)})
        return changed

    def _check_deadlines(self) -> None:
        if self._unconfirmed.left() is not None:
            self._deadlines.set()

    async def revert_unconfirmed(self) -> bool:
        """Wait for the next deadline, and go back from versions that were not confirmed in time.

        Ends, too, when a deadline is new. Returns whether anything that matters changed.
        """
        left = self._unconfirmed.left()
        self._deadlines.clear()
        await set_within(self._deadlines, left)
        changed = False
        for key, value in self._unconfirmed.expired():
            log.warning("not confirmed in time: taken back", extra={"object": str(key)})
            changed |= self._calc.update(key, value)
        return changed

    def unconfirmed(self) -> list[tuple[str, str]]:
        """The objects with a version to be confirmed, or that was not, as conditions."""
        return self._unconfirmed.conditions()

    def lacking(self) -> list[tuple[str, str]]:
        """What objects ask for in vain, as conditions."""
        return self._lacking.conditions()


def _ours(key: Key, value: object, node: str) -> APIObject | None:
    """The object if this felix names what it asks for in vain (policies say it themselves)."""
    match key, value:
        case ResourceKey(kind="WorkloadEndpoint"), WorkloadEndpoint():
            return value if value.spec.node == node else None
        case ResourceKey(kind="IPPool"), IPPool():
            return value
    return None
