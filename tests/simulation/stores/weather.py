"""The way between one client and its store: how long it takes, and when it fails."""

from __future__ import annotations

import asyncio
from random import Random

Waiting = dict[asyncio.Future[None], None]
"""Who waits for something, in the order in which they came."""


def wake(waiting: Waiting) -> None:
    """It happened."""
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()


class Weather:
    """`away`: nothing gets through. `slow`: seconds that a message takes at most."""

    def __init__(self, chance: Random, slow: float = 0.004) -> None:
        self.chance, self.slow = chance, slow
        self.lost_answers = 0.0
        """How often a write happens and its answer does not come."""
        self._away = False
        self._waiting: Waiting = {}

    @property
    def away(self) -> bool:
        """Whether nothing gets through."""
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        if away:
            wake(self._waiting)

    async def news(self, others: Waiting) -> None:
        """Until something happened, or the way is cut."""
        if self._away:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        others[future] = self._waiting[future] = None
        try:
            await future
        finally:
            others.pop(future, None)
            self._waiting.pop(future, None)

    async def travel(self) -> None:
        """One way of a message."""
        await asyncio.sleep(self.chance.random() * self.slow)

    def loses_the_answer(self) -> bool:
        """Whether what was just done is not heard of."""
        return self.lost_answers > 0 and self.chance.random() < self.lost_answers
