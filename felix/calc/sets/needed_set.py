"""One set that rules need: how far it is, and what changed since the last flush.

Tested in tests/felix/calc/policy/test_sets.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from felix.calc.policy_model import SetChange, SetKind
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

    def gain(self, text: str) -> None:
        """Add a member that the set did not have."""
        self.size += 1
        if not self.announced:
            self.members.add(text)
        elif text in self.removed:
            self.removed.discard(text)
        else:
            self.added.add(text)

    def lose(self, text: str) -> None:
        """Remove a member that the set had."""
        self.size -= 1
        if not self.announced:
            self.members.discard(text)
        elif text in self.added:
            self.added.discard(text)
        else:
            self.removed.add(text)

    def announce(self) -> SetChange:
        """The whole set; from now on the data plane holds its members."""
        self.announced = True
        members, self.members = self.members, set()
        return SetChange(self.need.id, self.kind, full=frozenset(members))

    def pop_change(self) -> SetChange:
        """What was added and removed since the last flush."""
        added, removed = frozenset(self.added), frozenset(self.removed)
        self.added, self.removed = set(), set()
        return SetChange(self.need.id, self.kind, added=added, removed=removed)
