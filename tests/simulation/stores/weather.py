"""The way between one client and its store: how long it takes, and when it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random


@dataclass
class Weather:
    """`away`: nothing gets through. `slow`: seconds that a message takes at most."""

    chance: Random
    away: bool = False
    slow: float = 0.004
    lost_answers: float = 0.0
    """How often a write happens and its answer does not come."""

    async def travel(self) -> None:
        """One way of a message."""
        await asyncio.sleep(self.chance.random() * self.slow)

    def loses_the_answer(self) -> bool:
        """Whether what was just done is not heard of."""
        return self.lost_answers > 0 and self.chance.random() < self.lost_answers
