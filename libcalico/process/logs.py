"""Structured logging on the standard library: one line an event, to stderr.

Fields go in `extra`: `log.info("peer is up", extra={"object": "BGPPeer(tor)"})`. In text
they follow the message as `key=value`, in JSON they are members.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TextIO

import msgspec

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Control characters of both sets, and what else ends a line or turns its direction.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "PANIC": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "NONE": logging.CRITICAL + 10,
}


def level_number(level: str) -> int:
    """The level that Calico's or Python's name means, in any case; INFO for an unknown one."""
    return _LEVELS.get(level.strip().upper(), logging.INFO)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _KNOWN}


@lru_cache(maxsize=4)
def _second(since_1970: int) -> str:
    return datetime.fromtimestamp(since_1970, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _time(record: logging.LogRecord) -> str:
    second, rest = divmod(record.created, 1)
    return f"{_second(int(second))}.{int(rest * 1000):03d}Z"


def one_line(text: str) -> str:
    """A text with its control characters, and other line breaks, as escapes: `a\\nb`.

    Names come from outside, and one with a line break could forge a line of the log.
    """
    return text if text.isprintable() else _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


class TextFormatter(logging.Formatter):
    """`time level process logger: message key=value ...`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows on lines of its own."""
        fields = "".join(f" {key}={value!s}" for key, value in _fields(record).items())
        said = one_line(f"{record.getMessage()}{fields}")
        line = f"{_time(record)} {record.levelname:<7} {self._process} {record.name}: {said}"
        if record.exc_info:
            # Indented, so that no line of it, such as an exception's text, looks like an event.
            for each in self.formatException(record.exc_info).split("\n"):
                line += "\n  " + one_line(each)
        return line


class JSONFormatter(logging.Formatter):
    """One JSON object a line: time, level, process, logger, message, then the fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def format(self, record: logging.LogRecord) -> str:
        """One line, also with a traceback."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._encoder.encode(line).decode()


class _Stderr(logging.StreamHandler[TextIO]):
    """Counts the events that could not be written."""

    errors = 0

    def handleError(self, record: logging.LogRecord) -> None:
        """Count it, and say so as the standard library does."""
        _Stderr.errors += 1
        super().handleError(record)


def errors() -> int:
    """How many events could not be written so far."""
    return _Stderr.errors


def configure(process: str, level: str = "INFO", fmt: Literal["text", "json"] = "text") -> None:
    """Send all logging of this process to stderr; replaces what was configured before."""
    handler = _Stderr(sys.stderr)
    handler.setFormatter(JSONFormatter(process) if fmt == "json" else TextFormatter(process))
    # File, thread and process of a record are in neither format, and cost half of the time.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level_number(level))
