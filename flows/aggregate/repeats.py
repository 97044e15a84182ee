"""What a sender sends twice: a flow of equal key, start and end from the same node counts once.

After a new connection a sender repeats what it holds, as long as Goldmane's own clients do
(`flows/sending.py`). What was received is remembered a little longer than that, in generations.
"""

from __future__ import annotations

from flows.aggregate.buckets import Line

KEEP = 360
GENERATION = 60
"""Seconds: memory goes a generation at a time."""

Mark = tuple[str, int, int, int]


class Repeats:
    """What was received from whom; `now` in seconds may not go back."""

    def __init__(self) -> None:
        self._generations: dict[int, set[Mark]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._generations.values()))

    def knows(self, sender: str, line: Line, start: int, end: int) -> bool:
        """Whether this flow was received from the sender before."""
        mark = (sender, line.id, start, end)
        return any(mark in marks for marks in self._generations.values())

    def remember(self, sender: str, line: Line, start: int, end: int, now: int) -> None:
        """Remember a flow that was received at `now`, and forget what is too old."""
        number = now // GENERATION
        if number not in self._generations:
            for old in [one for one in self._generations if one < number - KEEP // GENERATION]:
                del self._generations[old]
            self._generations[number] = set()
        self._generations[number].add((sender, line.id, start, end))
