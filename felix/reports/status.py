"""`/var/run/calico/status/felix.json`: felix's status, for `calicoctl node status` without root.

Felix writes it after a change, at most once a second, and at least every few seconds, so that its
time shows that felix lives.
Tested in tests/felix/kernel/test_forwarding.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from libcalico.clusterinfo import our_version
from libcalico.process import status_file
from libcalico.process.waiting import set_within

MINIMUM_INTERVAL = 1.0

log = logging.getLogger(__name__)


class StatusFile:
    """The status file, and whether it is due to be written again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._wake = asyncio.Event()
        self._logged = ""

    def changed(self) -> None:
        """Mark the file as due: something may differ from what was written."""
        self._wake.set()

    def write(self, status: Mapping[str, object]) -> None:
        """Write the file; an error is logged once."""
        try:
            status_file.write("felix", {"version": our_version(), **status}, self._directory)
        except OSError as error:
            if str(error) != self._logged:
                self._logged = str(error)
                log.warning("the status file cannot be written: %s", error)

    async def wait(self, most: float) -> None:
        """Wait for a change, `MINIMUM_INTERVAL` seconds at least and `most` at most."""
        await asyncio.sleep(MINIMUM_INTERVAL)
        await set_within(self._wake, most - MINIMUM_INTERVAL)
        self._wake.clear()
