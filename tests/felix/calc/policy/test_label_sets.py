"""Label sets as stems and leaves, against plain dicts. Searches in them: test_population.py."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from felix.calc.sets import label_sets
from felix.calc.sets.label_sets import MANY_VALUES, LabelSets
from felix.calc.sets.population import Population
from tests.felix.calc.policy.test_population import ALIKE
from tests.size import examples


def test_labels_of_a_label_set_are_its_own_before_those_of_the_first_profile() -> None:
    known = LabelSets()
    known.groups.profiles |= {"one": {"k": "1", "a": "1"}, "two": {"k": "2", "b": "2"}}
    label_set = known.intern({"a": "own"}, ("one", "two"))
    assert known.labels(label_set) == {"k": "1", "a": "own", "b": "2"}


def test_a_label_of_very_many_values_is_a_leaf() -> None:
    population = Population()
    known = population.label_sets
    for number in range(2 * MANY_VALUES):
        # In any order: that of the labels counts for nothing.
        name, app = ("name", str(number)), ("app", f"app-{number % 3}")
        labels = dict([name, app] if number % 2 else [app, name])
        label_set = known.intern(labels, ("p",))
        population.put(number, label_set, "10.0.0.1", ())
        assert known.labels(label_set) == labels
    assert len(known) == 2 * MANY_VALUES
    again = {"app": f"app-{MANY_VALUES % 3}", "name": str(MANY_VALUES)}
    for labels in (again, dict(reversed(again.items()))):
        assert known.intern(labels, ("p",)) == population.label_set_of[MANY_VALUES]
    assert len(known._stems) == MANY_VALUES + 3, "those of before it had many, and one for each app"
    assert known.cost(("name", None)) == 2 * MANY_VALUES
    assert known.cost(("name", "7")) == known.cost(("name", "1777")) == 1
    assert sorted(one for part in known.own(("app", "app-1")) for one in part) == [
        *range(1, 2 * MANY_VALUES, 3)
    ]
    for number in range(2 * MANY_VALUES):
        population.remove(number)
    assert not known._stems
    assert not list(known.all())


def test_label_sets_that_share_a_leaf_are_told_apart() -> None:
    population = Population()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_sets, "MANY_VALUES", 1)
        known = population.label_sets
        for number, team in enumerate("abab"):
            labels = {"name": "web-0", "team": team}
            population.put(number, known.intern(labels, (f"p{number}",)), "10.0.0.1", ())
        again = [known.intern({"name": "web-0", "team": "b"}, (f"p{n}",)) for n in (1, 3)]
        assert [population.label_set_of[number] for number in (1, 3)] == again
        assert len(set(population.label_set_of)) == 4
        population.remove(1)
        assert known.intern({"team": "b", "name": "web-0"}, ("p3",)) == again[1]


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"), max_size=3)
MOVES = st.lists(
    st.tuples(st.integers(0, 5), st.none() | LABELS, st.sampled_from([(), ("p",)])), max_size=30
)


@settings(max_examples=examples(200))
@given(MOVES, st.sampled_from(ALIKE))
@example(
    [(0, {"a": "2", "c": "1", "b": "1"}, ("p",)), (1, {"a": "2", "b": "1", "c": "1"}, ("p",))], 1000
)
def test_equal_labels_are_one_label_set_whatever_was_there_before(
    moves: list[tuple[int, dict[str, str] | None, tuple[str, ...]]], many_values: int
) -> None:
    """COL-3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_sets, "MANY_VALUES", many_values)
        follow(moves, Population())


def follow(
    moves: list[tuple[int, dict[str, str] | None, tuple[str, ...]]], population: Population
) -> None:
    known = population.label_sets
    there: dict[int, tuple[dict[str, str], tuple[str, ...]]] = {}
    for name, labels, profiles in moves:
        if labels is not None:
            label_set = known.intern(labels, profiles)
            if name in there:
                population.move(population.numbers[name], label_set)
            else:
                population.put(name, label_set, f"10.0.0.{name}", ())
            there[name] = (labels, profiles)
        elif there.pop(name, None) is not None:
            population.remove(name)
        different = {(tuple(sorted(own.items())), of) for own, of in there.values()}
        assert len(known) == len(different) == len(list(known.all()))
        for one, (own, of) in there.items():
            label_set = population.label_set_of[population.numbers[one]]
            assert known.labels(label_set) == own
            assert known.intern(own, of) == label_set
