"""All endpoints and network sets of a cluster: labels, members of sets, who has what.

A cluster has hundreds of thousands of them, so nothing here is an object of its own. Items,
label sets, pairs of label and value, and groups (lists of profiles, with the labels that they
hand down) have dense ids; what is known of them lies in columns. Label sets are interned by the
bytes of their group and pair ids, so the pods of a replica set share one. Inherited labels are
never copied into label sets: a namespace's label costs nothing until a selector mentions it.

Of several profiles the first that has a label wins; an own label wins over all.

An item is known by any hashable name. Nothing is remembered of selectors here.

Invariants:
  COL-1  A pair, a label set, a group lives exactly as long as something has it; its id may then
         mean another, so no caller keeps ids over a change.
  COL-2  `holders` of an address has exactly the items that have it among their members.
  COL-3  A label set is interned by its bytes, or has a pair that no other has and is found by
         that: pods with a label of their own, such as their name, need no second dict.
Tested in tests/felix/calc/policy/test_population.py, test_model.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from felix.calc.labels import NamedPort
from felix.calc.sets.anchors import Anchor
from felix.calc.sets.idlists import Allocator, IdList, each, length, with_id, without_id
from felix.calc.sets.profile_groups import Group, ProfileGroups, drop_label_set

Members = str | tuple[str, ...]
"""One text, or several: a tuple of one would double what an endpoint costs."""
Ports = tuple[NamedPort, ...]
MOST_COLUMNS = 10_000
"""Different lists of names of labels that are remembered."""


class Population:
    """Items in columns."""

    def __init__(self) -> None:
        # Items.
        self.numbers: dict[Hashable, int] = {}
        self._item_ids = Allocator()
        self.label_set_of = array("I")
        self.members_of: list[Members] = []
        self.stamps = array("Q")
        self.ports_of: dict[int, Ports] = {}
        self.nodes = array("I")
        """The node of each item, as its feeder numbers nodes; 0: it is on none."""
        self._holders: dict[str, int | list[int]] = {}
        # Label sets.
        self._interned: dict[bytes, int] = {}
        self._label_set_ids = Allocator()
        self._keys: list[bytes | None] = []
        self.born = 0
        """Label sets that came so far: a number may be given again only when this has grown."""
        self.items_of: list[IdList] = []
        # Pairs.
        self._pairs: dict[str, dict[str, int]] = {}
        self._columns: dict[tuple[str, ...], list[dict[str, int]]] = {}
        self._pair_ids = Allocator()
        self._labels: list[str] = []
        self._values: list[str] = []
        self._having: list[IdList] = []
        self.groups = ProfileGroups()

    def __len__(self) -> int:
        return len(self._item_ids)

    @property
    def label_sets(self) -> int:
        """How many different label sets there are."""
        return len(self._label_set_ids)

    # -- items ---------------------------------------------------------------------------------

    def put(
        self, name: Hashable, label_set: int, members: Members, ports: Ports, stamp: int = 0
    ) -> int:
        """A new item, of a label set that `intern` gave; returns its number."""
        item = self._item_ids.allocate()
        if item == label_set:
            # One object for both numbers, where everybody has labels of his own.
            item = label_set
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
        there = self.items_of[label_set]
        self.items_of[label_set] = item if there is None else with_id(there, item)
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
        self._item_ids.free(item)

    def move(self, item: int, label_set: int) -> None:
        """An item has another label set."""
        before = self.label_set_of[item]
        if before != label_set:
            self.label_set_of[item] = label_set
            self.items_of[label_set] = with_id(self.items_of[label_set], item)
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

    def _leave(self, item: int, label_set: int) -> None:
        left = self.items_of[label_set] = without_id(self.items_of[label_set], item)
        if left is None:
            self._forget(label_set)

    # -- label sets ----------------------------------------------------------------------------

    def intern(self, labels: Mapping[str, str], profiles: tuple[str, ...]) -> int:
        """The label set of these labels, new if need be; give it an item at once."""
        group = self.groups.current.get(profiles)
        if group is None:
            group = self.groups.new(profiles)
        names = tuple(labels)
        columns = self._columns.get(names)
        if columns is None:
            ordered = sorted(names)
            if list(names) != ordered:
                # Columns are kept for names in order alone: it tells no two label sets apart.
                return self.intern({name: labels[name] for name in ordered}, profiles)
            columns = self._new_columns(names)
        pairs: list[Any] = list(map(dict.get, columns, labels.values()))
        fresh = None in pairs
        if fresh:
            self._new_pairs(labels, pairs)
        key = array("I", (*pairs, group.number)).tobytes()
        # A label set with a new pair is new itself.
        known = None if fresh else self._known(key, pairs)
        return self._new_label_set(key, pairs, group) if known is None else known

    def _known(self, key: bytes, pairs: Iterable[int]) -> int | None:
        """The label set with this key, of these pairs (COL-3)."""
        known = self._interned.get(key)
        if known is not None:
            return known
        for pair in pairs:
            alone = self._having[pair]
            if type(alone) is int:
                return alone if self._keys[alone] == key else None
        return None

    def _new_label_set(self, key: bytes, pairs: list[int], group: Group) -> int:
        label_set = self._label_set_ids.allocate()
        self.born += 1
        having, alone = self._having, False
        largest = label_set == len(self._keys)
        if largest:
            self._keys.append(key)
            self.items_of.append(None)
            group.label_sets.append(label_set)
        else:
            self._keys[label_set] = key
            with_id(group.label_sets, label_set)
        for pair, there in zip(pairs, map(having.__getitem__, pairs), strict=True):
            if type(there) is array and largest:
                there.append(label_set)
            elif there is None:
                having[pair] = label_set
                alone = True
            else:
                if type(there) is int:
                    self._intern(there)
                having[pair] = with_id(there, label_set)
        if not alone:
            self._interned[key] = label_set
        return label_set

    def _intern(self, label_set: int) -> None:
        """A label set has one pair less that no other has; it may have been the last such."""
        key = self._keys[label_set]
        assert key is not None
        self._interned[key] = label_set

    def labels(self, label_set: int) -> dict[str, str]:
        """Own and inherited labels."""
        *pairs, group = self._ids(label_set)
        result = dict(self.groups.at(group).inherited)
        labels, values = self._labels, self._values
        for pair in pairs:
            result[labels[pair]] = values[pair]
        return result

    def _ids(self, label_set: int) -> array[int]:
        key = self._keys[label_set]
        assert key is not None
        ids = array("I")
        ids.frombytes(key)
        return ids

    def lives(self, label_set: int) -> bool:
        """Whether a label set still exists."""
        return self._keys[label_set] is not None

    def _forget(self, label_set: int) -> None:
        key = self._keys[label_set]
        assert key is not None
        *pairs, number = self._ids(label_set)
        self._interned.pop(key, None)
        self._keys[label_set] = None
        for pair in pairs:
            left = self._having[pair] = without_id(self._having[pair], label_set)
            if left is None:
                self._forget_pair(pair)
        group = self.groups.at(number)
        drop_label_set(group, label_set)
        if not group.label_sets:
            self.groups.forget(group)
        self._label_set_ids.free(label_set)

    # -- pairs ---------------------------------------------------------------------------------

    def _new_columns(self, names: tuple[str, ...]) -> list[dict[str, int]]:
        """The values of these labels, each with its pair."""
        if len(self._columns) >= MOST_COLUMNS:
            self._columns.clear()
        columns = self._columns[names] = [self._pairs.setdefault(name, {}) for name in names]
        return columns

    def _new_pairs(self, labels: Mapping[str, str], pairs: list[Any]) -> None:
        """Allocate ids for those pairs of a label set that are new."""
        names, values = list(labels), list(labels.values())
        while None in pairs:
            at = pairs.index(None)
            pairs[at] = pair = self._pair_ids.allocate()
            self._pairs[names[at]][values[at]] = pair
            if pair == len(self._values):
                self._labels.append(names[at])
                self._values.append(values[at])
                self._having.append(None)
            else:
                self._labels[pair] = names[at]
                self._values[pair] = values[at]

    def _forget_pair(self, pair: int) -> None:
        label = self._labels[pair]
        values = self._pairs[label]
        del values[self._values[pair]]
        if not values:
            del self._pairs[label]
            self._columns.clear()
        self._labels[pair] = self._values[pair] = ""
        self._pair_ids.free(pair)

    def own(self, anchor: Anchor) -> Iterator[Sequence[int]]:
        """The label sets that have an anchor among their own labels, in parts; none twice."""
        label, value = anchor
        values = self._pairs.get(label, {})
        if value is None:
            # Others may come and go while a reader iterates over this.
            for pair in list(values.values()):
                yield each(self._having[pair])
        elif value in values:
            yield each(self._having[values[value]])

    def has_own(self, label: str) -> bool:
        """Whether any label set has a label of its own, not inherited."""
        return label in self._pairs

    def values(self, label: str) -> list[str]:
        """The values that a label has, own and inherited."""
        return [*self._pairs.get(label, ()), *self.groups.values(label)]

    def cost(self, anchor: Anchor) -> int:
        """How many label sets have an anchor, at most."""
        label, value = anchor
        values = self._pairs.get(label, {})
        if value is None:
            # A label of very many values is not looked at value by value.
            own = len(values) if len(values) > 1000 else self._sum(values.values())
        else:
            own = self._sum((values[value],)) if value in values else 0
        return own + sum(len(group.label_sets) for group in self.groups.inheriting(anchor))

    def _sum(self, pairs: Iterable[int]) -> int:
        return sum(length(self._having[pair]) for pair in pairs)

    def all_label_sets(self) -> Iterator[int]:
        """All of them."""
        return iter([number for number, key in enumerate(self._keys) if key is not None])

    # -- from group to group -------------------------------------------------------------------

    def transfer(self, label_set: int) -> int:
        """Bring a label set of a retired group into the current one; returns what it is there."""
        ids = self._ids(label_set)
        old = self.groups.at(ids[-1])
        group = self.groups.current.get(old.profiles) or self.groups.new(old.profiles)
        ids[-1] = group.number
        key = ids.tobytes()
        there = self._known(key, ids[:-1])
        if there is not None:
            for item in list(each(self.items_of[label_set])):
                self.move(item, there)
            return there
        before = self._keys[label_set]
        assert before is not None
        if self._interned.pop(before, None) is not None:
            self._interned[key] = label_set
        self._keys[label_set] = key
        drop_label_set(old, label_set)
        with_id(group.label_sets, label_set)
        if not old.label_sets:
            self.groups.forget(old)
        return label_set


def texts(members: Members) -> tuple[str, ...]:
    """Members as a tuple."""
    return (members,) if isinstance(members, str) else members
