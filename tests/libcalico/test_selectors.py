"""The selector language: grammar, meaning of absent labels, canonical text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.errors import InvalidValue
from libcalico.selectors.selectors import parse

LABELS = {"a": "1", "zone": "west-2", "projectcalico.org/name": "x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  \t", True),
        ("all()", True),
        ("all( )", True),
        ("global()", True),
        ("a == '1'", True),
        ('a == "1"', True),
        ("a=='2'", False),
        ("a != '2'", True),
        ("absent == ''", False),
        ("absent != '1'", True),
        ("absent in {'1'}", False),
        ("absent not in {'1'}", True),
        ("absent notin {'1'}", True),
        ("absent contains ''", False),
        ("a in {'1', '2',}", True),
        ("a in {}", False),
        ("a not in {'1'}", False),
        ("zone contains 'st'", True),
        ("zone starts with 'west'", True),
        ("zone startswith 'east'", False),
        ("zone ends with '2'", True),
        ("zone endswith '2'", True),
        ("has(zone)", True),
        ("has( zone )", True),
        ("!has(zone)", False),
        ("!!has(zone)", True),
        ("has(projectcalico.org/name)", True),
        ("a == '1' && zone == 'x' || has(a)", True),
        ("a == '1' && (zone == 'x' || !has(a))", False),
        ("!a == '2' && has(a)", True),
        ("in == 'x'", False),
        ("has == 'x' || contains contains 'x'", False),
    ],
)
def test_meaning(text: str, expected: bool) -> None:
    selector = parse(text)
    assert selector.matches(LABELS) is expected
    assert parse(selector.text).matches(LABELS) is expected


@pytest.mark.parametrize(
    "text",
    [
        "a", "a =", "a = 'x'", "a == x", "a == 'x", "a == 'x' &", "a == 'x' && ", "(has(a)",
        "has (a)", "all ()", "a in 'x'", "a in {'x' 'y'}", "a in {,}", "has(a) has(b)", "a is 'x'",
        "a\n== 'x'", "has()", "a not 'x'", "&& has(a)", "é == 'x'", "a inx {'1'}",
        f"{'l' * 513} == 'x'",
    ],
)  # fmt: skip
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(InvalidValue) as problem:
        parse(text)
    assert "character" in str(problem.value)


def test_canonical_text_and_identity() -> None:
    text = parse("b in {'y',\"x\"}&&( a=='1' || !!has(c) )").text
    assert text == '(b in {"x", "y"} && (a == "1" || has(c)))'
    assert parse("a == 'it\"s'").text == "a == 'it\"s'"
    assert parse("a=='1'").uid == parse(' a == "1" ').uid
    assert parse("a=='1'").uid.startswith("s:")
    assert parse("").text == "all()"
    assert parse("global()").matches({"projectcalico.org/namespace": "x"}) is False


label = st.sampled_from(["a", "b", "c/d"])
value = st.sampled_from(["", "x", "xy", "it's"])


def _compare(parts: tuple[str, str, str]) -> str:
    return f'{parts[0]} {parts[1]} "{parts[2]}"'


operators = st.sampled_from(["==", "!=", "contains", "starts with", "ends with"])
expressions = st.recursive(
    st.tuples(label, operators, value).map(_compare)
    | label.map(lambda name: f"has({name})")
    | st.just("all()"),
    lambda inner: (
        inner.map(lambda one: f"!({one})")
        | st.tuples(inner, inner).map(lambda two: f"({two[0]} && {two[1]})")
        | st.tuples(inner, inner).map(lambda two: f"{two[0]} || {two[1]}")
    ),
    max_leaves=5,
)


@given(expressions, st.dictionaries(label, value))
def test_canonical_text_means_the_same(text: str, labels: dict[str, str]) -> None:
    selector = parse(text)
    assert parse(selector.text).matches(labels) == selector.matches(labels)


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse(text).matches(LABELS)
    except InvalidValue:
        pass
