"""Whether Go's regexp package (RE2) would take an expression, judged with Python's.

Resources hold regular expressions that Felix compiles, so a wrong one must be refused when
it is written. The two languages share nearly everything. What only Python has is refused by
name; what only Go has (classes of Unicode, `\\z`, `\\Q...\\E`, flags in the middle) is replaced by
something alike before Python judges the rest. Tested in tests/libcalico/test_goregex.py.
"""

from __future__ import annotations

import re
import warnings

_ONLY_PYTHON = (
    (re.compile(r"\(\?<?[=!]"), "look-around is not supported"),
    (re.compile(r"\(\?>"), "atomic groups are not supported"),
    (re.compile(r"\(\?\("), "conditions are not supported"),
    (re.compile(r"\(\?#"), "comments are not supported"),
    (re.compile(r"\(\?P="), "back-references are not supported"),
    (re.compile(r"\\[1-9]"), "back-references are not supported"),
    (re.compile(r"\\[uUNZ]"), "this escape is not supported"),
    (re.compile(r"[*+?}][+]"), "a repetition must not be repeated"),
)
# Read from left to right: `\\Q` is a backslash and the letter Q, and quotes nothing.
_BACKSLASH_OR_QUOTED = re.compile(r"(\\\\)|\\Q.*?(?:\\E|$)", re.DOTALL)
_UNICODE = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)")
_POSIX = re.compile(r"\[:\^?\w+:\]")
_FLAGS = re.compile(r"\(\?[imsU]*(?:-[imsU]+)?\)")
_FLAG_GROUP = re.compile(r"\(\?[imsU]*(?:-[imsU]+)?:")
_NAMED = re.compile(r"\(\?<([A-Za-z_]\w*)>")
_HEX = re.compile(r"\\x\{[0-9a-fA-F]+\}")
MAX_REPEAT = 1000
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def problem(expression: str) -> str:
    """Why it is not a regular expression for Go; empty when it is one."""
    text = _BACKSLASH_OR_QUOTED.sub(lambda match: "b" if match[1] else "q", expression)
    for pattern, reason in _ONLY_PYTHON:
        if pattern.search(text):
            return reason
    for low, high in _REPEAT.findall(text):
        if int(low) > MAX_REPEAT or int(high or 0) > MAX_REPEAT:
            return f"a repetition is at most {MAX_REPEAT}"
    for pattern, instead in (
        (_UNICODE, "u"),
        (_POSIX, "p"),
        (_FLAGS, ""),
        (_FLAG_GROUP, "(?:"),
        (_NAMED, r"(?P<\1>"),
        (_HEX, "x"),
    ):
        text = pattern.sub(instead, text)
    text = text.replace("\\z", "e").replace("\\C", "c")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return ""
