"""The sets that active rules need, and their members, from all endpoints and network sets.

A set lives while rules need it. Every endpoint and network set that its selector matches
contributes members; two may contribute the same one (a network set that names a pod's
address), so contributions are counted and a member leaves with the last. Within one flush
what comes and goes cancels, so an address that moves from one pod to another is no event.

Invariants:
  SET-1  A set that rules need is announced with all of its members before anything else of it.
  SET-2  `added` was absent and `removed` present in what was told before; never both.
Tested in tests/felix/test_policy_calc_sets.py, test_policy_calc_model.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from felix.calc.policy.index import Flip, LabelIndex
from felix.calc.policy.items import Item
from felix.calc.policy.operations import Operations
from felix.calc.policy_model import SetChange, SetKind
from libcalico.model import ResourceKey
from libcalico.selectors import Selector


@dataclass(frozen=True, slots=True)
class SetNeed:
    """A set that a rule refers to: whom `selector` matches, or their port (protocol, name)."""

    id: str
    selector: Selector
    port: tuple[str, str] | None = None


def selector_set(selector: Selector) -> SetNeed:
    """The set of whom a selector matches; its id is Calico's (reference 1.3)."""
    return SetNeed(selector.uid, selector)


def port_set(selector: Selector, protocol: str, name: str) -> SetNeed:
    """The set of addresses with the number that each gives a named port."""
    text = f"n:{selector.uid},{protocol},{name}"
    digest = hashlib.sha224(text.encode()).digest()
    uid = "n:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return SetNeed(uid, selector, (protocol, name))


@dataclass(slots=True, eq=False)
class _Set:
    need: SetNeed
    users: int = 0
    announced: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    @property
    def kind(self) -> SetKind:
        return SetKind.NETS if self.need.port is None else SetKind.ADDRESS_PORTS


class SetTable:
    """Sets by id. `acquire` and `release` count users, `put` and `set_profile` feed members."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._index = LabelIndex(operations)
        self._items: dict[ResourceKey, Item] = {}
        self._sets: dict[str, _Set] = {}
        self._by_selector: dict[str, dict[str, _Set]] = {}
        self._dirty: dict[str, _Set] = {}

    @property
    def dirty(self) -> bool:
        """Whether a flush would look at anything."""
        return bool(self._dirty)

    @property
    def kinds(self) -> Mapping[str, SetKind]:
        """The sets that were announced."""
        return {one.need.id: one.kind for one in self._sets.values() if one.announced}

    @property
    def selectors(self) -> int:
        """How many selectors are followed."""
        return len(self._by_selector)

    @property
    def size(self) -> int:
        """Members of all sets together."""
        return sum(len(one.counts) for one in self._sets.values())

    def __len__(self) -> int:
        return len(self._sets)

    def members(self, set_id: str) -> frozenset[str]:
        """The members as they were told last. Raises KeyError for a set that was not."""
        one = self._sets[set_id]
        if not one.announced:
            raise KeyError(set_id)
        return frozenset(one.counts.keys() - one.added | one.removed)

    def put(self, key: ResourceKey, item: Item | None) -> None:
        """An endpoint or network set is so now; None: it is gone."""
        old = self._items.get(key)
        if old == item:
            return
        if item is None:
            del self._items[key]
            before, after = set(self._index.remove(key)), frozenset[str]()
        else:
            self._items[key] = item
            left, entered = self._index.put(key, item.labels, item.profiles)
            if left is entered and old is not None and _same_members(old, item):
                return
            before, after = set(left), frozenset(entered)
        for text in before | after:
            for one in self._by_selector[text].values():
                lost = old.contribution(one.need.port) if old and text in before else frozenset()
                gained = item.contribution(one.need.port) if item and text in after else frozenset()
                self._gain(one, gained - lost)
                self._lose(one, lost - gained)

    def set_profile(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A profile hands down these labels; None: it does not exist."""
        for flip in self._index.set_profile(name, labels):
            self._flip(flip)

    def acquire(self, need: SetNeed) -> None:
        """One more user of a set."""
        one = self._sets.get(need.id)
        if one is None:
            one = _Set(need)
            self._sets[need.id] = self._dirty[need.id] = one
            text = self._index.watch(need.selector)
            self._by_selector.setdefault(text, {})[need.id] = one
            for key in self._index.items_of(text):
                self._gain(one, self._items[key].contribution(need.port))
        one.users += 1

    def release(self, need: SetNeed) -> None:
        """One user less; a set without users goes with the next flush."""
        one = self._sets[need.id]
        one.users -= 1
        if not one.users:
            self._dirty[need.id] = one

    def flush(self) -> list[SetChange]:
        """What changed since the last: new sets, then changed ones, then those that go."""
        new, changed, gone = [], [], []
        for one in self._dirty.values():
            if not one.users:
                self._drop(one)
                if one.announced:
                    gone.append(SetChange(one.need.id, one.kind, removed_whole=True))
                continue
            if not one.announced:
                one.announced = True
                new.append(SetChange(one.need.id, one.kind, full=frozenset(one.counts)))
            elif one.added or one.removed:
                added, removed = frozenset(one.added), frozenset(one.removed)
                changed.append(SetChange(one.need.id, one.kind, added=added, removed=removed))
            one.added.clear()
            one.removed.clear()
        self._dirty.clear()
        return [*new, *changed, *gone]

    def _drop(self, one: _Set) -> None:
        del self._sets[one.need.id]
        text = one.need.selector.text
        del self._by_selector[text][one.need.id]
        if not self._by_selector[text]:
            del self._by_selector[text]
            self._index.unwatch(text)

    def _flip(self, flip: Flip) -> None:
        change = self._gain if flip.matches else self._lose
        for one in self._by_selector[flip.selector].values():
            for key in flip.items:
                change(one, self._items[key].contribution(one.need.port))

    def _gain(self, one: _Set, members: Iterable[str]) -> None:
        counts = one.counts
        for member in members:
            self._operations.members += 1
            count = counts.get(member, 0)
            counts[member] = count + 1
            if not count:
                self._dirty[one.need.id] = one
                if member in one.removed:
                    one.removed.discard(member)
                else:
                    one.added.add(member)

    def _lose(self, one: _Set, members: Iterable[str]) -> None:
        counts = one.counts
        for member in members:
            self._operations.members += 1
            counts[member] -= 1
            if not counts[member]:
                del counts[member]
                self._dirty[one.need.id] = one
                if member in one.added:
                    one.added.discard(member)
                else:
                    one.removed.add(member)


def _same_members(one: Item, other: Item) -> bool:
    return one.members == other.members and one.ports == other.ports
