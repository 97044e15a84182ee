"""What a turn of the main loop is about: some endpoints, or everything.

Most turns follow one pod that came or went. Such a turn looks at the endpoints that are named here
and at nothing else, however much the node holds. Any other news, a timer, a failure or a long
silence make a turn that looks at everything, and is right by itself.

Invariants:
  TCH-1  A turn about everything right after a turn about some endpoints finds nothing to write.
  TCH-2  After a word about everything a turn begins that is about everything, even if the word
         came while a turn was under way.
Tested in tests/felix/dataplane/test_dirty_set.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterable


class DirtySet:
    """The endpoints, by interface, that the next turn is about. The first is about everything."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._everything = True

    @property
    def everything(self) -> bool:
        """Whether the next turn is about everything."""
        return self._everything

    def concerns(self, endpoints: Container[str]) -> bool:
        """Whether the next turn is about everything, or about any of these."""
        return self._everything or any(name in endpoints for name in self._names)

    def names(self, interface: str) -> bool:
        """Whether something happened to this endpoint that no turn has looked at yet."""
        return interface in self._names

    def mark(self, names: Iterable[str]) -> None:
        """Something happened to these."""
        self._names.update(names)

    def mark_everything(self) -> None:
        """Something happened to no endpoint in particular."""
        self._everything = True

    def take(self) -> frozenset[str] | None:
        """What the turn that begins is about; None: everything."""
        names, everything = frozenset(self._names), self._everything
        self._names.clear()
        self._everything = False
        return None if everything else names

    def take_more(self, about: frozenset[str] | None) -> frozenset[str] | None:
        """What a turn looks at that began about `about` and hears more before its end (TCH-2)."""
        more = self.take()
        if more is None:
            # What the turn began with, its rules above all, was made without this word.
            self.mark_everything()
        return None if about is None or more is None else about | more
