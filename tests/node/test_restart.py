"""The delays between restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.restart import LONGEST_DELAY, STEADY_SECONDS, RestartPolicy


def test_at_once_then_longer_then_capped() -> None:
    policy = RestartPolicy()
    assert [policy.delay(0.1) for _ in range(8)] == [0, 0.25, 0.5, 1, 2, 4, 5, 5]


def test_a_long_life_clears_the_record() -> None:
    policy = RestartPolicy()
    for _ in range(5):
        policy.delay(0.1)
    assert policy.delay(STEADY_SECONDS) == 0


@given(st.lists(st.floats(0, 100)))
def test_a_delay_is_never_out_of_bounds(lives: list[float]) -> None:
    policy = RestartPolicy()
    assert all(0 <= policy.delay(lived) <= LONGEST_DELAY for lived in lives)
