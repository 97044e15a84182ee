"""One event is one line of the log, whatever a name from outside holds."""

from __future__ import annotations

import errno
import io
import json
import logging
import sys

import pytest

from libcalico.process import logs
from libcalico.process.logs import JSONFormatter, TextFormatter, one_line

EVIL = "web\n2026-11-23T00:00:00.000Z INFO    felix x: all is well\x1b[2J\u2028\u202e"


def record(*, failed: bool = False) -> logging.LogRecord:
    trouble = None
    if failed:
        try:
            raise ValueError(EVIL)
        except ValueError:
            trouble = sys.exc_info()
    made = logging.LogRecord("x", logging.WARNING, "", 0, "pod %s: gone", (EVIL,), trouble)
    made.__dict__["object"] = EVIL
    return made


@pytest.mark.parametrize("failed", [False, True])
def test_no_name_makes_a_line_of_its_own(*, failed: bool) -> None:
    text = TextFormatter("felix").format(record(failed=failed))
    first, *trace = text.split("\n")
    assert first.count("\\n2026-11-23T00") == 2, "escaped in message and field"
    assert bool(trace) is failed
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    assert first.isprintable()
    assert len(text.splitlines()) == 1 + len(trace)


def test_json_has_it_as_it_is_and_in_one_line() -> None:
    text = JSONFormatter("felix").format(record())
    assert len(text.split("\n")) == 1
    assert json.loads(text)["object"] == EVIL


class Full(io.StringIO):
    """A disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no room", text)


def test_a_line_that_cannot_be_written_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(sys, "stderr", Full())
    logs.configure("felix")
    (handler,) = root.handlers
    before = logs.errors()
    handler.handle(record())
    assert logs.errors() == before + 1


def test_what_is_harmless_stays() -> None:
    assert one_line("Pod \u00fcber 10.0.0.1, 100 %") == "Pod \u00fcber 10.0.0.1, 100 %"
