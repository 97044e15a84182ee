"""The compiled function of a selector against its tree (SEL-1), and selectors as values."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.selectors.compiler import MAX_DEPTH, compiled, source
from libcalico.selectors.nodes import depth
from libcalico.selectors.selectors import And, Compare, Constant, Has, InSet, Node, Not, Or, parse
from tests.size import examples

names = st.sampled_from(["a", "b", "projectcalico.org/namespace"])
values = st.sampled_from(["", "x", "xy", "'", '"', "\\", "\n", "{}", "\u2028", "\ud800", "%s"])
leaves: st.SearchStrategy[Node] = (
    st.builds(
        Compare,
        names,
        st.sampled_from(["==", "!=", "contains", "starts with", "ends with"]),
        values,
    )
    | st.builds(InSet, names, st.frozensets(values, max_size=3), st.booleans())
    | st.builds(Has, names)
    | st.sampled_from([Constant("all()"), Constant("global()")])
)
trees: st.SearchStrategy[Node] = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=8,
)
label_sets = st.dictionaries(names, values | st.just("xyx"), max_size=3)


@settings(max_examples=examples(300), deadline=None)
@given(trees, st.lists(label_sets, min_size=1, max_size=5))
def test_function_and_tree_answer_alike(tree: Node, samples: list[dict[str, str]]) -> None:
    function = compiled(tree)
    for labels in samples:
        assert function(labels) is tree.matches(labels), source(tree)


def test_a_deep_tree_is_walked() -> None:
    tree: Node = Has("a")
    for _ in range(MAX_DEPTH):
        tree = Not(And((tree, Constant("all()"))))
    assert depth(tree) == 2 * MAX_DEPTH + 1
    assert compiled(tree)({"a": ""}) is True
    assert compiled(tree)({}) is False


def test_nothing_in_a_selector_becomes_code() -> None:
    nasty = "' or True or labels.clear() or '"
    tree = Compare("a", "==", nasty)
    assert compiled(tree)({"a": "x"}) is False
    assert compiled(tree)({"a": nasty}) is True


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        # SHA-224 of "s:" and the canonical text, by hand with sha224sum and base64.
        ("all()", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
        ("a=='1'", "s:yEDvvJvHU3Uzd9OHq0ssQIFKMWWKmKlRvac-zg"),
        ("b in {'y', 'x'} && !has(c)", "s:x3O5Hy9c3qNBHC7bGsAXgfL6aSOVIZWq_KeNKw"),
    ],
)
def test_the_identifier_is_calicos(text: str, uid: str) -> None:
    assert parse(text).uid == uid


def test_selectors_are_values() -> None:
    one = parse("a == 'x' && has(b)")
    assert one == parse(' a=="x"&&has( b )')
    assert hash(one) == hash(parse("a == 'x' && has(b)  "))
    assert one != parse("a == 'x'")
    assert one != "a == 'x' && has(b)"
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one).matches({"a": "x", "b": ""})
    assert repr(one) == 'Selector((a == "x" && has(b)))'
    with pytest.raises(AttributeError):
        one.nothing  # noqa: B018
