"""How much one call says in the log: `log_level` of its configuration.

The daemon serves calls of several networks, each with its own wish, so a level belongs to a call
and not to the process. `debug` makes the daemon say everything of this call, `error` nothing but
errors; anything else, and no wish at all, leaves it to the daemon's own level, and a daemon that
is at debug says everything anyway. Tested in tests/cni/test_call_log.py.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

LEVELS = {"debug": logging.DEBUG, "error": logging.ERROR}
_LEVEL: ContextVar[int] = ContextVar("level of the call", default=0)


class _CallLogger(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:
        """As the call wishes, else as the process is configured."""
        wished = _LEVEL.get()
        if not wished or (wished > level and self.getEffectiveLevel() <= logging.DEBUG):
            return super().isEnabledFor(level)
        return level >= wished and not self.disabled


def logger(name: str) -> logging.Logger:
    """The logger of a module that works for calls; to be asked for before anybody else does."""
    before = logging.getLoggerClass()
    logging.setLoggerClass(_CallLogger)
    try:
        return logging.getLogger(name)
    finally:
        logging.setLoggerClass(before)


def set_level(text: str) -> None:
    """`log_level` of the call that this task and what it starts work for."""
    _LEVEL.set(LEVELS.get(text.lower(), 0))
