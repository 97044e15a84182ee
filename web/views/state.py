"""How things stand, said by a word and a sign, so that no colour has to explain it.

Tested in tests/web/test_state.py.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """A state: its word, its sign, and how bad it is (greater is worse)."""

    UP = ("up", "●", 0)
    IDLE = ("no session", "○", 1)
    UNKNOWN = ("not known", "?", 2)
    WARNING = ("partly down", "▲", 3)
    DOWN = ("down", "✕", 4)

    @property
    def word(self) -> str:
        """`up`."""
        return str(self.value[0])

    @property
    def sign(self) -> str:
        """A sign of a shape of its own."""
        return str(self.value[1])

    @property
    def rank(self) -> int:
        """0 is best."""
        return int(self.value[2])

    @property
    def css(self) -> str:
        """The class of style sheets: `state-up`."""
        return f"state-{self.name.lower()}"


def of_many(states: list[State]) -> State:
    """What several sessions make of their node: some down is a warning, all down is down."""
    if not states:
        return State.IDLE
    known = [one for one in states if one is not State.UNKNOWN]
    if not known:
        return State.UNKNOWN
    down = sum(one is State.DOWN for one in known)
    if down == len(known):
        return State.DOWN
    if down or State.WARNING in known:
        return State.WARNING
    return State.UP if len(known) == len(states) else State.UNKNOWN


def counted(number: int, word: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
