"""A signal that ExaBGP gets is never lost: the reload that it asks for is done.

ExaBGP's handler writes log lines first. A handler runs wherever the program stands, also in the
middle of a log line: Python then refuses the second write to the same stream (RuntimeError,
"reentrant call"), and the signal is gone, without a reload and without another word of it. A busy
speaker loses about one reload in five so, and would be started again for it. And a second signal
is ignored while the first one is still to be taken; here it waits its turn.

Standard library and ExaBGP only. Tested in tests/bgp/test_signals.py, and under load in
tests/bgp/test_sessions.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from exabgp.reactor.interrupt import Signal

from bgp.speaker.exabgp.upstream.exabgp_types import Signals


def quiet() -> None:
    """Handlers note the signal, and do nothing else.

    Upstream: a handler writes log lines, which fails in the middle of another one; a second
        signal is ignored while the first one waits.
    Fails without it: test_signals.py, test_a_signal_in_the_middle_of_a_log_line_counts.
    Remove when: test_exabgp_itself_still_loses_it fails.
    """

    def note(self: Signals, action: int, number: int, _: str = "") -> None:
        if self._ready and not self.received:
            self.received, self.number = action, number
        elif not any(waiting == action for waiting, _ in self._pending):
            self._pending.append((action, number))

    Signal._defer_or_schedule = note
    for name, action in (
        ("sigterm", Signal.SHUTDOWN),
        ("sighup", Signal.SHUTDOWN),
        ("sigalrm", Signal.RESTART),
        ("sigusr1", Signal.RELOAD),
        ("sigusr2", Signal.FULL_RELOAD),
    ):

        def handler(self: Signals, number: int, _: object, action: int = action) -> None:
            note(self, action, number)

        setattr(Signal, name, handler)
