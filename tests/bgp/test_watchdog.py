"""The watchdog: when a silent ExaBGP is asked for a word, and when it must die."""

from __future__ import annotations

import pytest

from bgp.speaker.exabgp.watchdog import Watchdog

TICK = 0.5


def silent(hold: float) -> tuple[float, float]:
    """Seconds of silence until the ping and until the end."""
    dog, now, ping = Watchdog(TICK), 1000.0, 0.0
    while not dog.frozen(hold):
        now += TICK
        dog.look(0, now)
        if not ping and dog.wants_ping(hold):
            ping = now
    return ping - 1000, now - 1000


@pytest.mark.parametrize("hold", [3, 9, 30, 90, 240, 65535])
def test_the_end_comes_before_the_hold_time(hold: int) -> None:
    """BGP-3: with a margin to start anew, and never at once after the ping."""
    ping, end = silent(hold)
    assert end <= max(hold * 0.5, 3.0)
    assert end - ping >= 2.0
    assert end <= 30


def test_a_word_starts_anew_and_a_burst_of_looks_is_no_silence() -> None:
    dog, now = Watchdog(TICK), 1000.0
    for heard in range(100):
        now += TICK
        dog.look(heard // 3, now)
        assert not dog.frozen(9)
    for _ in range(1000):
        dog.look(33, now)
    assert not dog.wants_ping(9)
    dog.reset()
    assert not dog.frozen(9)
