"""What wakes the main loop, and how much of a hurry there is.

Tested in tests/felix/dataplane/test_turns.py.
"""

from __future__ import annotations

import asyncio

from felix.dataplane.devices.dirty_set import DirtySet
from libcalico.process.waiting import set_within


class Wake:
    """Asks for turns. `hurry`: something waits that is not as patient as routes are. `heard`: the
    kernel told something since this was last cleared.
    """

    def __init__(self, dirty: DirtySet) -> None:
        self._dirty = dirty
        self._event = asyncio.Event()
        self.hurry = False
        self.heard = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether a turn was asked for."""
        return self._event.is_set()

    def everything(self) -> None:
        """Something changed: a turn about everything, as soon as the loop is free."""
        self._dirty.mark_everything()
        self.some()

    def some(self) -> None:
        """Something changed that is marked already: a turn about what is marked."""
        self.hurry = True
        self._event.set()

    def go_on(self) -> None:
        """There is more to be done about everything, which is not urgent."""
        self._dirty.mark_everything()
        self._event.set()

    def again(self) -> None:
        """A turn about what is marked, which is not urgent."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until a turn is asked for; after so many seconds it is one about everything."""
        if not await set_within(self._event, seconds):
            self._dirty.mark_everything()
        self._event.clear()
        self.hurry = False
