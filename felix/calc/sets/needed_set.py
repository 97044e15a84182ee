"""One set that rules need: how far it is, and what was not told of it yet.

Tested in tests/felix/calc/policy/test_sets.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from felix.calc.policy_model import SetKind
from felix.calc.sets.selector_prefilter import Followed
from felix.calc.sets.set_needs import SetNeed


class State(Enum):
    """How far a set is."""

    WAITING = "not looked at yet"
    FILLING = "being filled"
    FULL = "follows every change"


@dataclass(slots=True, eq=False)
class NeededSet:
    """`members` are kept until they are announced; `touched` are addresses to look at again."""

    need: SetNeed
    followed: Followed
    users: int = 0
    state: State = State.WAITING
    announced: bool = False
    size: int = 0
    members: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    @property
    def kind(self) -> SetKind:
        """What its members are."""
        return SetKind.NETS if self.need.port is None else SetKind.ADDRESS_PORTS
