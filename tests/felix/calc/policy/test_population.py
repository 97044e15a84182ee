"""Columns of items, the search in them, and the dispatch of selectors, against plain dicts."""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.labels import NamedPort
from felix.calc.sets import label_sets
from felix.calc.sets import search as searching
from felix.calc.sets.idlists import Allocator, each, length, with_id, without_id
from felix.calc.sets.population import Population
from felix.calc.sets.search import Search
from felix.calc.sets.selector_prefilter import Followed, SelectorPrefilter
from felix.calc.work_counters import WorkCounters
from libcalico.selectors.selectors import parse
from tests.felix.calc.policy.test_model import labels as some_labels
from tests.felix.calc.policy.test_model import selectors

ALIKE = (0, 1000)
"""Limits of values for which all labels of these tests are leaves, or are in the stem."""
MIXED = (*ALIKE, 1, 2)
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
        population.label_sets.groups.profiles[name] = down
    for number, (own, names) in enumerate(people):
        label_set = population.label_sets.intern(own, names)
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
@given(
    items,
    handed_down,
    selectors,
    st.sampled_from([0, 2, 500]),
    st.sampled_from(MIXED),
    st.sampled_from([1, 100]),
)
def test_a_search_finds_whom_the_selector_matches(
    people: list[Any], given_: dict[str, Any], text: str, few: int, many_values: int, sample: int
) -> None:
    population = Population()
    selector = parse(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_sets, "MANY_VALUES", many_values)
        patch.setattr(label_sets, "SAMPLE", sample)
        populate(population, people, given_)
        patch.setattr(searching, "FEW", few)
        patch.setattr(searching, "PORTION", 1)
        found = done(Search(population.label_sets, WorkCounters()).find(selector))
        patch.setattr(searching, "DEEPEST", 0)
        assert done(Search(population.label_sets, WorkCounters()).find(selector)) == found
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


def test_equal_labels_are_kept_once() -> None:
    population = Population()
    for number in range(10):
        population.put(number, population.label_sets.intern({"app": "web"}, ("p",)), "10.0.0.1", ())
    assert len(population.label_sets) == 1
    assert len(population) == 10
    assert set(population.holders("10.0.0.1")) == set(range(10))


@pytest.mark.parametrize("many_values", ALIKE)
def test_label_sets_of_a_retired_group_join_equal_ones_of_the_current(
    many_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_sets, "MANY_VALUES", many_values)
    population = Population()
    known = population.label_sets
    known.groups.profiles["p"] = {"team": "red"}
    old = known.intern({"app": "web"}, ("p",))
    population.put("a", old, "10.0.0.1", ())
    (group,) = known.groups.of("p")
    known.groups.profiles["p"] = {"team": "blue"}
    known.groups.retire(group)
    new = known.intern({"app": "web"}, ("p",))
    population.put("b", new, "10.0.0.2", ())
    assert known.labels(old)["team"] == "red"
    assert known.labels(new)["team"] == "blue"
    assert population.transfer(old) == new
    assert len(known) == 1
    assert not known.lives(old)
    assert len(list(known.groups.inheriting(("team", None)))) == 1


@pytest.mark.parametrize("many_values", MIXED)
def test_nothing_is_left_of_what_is_gone(many_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_sets, "MANY_VALUES", many_values)
    population = Population()
    known = population.label_sets
    known.groups.profiles["p"] = {"team": "red"}
    port = NamedPort("http", "tcp", 80)
    for number in range(3):
        label_set = known.intern({"app": "web", "name": str(number)}, ("p", "p"))
        population.put(number, label_set, ("10.0.0.1", f"10.0.1.{number}"), (port,))
    population.move(0, known.intern({"app": "db"}, ()))
    population.equip(1, "10.0.0.9", ())
    for number in range(3):
        population.remove(number)
    assert len(population) == len(known) == 0
    assert not population._holders
    for name in ("_interned", "_stems", "_with_pair"):
        assert not getattr(known, name), name
    for name in ("current", "_of", "_inheriting"):
        assert not getattr(known.groups, name), name
    assert "app" not in known._pairs
    assert not population.ports_of
    assert not any(map(known.lives, range(4)))
    label_set = known.intern({"a": "b"}, ("p",))
    assert label_set < 4, "ids are used again"
    assert known.labels(label_set) == {"a": "b", "team": "red"}
