"""The results for people (a table, causes and fixes below a bad row) and for programs (JSON).

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from node.checks.check import Result, Verdict

PASSED = "System meets minimum system requirements to run Calico!"
NOT_PASSED = "System doesn't meet one or more minimum systems requirements to run Calico"
WIDTH = 100


def failed(results: Sequence[Result]) -> list[Result]:
    """The required checks that failed: what makes the exit status 1."""
    return [one for one in results if one.verdict is Verdict.FAILED]


def table(results: Sequence[Result]) -> str:
    """A row for each check, and a last line that counts them."""
    width = max([len("CHECK"), *(len(one.check.id) for one in results)])
    lines = [f"{'CHECK':{width}}  {'RESULT':7}  FOUND"]
    for one in results:
        lines.append(f"{one.check.id:{width}}  {one.verdict:7}  {one.detail}".rstrip())
        if one.verdict in (Verdict.FAILED, Verdict.WARNING):
            lines += _paragraph("cause: ", one.check.cause, width)
            lines += _paragraph("fix:   ", one.check.fix, width)
    count = {verdict: sum(one.verdict is verdict for one in results) for verdict in Verdict}
    lines.append("")
    lines.append(
        f"{len(results)} checks: {count[Verdict.OK]} ok, {count[Verdict.WARNING]} warnings,"
        f" {count[Verdict.FAILED]} failed, {count[Verdict.SKIPPED]} skipped"
    )
    return "\n".join(lines) + "\n"


def _paragraph(label: str, text: str, indent: int) -> list[str]:
    start = " " * (indent + 11)
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start + label,
        subsequent_indent=start + " " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def tree(results: Sequence[Result]) -> dict[str, object]:
    """The results as JSON: `passed`, and one object for each check."""
    return {
        "passed": not failed(results),
        "checks": [
            {
                "id": one.check.id,
                "required": one.check.required,
                "result": str(one.verdict).lower(),
                "found": one.detail,
                "cause": one.check.cause,
                "fix": one.check.fix,
            }
            for one in results
        ],
    }
