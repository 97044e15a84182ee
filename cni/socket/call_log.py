"""How much one call says in the log: `log_level` of its configuration.

The daemon serves calls of several networks, each with its own setting, so a level belongs to a call
and not to the process. `debug` makes the daemon log everything of this call, `error` only errors.
Any other value, or none, leaves it to the daemon's own level. A daemon at level debug logs
everything anyway. Tested in tests/cni/test_call_log.py.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

LEVELS = {"debug": logging.DEBUG, "error": logging.ERROR}
_LEVEL: ContextVar[int] = ContextVar("level of the call", default=0)


class _CallLogger(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:
        """Whether the call's level allows it, else whether the process's does."""
        wished = _LEVEL.get()
        if not wished or (wished > level and self.getEffectiveLevel() <= logging.DEBUG):
            return super().isEnabledFor(level)
        return level >= wished and not self.disabled


def logger(name: str) -> logging.Logger:
    """The logger of a module that works for calls; call it before `logging.getLogger` does."""
    before = logging.getLoggerClass()
    logging.setLoggerClass(_CallLogger)
    try:
        return logging.getLogger(name)
    finally:
        logging.setLoggerClass(before)


def set_level(text: str) -> None:
    """Set the `log_level` of the call that this task and its children work for."""
    _LEVEL.set(LEVELS.get(text.lower(), 0))
