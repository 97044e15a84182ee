"""The positions of several collections behind the one revision that a reader is given.

Tested in tests/libcalico/test_kubernetes_watch.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from libcalico.datastore.interface import Compacted

REMEMBERED = 1000

Positions = dict[str, int]
"""Path of a collection -> the revision up to which it was read."""


class Memory:
    """The positions behind the revisions that readers were given, the last ones of each family."""

    def __init__(self) -> None:
        self._known: dict[str, OrderedDict[int, Positions]] = {}

    def keep(self, family: str, positions: Positions) -> int:
        """The revision that stands for these positions."""
        number = max(positions.values(), default=1)
        if len(positions) > 1:
            known = self._known.setdefault(family, OrderedDict())
            before = known.get(number, {})
            # Two readers may stand at one number: neither misses anything from there on.
            mine = {path: min(one, before.get(path, one)) for path, one in positions.items()}
            known[number] = {**before, **mine}
            known.move_to_end(number)
            while len(known) > REMEMBERED:
                known.popitem(last=False)
        return number

    def find(self, family: str, number: int, paths: Sequence[str]) -> Positions:
        """The positions behind a revision. A single collection is at the revision itself.

        Raises Compacted for a revision of several collections that is not remembered: in one of
        them an event might be skipped.
        """
        if len(paths) == 1:
            return {paths[0]: number}
        of_family = self._known.get(family)
        known = of_family.get(number, {}) if of_family else {}
        if any(path not in known for path in paths):
            raise Compacted(f"{family}: where {number} stands in {', '.join(paths)} is not known")
        return {path: known[path] for path in paths}
