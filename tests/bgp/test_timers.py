"""ExaBGP's timers with our changes, each in a process of its own: they change its classes."""

from __future__ import annotations

import subprocess
import sys

BEGINNING = """
import time
from exabgp.bgp.message import _NOP, Notify
from exabgp.bgp.timer import ReceiveTimer
from exabgp.reactor.delay import Delay
from bgp.speaker.exabgp.upstream import timers
timers.apply()
"""


def said(program: str) -> str:
    """What a program prints with the changed timers."""
    command = [sys.executable, "-c", BEGINNING + program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_pause_before_dialling_again_grows_to_five_seconds() -> None:
    program = """
delay = Delay()
pauses = []
for _ in range(8):
    delay.increase()
    pauses.append(delay._next)
print(*pauses)
"""
    assert said(program).split() == ["1", "2", "3", "4", "5", "5", "5", "5"]


def test_the_hold_timer_ends_with_the_hold_time() -> None:
    """In the fraction of the second in which it is over, and not before."""
    program = """
timer = ReceiveTimer(lambda: "", 90, 4, 0)
timer.check_ka_timer(_NOP)
for silence in (10.0, 90.0):
    timer.last_heard = time.monotonic() - silence
    try:
        timer.check_ka_timer(_NOP)
        print("waits")
    except Notify as notice:
        print(notice.code, notice.subcode)
"""
    assert said(program).splitlines() == ["waits", "4 0"]
