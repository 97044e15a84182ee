"""Logging is the process's own: what a test configures ends with the test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCHES = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")


@contextmanager
def logging_restored() -> Iterator[None]:
    """After it the root logger has its level, and no handler that came meanwhile.

    A command that runs in this process may configure logging, as `calicoctl --log-level` does. Its
    handler writes to a stream that is closed when the command ends.
    """
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    switches = {name: getattr(logging, name) for name in _SWITCHES}
    try:
        yield
    finally:
        # Those of pytest come and go with the phases of a test.
        root.handlers[:] = [
            one
            for one in root.handlers
            if one in before or type(one).__module__.startswith("_pytest")
        ]
        root.setLevel(level)
        for name, value in switches.items():
            setattr(logging, name, value)
