"""ExaBGP's timers do not follow the wall clock.

ExaBGP counts KEEPALIVEs, pauses between dials and limits by `time.time()`. A clock that is set back
by an hour (NTP after a boot, an operator) would send no KEEPALIVE for that hour: every peer's hold
timer would run out and all routes go. So its modules that measure durations see a clock that begins
as the wall clock and goes on evenly. What it logs keeps the wall clock's time.

Tested in tests/bgp/test_clock.py. Standard library and ExaBGP only.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import time

from exabgp.bgp import timer
from exabgp.reactor import delay, loop, peer
from exabgp.reactor.api import processes
from exabgp.reactor.network import outgoing
from exabgp.util import cache, dns

_BEGINNING = time.time() - time.monotonic()


def steady() -> float:
    """Seconds since 1970 by the clock as it was when this process began; never jumps."""
    return _BEGINNING + time.monotonic()


class _Steady:
    """The module `time` with another `time()`."""

    time = staticmethod(steady)

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


def apply() -> None:
    """Give each module that measures durations the steady clock.

    Upstream: durations are measured by the wall clock.
    Fails without it: test_clock.py, test_keepalives_and_dialling_go_on_when_the_clock_jumps.
    Remove when: ExaBGP measures durations by `time.monotonic()`.
    """
    for module in (timer, delay, loop, peer, processes, outgoing, cache, dns):
        if module.time is not time:
            raise AttributeError(f"{module.__name__} has no module `time` of its own")
        module.time = _Steady()
