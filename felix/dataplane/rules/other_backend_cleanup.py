"""Takes away what another back end left, once what replaces it is in force (BKE-1).

Tested in tests/felix/kernel/test_backend_switch.py.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from felix.dataplane.rules.backend_removal import remove_leftovers
from libcalico.process.tasks import Background

_WORK = "removal of another back end's rules"

log = logging.getLogger(__name__)


class OtherBackendCleanup:
    """Cleans beside the main loop, once for each back end that is used."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._used = self._cleaned = ""
        self._step = asyncio.Lock()

    def clean(self, used: str, lock_wait: float) -> None:
        """The rules of this back end stand: have what others left taken away.

        `lock_wait`: seconds to wait for another writer of iptables.
        """
        self._used = used
        if self._cleaned != used:
            self._background.keep(_WORK, lambda: self._clean(lock_wait))

    async def stop(self) -> None:
        """Another back end is about to be used: nothing more is taken away once this returns.

        It may be the one whose rules are being removed: nftables and back to iptables at once.
        """
        self._used = self._cleaned = ""
        async with self._step:
            pass

    async def _clean(self, lock_wait: float) -> None:
        while (used := self._used) and used != self._cleaned:
            async with self._step:
                failures = await remove_leftovers(used, lock_wait, partial(self._is_used, used))
            if not self._is_used(used):
                continue
            for name, reason in failures.items():
                log.warning("still there beside %s: %s", used, reason, extra={"object": name})
            if failures:
                return
            self._cleaned = used

    def _is_used(self, name: str) -> bool:
        return self._used == name
