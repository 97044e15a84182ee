"""The label index: anchors, and what it looks at."""

from __future__ import annotations

import pytest

from felix.calc.policy.index import LabelIndex
from felix.calc.policy.label_sets import Flip
from felix.calc.sets.anchors import Anchor, anchors, mentioned
from felix.calc.work_counters import WorkCounters
from libcalico.model import ResourceKey
from libcalico.selectors.selectors import parse

COSTS = {("rare", "x"): 1, ("common", "x"): 100, ("common", None): 200}


def item(name: str) -> ResourceKey:
    return ResourceKey("WorkloadEndpoint", name, "default")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rare == 'x'", (("rare", "x"),)),
        ("common == 'x' && rare == 'x'", (("rare", "x"),)),
        ("has(common) && rare != 'x'", (("common", None),)),
        ("common in {'x', 'y'}", (("common", "x"), ("common", "y"))),
        ("common in {}", ()),
        ("common contains 'x'", (("common", None),)),
        ("common == 'x' || rare == 'x'", (("common", "x"), ("rare", "x"))),
        ("common == 'x' || rare != 'x'", None),
        ("common != 'x'", None),
        ("common not in {'x'}", None),
        ("!has(common)", None),
        ("all()", None),
        ("global()", None),
        ("all() && rare == 'x'", (("rare", "x"),)),
    ],
)
def test_anchors(text: str, found: tuple[Anchor, ...] | None) -> None:
    assert anchors(parse(text).root, lambda anchor: COSTS.get(anchor, 10)) == found


def test_what_a_selector_mentions() -> None:
    text = "!(a == 'x') || (has(b) && c in {'x'}) || global() || all()"
    assert mentioned(parse(text).root) == {"a", "b", "c", "projectcalico.org/namespace"}


def test_the_first_profile_wins_and_own_labels_win_over_all() -> None:
    index = LabelIndex(WorkCounters())
    for text in ("k == 'own'", "k == 'one'", "k == 'two'"):
        index.watch(parse(text))
    index.set_profile("one", {"k": "one"})
    index.set_profile("two", {"k": "two"})
    assert index.put(item("a"), (), ("one", "two"))[1] == {'k == "one"'}
    assert index.put(item("b"), (), ("two", "one"))[1] == {'k == "two"'}
    assert index.put(item("c"), (("k", "own"),), ("one",))[1] == {'k == "own"'}
    flips = index.set_profile("one", None)
    assert Flip('k == "one"', frozenset({item("a")}), False) in flips
    assert Flip('k == "two"', frozenset({item("a")}), True) in flips
    assert len(flips) == 2


def test_a_namespace_label_that_nobody_mentions_is_looked_at_by_nobody() -> None:
    operations = WorkCounters()
    index = LabelIndex(operations)
    index.watch(parse("app == 'x'"))
    for number in range(100):
        index.put(item(str(number)), (("app", str(number)),), ("kns.default",))
    before = operations.evaluations
    assert index.set_profile("kns.default", {"pcns.owner": "me"}) == []
    assert operations.evaluations == before


def test_only_selectors_that_can_match_are_asked() -> None:
    operations = WorkCounters()
    index = LabelIndex(operations)
    for number in range(1000):
        index.watch(parse(f"app == 'n{number}' && tier != 'x'"))
    index.put(item("a"), (("app", "n7"), ("tier", "y")), ())
    assert operations.evaluations == 1
    assert index.selectors_of(item("a")) == {'(app == "n7" && tier != "x")'}


def test_a_new_selector_asks_only_those_who_have_its_rarest_label() -> None:
    operations = WorkCounters()
    index = LabelIndex(operations)
    for number in range(1000):
        labels = (("app", f"n{number}"), ("zone", "z"))
        index.put(item(str(number)), labels, ())
    text = index.watch(parse("zone == 'z' && app in {'n1', 'n2'}"))
    assert operations.evaluations == 2
    assert set(index.items_of(text)) == {item("1"), item("2")}


def test_pods_of_one_replica_set_are_asked_once() -> None:
    operations = WorkCounters()
    index = LabelIndex(operations)
    text = index.watch(parse("has(app)"))
    for number in range(100):
        index.put(item(str(number)), (("app", "web"),), ("kns.default",))
    assert operations.evaluations == 1
    assert len(list(index.items_of(text))) == 100


def test_nothing_is_left_of_what_is_gone() -> None:
    index = LabelIndex(WorkCounters())
    text = index.watch(parse("app == 'x' || has(inherited)"))
    index.set_profile("p", {"inherited": "1"})
    index.put(item("a"), (("app", "x"),), ("p", "p"))
    index.remove(item("a"))
    index.unwatch(text)
    index.set_profile("p", None)
    empty = LabelIndex(WorkCounters())
    for name in vars(empty):
        if name != "_operations":
            left, blank = getattr(index, name), getattr(empty, name)
            assert getattr(left, "_holders", left) == getattr(blank, "_holders", blank), name
