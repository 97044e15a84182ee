"""Colours on a terminal: what an eye looks for first. No meaning is told by a colour alone.

Imported only where colours are wanted: on a terminal, unless NO_COLOR is set or TERM is `dumb`, and
where `--color always` asks for them. Texts are made without colours and painted by rules at the
end, line by line. Pure. Source: https://no-color.org for NO_COLOR.
Tested in `tests/calicoctl/test_colour.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

BOLD, RED, GREEN, YELLOW = "1", "31", "32", "33"
_RESET = "\x1b[0m"

PALETTES: dict[str, tuple[tuple[str, str], ...]] = {
    "table": ((r"\A[A-Z][A-Z0-9_]*(?: +[A-Z0-9_]+)* *$", BOLD),),
    "verdicts": (
        (r"\bDENIED\b", f"{BOLD};{RED}"),
        (r"\bALLOWED\b", f"{BOLD};{GREEN}"),
        (r"\bdenied\b", RED),
        (r"\ballowed\b", GREEN),
    ),
    "sessions": (
        (r"^  (?:removed|refused)\b", RED),
        (r"^  added\b", GREEN),
        (r"^  (?:reset|adjusted)\b", YELLOW),
    ),
    "status": (
        (r"\b(?:is not running\.|Idle|down)\b", RED),
        (r"\b(?:Established|is running\.)", GREEN),
        (r"\b(?:Active|Connect|OpenSent|OpenConfirm|start)\b", YELLOW),
    ),
    "findings": (
        (r"^Check complete; found 0 problems\.", GREEN),
        (r"^Check complete; found [1-9]\d* problems\.", f"{BOLD};{RED}"),
    ),
}
"""What is painted, by the kind of text: a pattern and its code; the first that fits wins."""


def expected(terminal: bool, environ: Mapping[str, str]) -> bool:
    """Whether colours are wanted where nothing on the command line says so."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def painted(text: str, palette: str) -> str:
    """The text with terminal codes."""
    rules = PALETTES[palette]
    # One pass, so that no rule paints in what another has painted.
    whole = re.compile("|".join(f"({pattern})" for pattern, _ in rules), re.MULTILINE)

    def paint(match: re.Match[str]) -> str:
        assert match.lastindex is not None
        return f"\x1b[{rules[match.lastindex - 1][1]}m{match[0]}{_RESET}"

    return whole.sub(paint, text)
