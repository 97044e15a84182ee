"""Takes away what another back end left, once what replaces it is in force (BKE-1).

Tested in tests/felix/test_backend_switch.py.
"""

from __future__ import annotations

import logging

from felix.dataplane.rules import backend
from libcalico.tasks import Background

_WORK = "removal of another back end's rules"

log = logging.getLogger(__name__)


class Cleaner:
    """Cleans beside the main loop, once for each back end that is used."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._cleaned = ""

    def clean(self, used: str, lock_wait: float) -> None:
        """The rules of this back end stand: have what others left taken away.

        `lock_wait`: seconds to wait for another writer of iptables.
        """
        if self._cleaned != used:
            self._background.keep(_WORK, lambda: self._clean(used, lock_wait))

    async def _clean(self, used: str, lock_wait: float) -> None:
        failures = await backend.remove_leftovers(used, lock_wait)
        for name, reason in failures.items():
            log.warning("still there beside %s: %s", used, reason, extra={"object": name})
        if not failures:
            self._cleaned = used
