"""ExaBGP's timers of a session, as exact and as short as a node needs.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_timers.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import time

from exabgp.bgp import timer
from exabgp.bgp.message import _NOP, KeepAlive, Notify
from exabgp.reactor import delay, keepalive

from bgp.speaker.exabgp.neighbor_options import options
from bgp.speaker.exabgp.upstream import clock
from bgp.speaker.exabgp.upstream.exabgp_types import (
    Delay,
    KeepAliveTimer,
    Message,
    ReceiveTimer,
    Session,
)

REDIAL_SECONDS = 5


def cap_redial_pause() -> None:
    """The pause before dialling again grows to 5 s at most, as BIRD does in Calico.

    ExaBGP's own limit of 60 s would keep a peer that was away for minutes away for one more.

    Upstream: its limit is 60 s.
    Fails without it: test_timers.py, test_the_pause_before_dialling_again_grows_to_five_seconds.
    Remove when: the limit can be set.
    """

    def increase(self: Delay) -> None:
        self._time = clock.steady() + self._next
        self._next = min(int(1 + self._next * 1.2), REDIAL_SECONDS)

    delay.Delay.increase = increase


def exact_hold_timer() -> None:
    """The hold timer runs to the fraction of a second.

    ExaBGP counts whole seconds and waits for one more than the hold time, so a dead peer would
    keep its routes a second too long.

    Upstream: it counts whole seconds, and one more than the hold time.
    Fails without it: test_timers.py, test_the_hold_timer_ends_with_the_hold_time.
    Remove when: ExaBGP measures the hold time in fractions of a second.
    """

    def check(self: ReceiveTimer, message: Message = _NOP, ignore: int = _NOP.TYPE) -> bool:
        if self.holdtime == 0:
            return bool(message.TYPE != KeepAlive.TYPE)
        now = time.monotonic()
        if ignore != message.TYPE or not hasattr(self, "last_heard"):
            self.last_heard = now
        if now - self.last_heard >= self.holdtime:
            raise Notify(self.code, self.subcode, self.message)
        return True

    timer.ReceiveTimer.check_ka_timer = check


def own_keepalive() -> None:
    """The option `keepalive`: seconds between KEEPALIVEs; at most a third of the hold time.

    Upstream: the configuration has no word for it.
    Fails without it: test_sessions.py, test_ports_addresses_and_keepalives.
    Remove when: the configuration has one.
    """
    start = keepalive.KA.__init__

    def init(self: KeepAliveTimer, session: str, proto: Session) -> None:
        start(self, session, proto)
        period = int(options(proto.neighbor).get("keepalive", 0))
        if period and self.send_timer.keepalive:
            self.send_timer.keepalive = min(period, self.send_timer.keepalive)

    keepalive.KA.__init__ = init


def apply() -> None:
    """From now on."""
    cap_redial_pause()
    exact_hold_timer()
    own_keepalive()
