"""A benchmark that is told to end takes down what it began, as after Ctrl-C."""

from __future__ import annotations

import signal


def in_order() -> None:
    """From now on SIGTERM unwinds like an exception; who asks twice need not."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)
