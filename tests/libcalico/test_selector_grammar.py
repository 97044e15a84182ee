"""The whole selector language against a second reading of it.

The second reading never parses: a random expression is data (nested tuples), spelled out
with random blanks, quotes, keywords and parentheses for our parser, and evaluated here by
the table of docs/reference/data-model.md#selectors. Both must agree on any labels.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.errors import InvalidValue
from libcalico.selectors.selectors import parse
from tests.size import examples

NAMES = ["a", "in", "not", "has", "app.kubernetes.io/name", "projectcalico.org/namespace", "X_y-1"]
VALUES = ["", "x", "xy", "a b", "it's", 'say "x"', "{,}", "all()", "&&"]
Expression = tuple[Any, ...]

SPELLINGS = {
    "==": ["=="],
    "!=": ["!="],
    "contains": ["contains"],
    "starts with": ["starts with", "startswith", "starts \t with"],
    "ends with": ["ends with", "endswith", "ends  with"],
    "in": ["in"],
    "not in": ["not in", "notin", "not\tin"],
}
WORDS = frozenset({"contains", "starts with", "ends with", "in", "not in"})

names = st.sampled_from(NAMES)
values = st.sampled_from(VALUES)
comparisons = st.tuples(
    st.sampled_from(["==", "!=", "contains", "starts with", "ends with"]), names, values
)
memberships = st.tuples(
    st.sampled_from(["in", "not in"]), names, st.lists(values, max_size=3).map(tuple)
)
constants = st.sampled_from([("all",), ("global",)])
leaves = comparisons | memberships | constants | st.tuples(st.just("has"), names)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.just("!"), inner)
        | st.tuples(st.just("&&"), st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.tuples(st.just("||"), st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=8,
)
labels = st.dictionaries(names, st.sampled_from([*VALUES, "xyx", "xa b"]), max_size=5)


def holds(expression: Expression, labels: dict[str, str]) -> bool:
    """The table of the reference, row by row."""
    match expression:
        case ("all",):
            return True
        case ("global",):
            return "projectcalico.org/namespace" not in labels
        case ("has", name):
            return name in labels
        case ("!", inner):
            return not holds(inner, labels)
        case ("&&", inner):
            return all(holds(one, labels) for one in inner)
        case ("||", inner):
            return any(holds(one, labels) for one in inner)
    operator, name, value = expression
    if name not in labels:
        return operator in ("!=", "not in")
    text = labels[name]
    answers: dict[str, bool] = {
        "==": text == value,
        "!=": text != value,
        "in": any(text == one for one in value),
        "not in": not any(text == one for one in value),
    }
    if isinstance(value, str):
        size = len(value)
        answers |= {
            "contains": any(text[i : i + size] == value for i in range(len(text) + 1)),
            "starts with": text[:size] == value,
            "ends with": size <= len(text) and text[len(text) - size :] == value,
        }
    return answers[operator]


def spelled(draw: Any, expression: Expression, outer: int = 0) -> str:
    """One of the many texts of an expression; `outer` is how tightly what is around binds."""

    def blank(needed: bool = False) -> str:
        return str(draw(st.sampled_from([" ", "  ", "\t"] if needed else ["", " ", "\t "])))

    def quoted(value: str) -> str:
        fitting = [quote for quote in "'\"" if quote not in value]
        quote = draw(st.sampled_from(fitting))
        return f"{quote}{value}{quote}"

    tightness = 3
    match expression:
        case ("all",) | ("global",):
            text = f"{expression[0]}({blank()})"
        case ("has", name):
            text = f"has({blank()}{name}{blank()})"
        case ("!", inner):
            text = f"!{blank()}{spelled(draw, inner, 3)}"
        case ("&&" | "||", inner):
            tightness = 2 if expression[0] == "&&" else 1
            join = f"{blank()}{expression[0]}{blank()}"
            text = join.join(spelled(draw, one, tightness + 1) for one in inner)
        case (operator, name, value):
            sign = str(draw(st.sampled_from(SPELLINGS[operator])))
            word = operator in WORDS
            if isinstance(value, tuple):
                comma = "," if value and draw(st.booleans()) else ""
                listed = f"{blank()},{blank()}".join(quoted(one) for one in value)
                right = f"{{{blank()}{listed}{blank()}{comma}{blank()}}}"
            else:
                right = quoted(value)
            text = f"{name}{blank(word)}{sign}{blank()}{right}"
    if tightness < outer or draw(st.booleans()):
        text = f"({blank()}{text}{blank()})"
    return blank() + text + blank()


@pytest.mark.promise("F-75")
@settings(max_examples=examples(250), deadline=None)
@given(st.data(), expressions, st.lists(labels, min_size=1, max_size=4))
def test_the_language_means_what_its_table_says(
    data: st.DataObject, expression: Expression, label_sets: list[dict[str, str]]
) -> None:
    text = spelled(data.draw, expression)
    selector = parse(text)
    # As in Calico `!(!x)` has the text `!!x`, which reads as `x`: one round later all is stable.
    again = parse(selector.text)
    assert parse(again.text).uid == again.uid
    for one in label_sets:
        assert selector.matches(one) is holds(expression, one), text
        assert again.matches(one) is holds(expression, one), selector.text


@pytest.mark.promise("F-75")
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a == 'x' || b == 'x' && c == 'x'", "a == 'x' || (b == 'x' && c == 'x')"),
        ("a == 'x' && b == 'x' || c == 'x'", "(a == 'x' && b == 'x') || c == 'x'"),
        ("!a == 'x' && b == 'x'", "(!(a == 'x')) && b == 'x'"),
        ("!!!has(a)", "!has(a)"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert parse(text).text == parse(same).text


def test_what_fits_in_a_resource_nests_as_deep_as_it_likes() -> None:
    assert parse("(" * 509 + "has(a)" + ")" * 509).text == "has(a)"
    deep = parse("!(" * 339 + "has(a)" + ")" * 339)
    assert not deep.matches({"a": ""})
    assert hash(deep) == hash(parse("!(" * 339 + "has(a)" + ")" * 339))
    assert parse(deep.text).text == "!has(a)"
    mixed = parse("!(a in{}||" * 90 + "has(a)" + ")" * 90)
    assert mixed.matches({"a": ""})
    assert parse(mixed.text) == mixed


def test_no_text_overflows_the_stack() -> None:
    with pytest.raises(InvalidValue, match="350 levels deep"):
        parse("(has(a) && (has(b) || " * 200 + "has(a)" + "))" * 200)
    assert parse("!" * 100_001 + "has(a)").text == "!has(a)"
    with pytest.raises(InvalidValue, match="expected a label"):
        parse("(" * 100_000)
