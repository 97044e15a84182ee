"""Takes away what another back end left, once what replaces it is in force (BKE-1).

Tested in tests/felix/test_backend_switch.py.
"""

from __future__ import annotations

import asyncio
import logging

from felix.dataplane import backend

log = logging.getLogger(__name__)


class Cleaner:
    """Cleans beside the main loop, once for each back end that is used."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._cleaned = ""

    def clean(self, used: str, lock_wait: float) -> None:
        """The rules of this back end stand: have what others left taken away.

        `lock_wait`: seconds to wait for another writer of iptables.
        """
        if self._cleaned != used and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._clean(used, lock_wait))

    async def _clean(self, used: str, lock_wait: float) -> None:
        failures = await backend.remove_leftovers(used, lock_wait)
        for name, reason in failures.items():
            log.warning("still there beside %s: %s", used, reason, extra={"object": name})
        if not failures:
            self._cleaned = used

    def stop(self) -> None:
        """Give up what is under way; the next start does it again."""
        if self._task is not None:
            self._task.cancel()
