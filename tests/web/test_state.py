"""States are told by word and sign."""

from __future__ import annotations

import pytest

from web.views.state import State, counted, of_many


def test_no_two_states_share_a_sign_or_a_word() -> None:
    assert len({one.sign for one in State}) == len({one.word for one in State}) == len(State)
    assert State.UP.css == "state-up"


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        ([], State.IDLE),
        ([State.UP, State.UP], State.UP),
        ([State.UP, State.DOWN], State.WARNING),
        ([State.DOWN, State.DOWN], State.DOWN),
        ([State.DOWN, State.UNKNOWN], State.DOWN),
        ([State.UP, State.UNKNOWN], State.UNKNOWN),
        ([State.UNKNOWN], State.UNKNOWN),
    ],
)
def test_what_sessions_make_of_their_node(states: list[State], whole: State) -> None:
    assert of_many(states) is whole


def test_counted() -> None:
    assert (counted(1, "problem"), counted(0, "problem")) == ("1 problem", "0 problems")
