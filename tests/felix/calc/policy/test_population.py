"""Columns of items, the search in them, and the dispatch of selectors, against plain dicts."""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from felix.calc.labels import NamedPort
from felix.calc.sets import search as searching
from felix.calc.sets.idlists import Allocator, each, length, with_id, without_id
from felix.calc.sets.population import Population
from felix.calc.sets.search import Search
from felix.calc.sets.selector_prefilter import Followed, SelectorPrefilter
from felix.calc.work_counters import WorkCounters
from libcalico.selectors.selectors import parse
from tests.felix.calc.policy.test_model import labels as some_labels
from tests.felix.calc.policy.test_model import selectors
from tests.size import examples

PROFILES = [(), ("one",), ("one", "two"), ("two", "one")]
items = st.lists(st.tuples(some_labels, st.sampled_from(PROFILES)), max_size=12)
handed_down = st.fixed_dictionaries({"one": some_labels, "two": some_labels})


def done(steps: Generator[int, None, Any]) -> Any:
    """What a search finds in the end."""
    while True:
        try:
            assert next(steps) >= 0
        except StopIteration as end:
            return end.value


def merged(own: dict[str, str], names: tuple[str, ...], given_: dict[str, Any]) -> dict[str, str]:
    """Own labels win, then the first profile."""
    found: dict[str, str] = {}
    for name in reversed(names):
        found |= given_[name]
    return found | own


def populate(population: Population, people: list[Any], given_: dict[str, Any]) -> None:
    for name, down in given_.items():
        population.groups.profiles[name] = down
    for number, (own, names) in enumerate(people):
        label_set = population.intern(own, names)
        population.put(number, label_set, f"10.0.0.{number % 5}", ())


@given(st.lists(st.integers(0, 30), unique=True), st.data())
def test_a_list_of_ids_is_a_sorted_set(numbers: list[int], data: st.DataObject) -> None:
    ids, model = None, set[int]()
    for one in numbers:
        ids = with_id(ids, one)
        model.add(one)
        assert list(each(ids)) == sorted(model)
    for one in data.draw(st.permutations(numbers)):
        ids = without_id(ids, one)
        model.discard(one)
        assert list(each(ids)) == sorted(model)
        assert length(ids) == len(model)
        assert isinstance(ids, array) == (len(model) > 1)
    assert ids is None


def test_ids_are_used_again() -> None:
    ids = Allocator()
    assert [ids.allocate(), ids.allocate()] == [0, 1]
    ids.free(0)
    assert len(ids) == 1
    assert ids.allocate() == 0


@settings(deadline=None)
@given(items, handed_down, selectors, st.sampled_from([0, 2, 500]))
def test_a_search_finds_whom_the_selector_matches(
    people: list[Any], given_: dict[str, Any], text: str, few: int
) -> None:
    population = Population()
    populate(population, people, given_)
    selector = parse(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "FEW", few)
        patch.setattr(searching, "PORTION", 1)
        found = done(Search(population, WorkCounters()).find(selector))
        patch.setattr(searching, "DEEPEST", 0)
        assert done(Search(population, WorkCounters()).find(selector)) == found
    matched = {item for one in found for item in each(population.items_of[one])}
    assert matched == {
        number
        for number, (own, names) in enumerate(people)
        if selector.matches(merged(own, names, given_))
    }


@settings(deadline=None)
@given(some_labels, st.lists(selectors, max_size=6), st.lists(selectors, max_size=3))
def test_the_dispatch_finds_those_that_match(
    own: dict[str, str], followed: list[str], gone: list[str]
) -> None:
    dispatch = SelectorPrefilter(WorkCounters())
    all_ = {parse(text).text: Followed(parse(text), lambda _: 1) for text in followed + gone}
    for one in all_.values():
        dispatch.add(one)
    for text in {parse(text).text for text in gone}:
        dispatch.remove(all_.pop(text))
    assert len(dispatch) == len(all_)
    assert {one.text for one in dispatch.matching(own)} == {
        text for text, one in all_.items() if one.selector.matches(own)
    }
    assert dispatch.mentioning(["app"]) == {one for one in all_.values() if "app" in one.mentions}


def test_labels_of_a_label_set_are_its_own_before_those_of_the_first_profile() -> None:
    population = Population()
    population.groups.profiles |= {"one": {"k": "1", "a": "1"}, "two": {"k": "2", "b": "2"}}
    label_set = population.intern({"a": "own"}, ("one", "two"))
    assert population.labels(label_set) == {"k": "1", "a": "own", "b": "2"}


def test_equal_labels_are_kept_once() -> None:
    population = Population()
    for number in range(10):
        population.put(number, population.intern({"app": "web"}, ("p",)), "10.0.0.1", ())
    assert population.label_sets == 1
    assert len(population) == 10
    assert set(population.holders("10.0.0.1")) == set(range(10))


def test_label_sets_of_a_retired_group_join_equal_ones_of_the_current() -> None:
    population = Population()
    population.groups.profiles["p"] = {"team": "red"}
    old = population.intern({"app": "web"}, ("p",))
    population.put("a", old, "10.0.0.1", ())
    (group,) = population.groups.of("p")
    population.groups.profiles["p"] = {"team": "blue"}
    population.groups.retire(group)
    new = population.intern({"app": "web"}, ("p",))
    population.put("b", new, "10.0.0.2", ())
    assert population.labels(old)["team"] == "red"
    assert population.labels(new)["team"] == "blue"
    assert population.transfer(old) == new
    assert population.label_sets == 1
    assert not population.lives(old)
    assert len(list(population.groups.inheriting(("team", None)))) == 1


def test_nothing_is_left_of_what_is_gone() -> None:
    population = Population()
    population.groups.profiles["p"] = {"team": "red"}
    port = NamedPort("http", "tcp", 80)
    for number in range(3):
        label_set = population.intern({"app": "web", "name": str(number)}, ("p", "p"))
        population.put(number, label_set, ("10.0.0.1", f"10.0.1.{number}"), (port,))
    population.move(0, population.intern({"app": "db"}, ()))
    population.equip(1, "10.0.0.9", ())
    for number in range(3):
        population.remove(number)
    assert len(population) == population.label_sets == 0
    for name in ("_holders", "_interned", "_pairs"):
        assert not getattr(population, name), name
    for name in ("current", "_of", "_inheriting"):
        assert not getattr(population.groups, name), name
    assert not population.ports_of
    assert not any(map(population.lives, range(4)))
    label_set = population.intern({"a": "b"}, ("p",))
    assert label_set < 4, "ids are used again"
    assert population.labels(label_set) == {"a": "b", "team": "red"}


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"), max_size=3)
MOVES = st.lists(
    st.tuples(st.integers(0, 5), st.none() | LABELS, st.sampled_from([(), ("p",)])), max_size=30
)


@settings(max_examples=examples(200))
@given(MOVES)
@example([(0, {"a": "2", "c": "1", "b": "1"}, ("p",)), (1, {"a": "2", "b": "1", "c": "1"}, ("p",))])
def test_equal_labels_are_one_label_set_whatever_was_there_before(
    moves: list[tuple[int, dict[str, str] | None, tuple[str, ...]]],
) -> None:
    """COL-3."""
    population = Population()
    there: dict[int, tuple[dict[str, str], tuple[str, ...]]] = {}
    for name, labels, profiles in moves:
        if labels is not None:
            label_set = population.intern(labels, profiles)
            if name in there:
                population.move(population.numbers[name], label_set)
            else:
                population.put(name, label_set, f"10.0.0.{name}", ())
            there[name] = (labels, profiles)
        elif there.pop(name, None) is not None:
            population.remove(name)
        different = {(tuple(sorted(own.items())), of) for own, of in there.values()}
        assert population.label_sets == len(different) == len(list(population.all_label_sets()))
        for one, (own, of) in there.items():
            label_set = population.label_set_of[population.numbers[one]]
            assert population.labels(label_set) == own
            assert population.intern(own, of) == label_set
