"""Readers of single environment variables: flags and intervals.

Tested in tests/node/test_environment.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from libcalico import parsing
from libcalico.errors import InvalidValue

TRUE, FALSE = frozenset({"true", "yes", "y", "1", "t"}), frozenset({"false", "no", "n", "0", "f"})


def interval(environ: Mapping[str, str], name: str, default: float) -> float:
    """A duration in seconds above zero, `default` where unset. Raises InvalidValue."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    seconds = parsing.seconds(name, text)
    if seconds <= 0:
        raise InvalidValue(name, text, "a duration above zero, such as 60s")
    return seconds


def flag(environ: Mapping[str, str], name: str, default: bool) -> bool:
    """Whether a flag is set, `default` where unset. Raises InvalidValue."""
    text = environ.get(name, "").strip().lower()
    if not text:
        return default
    if text not in TRUE | FALSE:
        raise InvalidValue(name, environ[name], "allowed: true, false")
    return text in TRUE
