"""All endpoints and network sets of a cluster: labels, members of sets, who has what.

A cluster has hundreds of thousands of them, so nothing here is an object of its own. Items have
dense ids; what is known of them lies in columns. Equal labels are kept once (`label_sets`), so the
pods of a replica set share theirs. An item is known by any hashable name. Nothing is remembered of
selectors here.

Invariants:
  COL-2  `holders` of an address has exactly the items that have it among their members.
Tested in tests/felix/calc/policy/test_population.py, test_model.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence

from felix.calc.labels import NamedPort
from felix.calc.sets.idlists import Allocator, IdList, each, with_id, without_id
from felix.calc.sets.label_sets import LabelSets

Members = str | tuple[str, ...]
"""One text, or several: a tuple of one would double what an endpoint costs."""
Ports = tuple[NamedPort, ...]


class Population:
    """Items in columns."""

    def __init__(self) -> None:
        self.label_sets = LabelSets()
        self.items_of: list[IdList] = []
        """The items of each label set."""
        self.numbers: dict[Hashable, int] = {}
        self._ids = Allocator()
        self.label_set_of = array("I")
        self.members_of: list[Members] = []
        self.stamps = array("Q")
        self.ports_of: dict[int, Ports] = {}
        self.nodes = array("I")
        """The node of each item, as its feeder numbers nodes; 0: it is on none."""
        self._holders: dict[str, int | list[int]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def put(
        self, name: Hashable, label_set: int, members: Members, ports: Ports, stamp: int = 0
    ) -> int:
        """A new item, of a label set that `label_sets` gave; returns its number."""
        item = self._ids.allocate()
        if item == len(self.members_of):
            self.members_of.append(members)
            self.label_set_of.append(label_set)
            self.stamps.append(stamp)
            self.nodes.append(0)
        else:
            self.members_of[item] = members
            self.label_set_of[item] = label_set
            self.stamps[item] = stamp
        self.numbers[name] = item
        self._enter(item, label_set)
        if ports:
            self.ports_of[item] = ports
        if isinstance(members, str):
            if self._holders.setdefault(members, item) != item:
                self._hold(members, item)
        else:
            for text in members:
                self._hold(text, item)
        return item

    def remove(self, name: Hashable) -> None:
        """Remove an item."""
        item = self.numbers.pop(name)
        self._leave(item, self.label_set_of[item])
        for text in texts(self.members_of[item]):
            self._unhold(text, item)
        self.members_of[item] = ()
        self.nodes[item] = 0
        self.ports_of.pop(item, None)
        self._ids.free(item)

    def move(self, item: int, label_set: int) -> None:
        """An item has another label set."""
        before = self.label_set_of[item]
        if before != label_set:
            self.label_set_of[item] = label_set
            self._enter(item, label_set)
            self._leave(item, before)

    def equip(self, item: int, members: Members, ports: Ports) -> None:
        """An item has other members and ports."""
        before, after = set(texts(self.members_of[item])), set(texts(members))
        self.members_of[item] = members
        for text in before - after:
            self._unhold(text, item)
        for text in after - before:
            self._hold(text, item)
        if ports:
            self.ports_of[item] = ports
        else:
            self.ports_of.pop(item, None)

    def holders(self, text: str) -> Sequence[int]:
        """The items that have a member."""
        items = self._holders.get(text)
        if items is None:
            return ()
        return (items,) if isinstance(items, int) else items

    def _hold(self, text: str, item: int) -> None:
        there = self._holders.get(text)
        if there is None:
            self._holders[text] = item
        elif isinstance(there, int):
            self._holders[text] = [there, item]
        else:
            there.append(item)

    def _unhold(self, text: str, item: int) -> None:
        there = self._holders[text]
        if isinstance(there, int):
            del self._holders[text]
            return
        there.remove(item)
        if len(there) == 1:
            self._holders[text] = there[0]

    def transfer(self, label_set: int) -> int:
        """Bring a label set of a retired group, and its items, into the current one.

        Returns what it is there.
        """
        there = self.label_sets.transfer(label_set)
        if there != label_set:
            for item in list(each(self.items_of[label_set])):
                self.move(item, there)
        return there

    def _enter(self, item: int, label_set: int) -> None:
        if label_set == len(self.items_of):
            self.items_of.append(item)
        else:
            self.items_of[label_set] = with_id(self.items_of[label_set], item)

    def _leave(self, item: int, label_set: int) -> None:
        left = self.items_of[label_set] = without_id(self.items_of[label_set], item)
        if left is None:
            self.label_sets.forget(label_set)


def texts(members: Members) -> tuple[str, ...]:
    """Members as a tuple."""
    return (members,) if isinstance(members, str) else members
