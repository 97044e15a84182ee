"""Expectations read as written, and a failure can be read by a person."""

from __future__ import annotations

import pytest

from tests.netpol import matrix

PODS = ("x/a", "x/b", "y/a")


def test_later_lines_win() -> None:
    expected = matrix.expectation(PODS, ["no */* -> x/*", "yes y/* -> x/a"])
    assert {pair for pair, open_ in expected.items() if open_} == {
        ("x/a", "y/a"),
        ("x/b", "y/a"),
        ("y/a", "x/a"),
    }
    assert all(source != target for source, target in expected)


@pytest.mark.parametrize("line", ["maybe */* -> x/a", "no x/a", "no x/q -> */*"])
def test_a_line_that_means_nothing_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="allowed is"):
        matrix.expectation(PODS, [line])


def test_closed_means_silence_and_open_means_the_right_pod() -> None:
    assert matrix.as_wanted(True, "ok x/a", "x/a")
    assert not matrix.as_wanted(True, "ok x/b", "x/a")
    assert not matrix.as_wanted(True, "silent", "x/a")
    assert matrix.as_wanted(False, "silent", "x/a")
    assert not matrix.as_wanted(False, "refused", "x/a")


def test_the_table_shows_what_differs() -> None:
    expected = matrix.expectation(PODS, ["no */* -> x/a"])
    observed = {pair: f"ok {pair[1]}" for pair in expected}
    observed["x/b", "x/a"] = "silent"
    observed["x/a", "y/a"] = "refused"
    assert matrix.differences(expected, observed) == [("x/a", "y/a"), ("y/a", "x/a")]
    assert matrix.table(expected, observed).splitlines() == [
        "       x/a  x/b  y/a",
        "x/a      -    .  .>R",
        "x/b      X    -    .",
        "y/a    X>.    .    -",
        ". open, X silence, R refused, ? other; expected>observed where they differ",
        "x/a -> y/a: refused",
        "y/a -> x/a: ok x/a",
    ]
