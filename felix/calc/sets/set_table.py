"""The sets that active rules need, and their members, from all endpoints and network sets.

A set lives while rules need it. Every endpoint and network set that its selector matches
contributes members; two may contribute the same one (a network set that names a pod's
address). No member is remembered here once it was told: a change tells what it adds and takes,
and where an address has several holders the others are asked whether they hold it too. Within
one flush what comes and goes cancels, so an address that moves from one pod to another is no
event.

What touches very much is done in steps (`step`), so that a loop can have its other work between
them: a set is filled portion by portion, and a profile's label of many endpoints reaches them
portion by portion. A change that comes between two portions is noted for the set that is being
filled, and looked at when it is full; label sets that a profile's new labels have not reached
yet simply still have the old ones.

Invariants:
  SET-1  A set that rules need is announced with all of its members before anything else of it.
  SET-2  `added` was absent and `removed` present in what was told before; never both.
  SET-3  After the last step all is as if everything had happened at once.
Tested in tests/felix/calc/policy/test_sets.py, test_model.py,
test_cooperative_calculation.py.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Generator, Hashable, Mapping

from felix.calc.policy_model import SetChange, SetKind
from felix.calc.sets.idlists import each
from felix.calc.sets.items import Item
from felix.calc.sets.needed_set import NeededSet, State
from felix.calc.sets.population import Members, Population, Ports
from felix.calc.sets.profile_groups import Group
from felix.calc.sets.search import Search
from felix.calc.sets.selector_prefilter import Followed, SelectorPrefilter
from felix.calc.sets.set_needs import SetNeed, contribution
from felix.calc.work_counters import WorkCounters
from libcalico.model import ResourceKey

PORTION = 2000
MOVED = 200
TOUCHED = 200
TOLD = 500
"""Label sets filled in, label sets relabelled, addresses looked at again, sets told, in a step."""
NO_MATCH: frozenset[Followed] = frozenset()
Steps = Generator[int, None, None]


class SetTable:
    """Sets by id. `acquire` and `release` count users, `put` and `set_profile` feed members."""

    def __init__(self, operations: WorkCounters) -> None:
        self._operations = operations
        self.population = Population()
        self._dispatch = SelectorPrefilter(operations)
        self._search = Search(self.population.label_sets, operations)
        self._sets: dict[str, NeededSet] = {}
        self._by_selector: dict[str, dict[str, NeededSet]] = {}
        self._dirty: dict[str, NeededSet] = {}
        self._waiting: dict[str, NeededSet] = {}
        self._moving: deque[Group] = deque()
        self._steps: Steps | None = None

    @property
    def dirty(self) -> bool:
        """Whether a flush would look at anything."""
        return bool(self._dirty or self._moving or self._steps)

    @property
    def following(self) -> bool:
        """Whether any selector is followed; before that an item is only put into its columns."""
        return bool(self._dispatch)

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
        return sum(one.size for one in self._sets.values())

    def __len__(self) -> int:
        return len(self._sets)

    def members(self, set_id: str) -> frozenset[str]:
        """The members as of the last flush. Raises KeyError for a set that was not announced."""
        one = self._sets[set_id]
        if not one.announced:
            raise KeyError(set_id)
        current: set[str] = set()
        for _ in self._collect(one, current):
            pass
        return frozenset(current - one.added | one.removed)

    def need(self, set_id: str) -> SetNeed | None:
        """What a set holds, by its id."""
        one = self._sets.get(set_id)
        return None if one is None else one.need

    # -- items ---------------------------------------------------------------------------------

    def put(self, key: ResourceKey, item: Item | None) -> None:
        """Add or change an endpoint or network set; None removes it."""
        name = name_of(key)
        if item is None:
            self.remove(name)
        else:
            members = item.members[0] if len(item.members) == 1 else item.members
            number = self.population.numbers.get(name)
            self.put_row(name, number, dict(item.labels), item.profiles, members, item.ports)

    def put_row(
        self,
        name: Hashable,
        number: int | None,
        labels: Mapping[str, str],
        profiles: tuple[str, ...],
        members: Members,
        ports: Ports,
        stamp: int = 0,
    ) -> int:
        """The same, in the parts that are kept; returns its number.

        `number`: what it had so far, None if it is new. `stamp` is the feeder's own, for its use.
        """
        population = self.population
        label_set = population.label_sets.intern(labels, profiles)
        if number is None:
            number = population.put(name, label_set, members, ports, stamp)
            if self._dispatch:
                after = self._dispatch.matching(population.label_sets.labels(label_set))
                self._differ(number, NO_MATCH, ((), ()), after, (members, ports))
            return number
        population.stamps[number] = stamp
        left = population.label_set_of[number]
        old = (population.members_of[number], population.ports_of.get(number, ()))
        if label_set == left and old == (members, ports):
            return number
        before = after = set[Followed]()
        if self._dispatch:
            before = after = self._dispatch.matching(population.label_sets.labels(left))
            if label_set != left:
                after = self._dispatch.matching(population.label_sets.labels(label_set))
        population.move(number, label_set)
        if old != (members, ports):
            population.equip(number, members, ports)
        self._differ(number, before, old, after, (members, ports))
        return number

    def remove(self, name: Hashable) -> None:
        """Remove an item, if it exists."""
        population = self.population
        number = population.numbers.get(name)
        if number is None:
            return
        old = (population.members_of[number], population.ports_of.get(number, ()))
        before: Collection[Followed] = NO_MATCH
        if self._dispatch:
            before = self._dispatch.matching(
                population.label_sets.labels(population.label_set_of[number])
            )
        population.remove(name)
        self._differ(number, before, old, NO_MATCH, ((), ()))

    def set_profile(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels that a profile hands down; None: it does not exist."""
        population = self.population
        if population.label_sets.groups.profiles.get(name) == labels:
            return
        if labels is None:
            del population.label_sets.groups.profiles[name]
        else:
            population.label_sets.groups.profiles[name] = dict(labels)
        for group in population.label_sets.groups.of(name):
            after = population.label_sets.groups.inherit(group.profiles)
            if self._dispatch.mentioning(_differing(group.inherited, after)):
                population.label_sets.groups.retire(group)
                self._moving.append(group)
            elif after != group.inherited:
                population.label_sets.groups.relabel(group, after)

    # -- sets ----------------------------------------------------------------------------------

    def acquire(self, need: SetNeed) -> None:
        """One more user of a set."""
        one = self._sets.get(need.id)
        if one is None:
            text = need.selector.text
            there = self._by_selector.setdefault(text, {})
            if there:
                followed = next(iter(there.values())).followed
            else:
                followed = Followed(need.selector, self.population.label_sets.cost)
                self._dispatch.add(followed)
            one = there[need.id] = self._sets[need.id] = NeededSet(need, followed)
            self._dirty[need.id] = one
        if one.state is State.WAITING:
            self._waiting[need.id] = one
        one.users += 1

    def release(self, need: SetNeed) -> None:
        """One user less; a set without users goes with the next flush."""
        one = self._sets[need.id]
        one.users -= 1
        if not one.users:
            self._waiting.pop(need.id, None)
            self._dirty[need.id] = one

    def step(self) -> int:
        """Do a part of what is pending; returns how much, in about microseconds, 0: all is done."""
        if self._steps is None:
            if self._moving:
                self._steps = self._move(self._moving.popleft())
            elif self._waiting:
                self._steps = self._fill(self._waiting.pop(next(iter(self._waiting))))
            else:
                return 0
        try:
            return 1 + next(self._steps)
        except StopIteration:
            self._steps = None
            return 1

    def flush(self) -> Generator[None, None, list[SetChange]]:
        """What changed since the last: new sets, then changed ones, then those that go.

        In steps, between which members may change: what was told is told, the rest is told as
        it is by then. Given up half-way, the rest is in the next flush.
        """
        while self.step():
            yield
        new, changed, gone = [], [], []
        for number, name in enumerate(list(self._dirty), 1):
            if not number % TOLD:
                yield
            one = self._dirty.pop(name, None)
            if one is None:
                continue
            if not one.users:
                self._drop(one)
                if one.announced:
                    gone.append(SetChange(one.need.id, one.kind, removed_whole=True))
                continue
            if not one.announced:
                new.append(one.announce())
            elif one.added or one.removed:
                changed.append(one.pop_change())
        return [*new, *changed, *gone]

    def _drop(self, one: NeededSet) -> None:
        del self._sets[one.need.id]
        text = one.followed.text
        del self._by_selector[text][one.need.id]
        if not self._by_selector[text]:
            del self._by_selector[text]
            self._dispatch.remove(one.followed)

    # -- what changes --------------------------------------------------------------------------

    def _differ(
        self,
        number: int,
        before: Collection[Followed],
        old: tuple[Members, Ports],
        after: Collection[Followed],
        new: tuple[Members, Ports],
    ) -> None:
        """An item was matched by other selectors, or had other members."""
        for followed in {*before, *after}:
            for one in self._by_selector[followed.text].values():
                if one.state is State.WAITING:
                    continue
                port = one.need.port
                lost = contribution(*old, port) if followed in before else NOTHING
                gained = contribution(*new, port) if followed in after else NOTHING
                if one.state is State.FILLING:
                    # Even if both are the same: the search may look for the item where it is no
                    # more, and have been where it is now.
                    one.touched.update(lost, gained)
                elif lost != gained:
                    self._exchange(one, lost - gained, gained - lost, (number,))

    def _exchange(
        self,
        one: NeededSet,
        lost: Collection[str],
        gained: Collection[str],
        movers: Collection[int],
    ) -> None:
        """Items lost and gained members of a full set; those that others hold too are no event.

        Groups are moved only while no set is being filled: there is one step at a time.
        """
        for text in gained:
            if not self._held(one, text, movers):
                self._operations.members += 1
                self._dirty[one.need.id] = one
                one.gain(text)
        for text in lost:
            if not self._held(one, text, movers):
                self._operations.members += 1
                self._dirty[one.need.id] = one
                one.lose(text)

    def _held(self, one: NeededSet, text: str, without: Collection[int] = ()) -> bool:
        """Whether an item, but for these, contributes a member."""
        population, port = self.population, one.need.port
        address = text if port is None else text.partition(",")[0]
        for item in population.holders(address):
            if item in without:
                continue
            if port is not None and text not in contribution(
                population.members_of[item], population.ports_of.get(item, ()), port
            ):
                continue
            self._operations.evaluations += 1
            if one.followed.selector.matches(
                population.label_sets.labels(population.label_set_of[item])
            ):
                return True
        return False

    # -- in steps ------------------------------------------------------------------------------

    def _fill(self, one: NeededSet) -> Steps:
        one.state = State.FILLING
        yield from self._collect(one, one.members)
        while one.touched:
            for _ in range(min(TOUCHED, len(one.touched))):
                text = one.touched.pop()
                (one.members.add if self._held(one, text) else one.members.discard)(text)
            yield TOUCHED * 3
        one.state = State.FULL
        one.size = len(one.members)
        self._operations.members += one.size

    def _collect(self, one: NeededSet, members: set[str]) -> Steps:
        """Add what the items that match contribute."""
        population, port = self.population, one.need.port
        items_of, members_of, ports_of = (
            population.items_of,
            population.members_of,
            population.ports_of,
        )
        born, matches = population.label_sets.born, one.need.selector.matches
        label_sets = list((yield from self._search.find(one.need.selector)))
        for start in range(0, len(label_sets), PORTION):
            portion, work = label_sets[start : start + PORTION], PORTION // 2
            if population.label_sets.born != born:
                work += PORTION * 2
                # What was found may have gone, and its number may be another label set's by now.
                portion = [
                    number
                    for number in portion
                    if population.label_sets.lives(number)
                    and matches(population.label_sets.labels(number))
                ]
            for label_set in portion:
                for item in each(items_of[label_set]):
                    if port is None:
                        own = members_of[item]
                        if isinstance(own, str):
                            members.add(own)
                        else:
                            members.update(own)
                    elif item in ports_of:
                        members |= contribution(members_of[item], ports_of[item], port)
            yield work

    def _move(self, group: Group) -> Steps:
        """Bring the label sets of a retired group under what its profiles hand down now."""
        population = self.population
        while group.label_sets:
            changed = _differing(
                group.inherited, population.label_sets.groups.inherit(group.profiles)
            )
            concerned = self._dispatch.mentioning(changed)
            portion = group.label_sets[-MOVED:]
            self._operations.evaluations += len(portion) * len(concerned)
            for label_set in array("I", portion):
                self._relabel(label_set, concerned)
            yield len(portion) * 10

    def _relabel(self, label_set: int, concerned: Collection[Followed]) -> None:
        population = self.population
        items = list(each(population.items_of[label_set]))
        before = population.label_sets.labels(label_set)
        after = population.label_sets.labels(population.transfer(label_set))
        for followed in concerned:
            matched, matches = (followed.selector.matches(labels) for labels in (before, after))
            if matched == matches:
                continue
            for one in self._by_selector[followed.text].values():
                if one.state is State.WAITING:
                    continue
                members: set[str] = set()
                for item in items:
                    own, ports = population.members_of[item], population.ports_of.get(item, ())
                    members |= contribution(own, ports, one.need.port)
                lost, gained = (members, NOTHING) if matched else (NOTHING, members)
                self._exchange(one, lost, gained, items)


NOTHING: frozenset[str] = frozenset()


def name_of(key: ResourceKey) -> Hashable:
    """What an item is known by: for an endpoint `namespace/name`, as feeders of rows spell it."""
    return f"{key.namespace}/{key.name}" if key.kind == "WorkloadEndpoint" else key


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {label for label, _ in one.items() ^ other.items()}
