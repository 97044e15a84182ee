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

from typing import Any

from exabgp.reactor.interrupt import Signal


def quiet() -> None:
    """Handlers note the signal, and do nothing else."""

    def note(self: Any, action: int, number: int, _: str = "") -> None:
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

        def handler(self: Any, number: int, _: Any, action: int = action) -> None:
            note(self, action, number)

        setattr(Signal, name, handler)
