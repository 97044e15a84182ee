"""Which regular expressions Go's regexp takes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from libcalico.goregex import problem


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*)",
        r"\pL+\p{Greek}\PN[\pL\d]",
        "[[:alpha:]_]+[[:^digit:]]",
        "(?i)x", "a(?i)b", "(?i:a)", "(?s-i:a)",
        "(?P<n>x)", "(?<n>x)",
        r"\Q[*\E+", r"\Q(",
        r"a\z", r"\x{10FFFF}", r"\x41",
        "x{1000}", "a*?", "a{2,}", "a{", "a{,2}",
    ],
)  # fmt: skip
def test_taken(expression: str) -> None:
    assert problem(expression) == ""


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("(", "missing )"),
        ("a)", "unbalanced"),
        ("[", "unterminated"),
        ("*a", "nothing to repeat"),
        ("a**", "multiple repeat"),
        ("a*+", "repeated"),
        ("a{2,1}", "min repeat"),
        ("x{1001}", "1000"),
        ("(?=a)", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back-references"),
        ("(?P=n)", "back-references"),
        ("(?>a)", "atomic"),
        ("(?#a)", "comments"),
        ("a\\", "bad escape"),
    ],
)
def test_refused(expression: str, told: str) -> None:
    assert told in problem(expression)


@given(st.text(max_size=20))
@example("\\Q")
@example("\\Q(")
def test_plain_text_quoted_is_always_taken(text: str) -> None:
    assert problem(re.escape(text)) == ""
    problem(text)
