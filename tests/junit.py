"""What pytest's JUnit reports say: how many passed, what was skipped and why, what took longest."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 25
WIDTH = 300
"""Characters of a failure's first line."""


@dataclass(frozen=True)
class Case:
    """One test. `seconds` with its fixtures; `outcome`: passed, failed or skipped.

    `reason` is why it was skipped, or the first line of what failed.
    """

    file: str
    name: str
    seconds: float
    outcome: str
    reason: str = ""

    @property
    def room(self) -> str:
        """The folder of tests that holds it."""
        return self.file.split(".")[1] if self.file.count(".") > 1 else self.file


def cases(report: Path) -> list[Case]:
    """Every test of a report. OSError when there is none, ElementTree's errors when it is broken.

    A test that failed and whose fixture failed too is in the report twice, and here once.
    """
    found: dict[tuple[str, str], Case] = {}
    for node in ET.parse(report).getroot().iter("testcase"):
        skip = node.find("skipped")
        fault = next((one for one in node if one.tag in ("failure", "error")), None)
        told = skip if fault is None else fault
        case = Case(
            file=node.get("classname", ""),
            name=node.get("name", ""),
            seconds=float(node.get("time", "0")),
            outcome="failed" if fault is not None else "passed" if skip is None else "skipped",
            reason="" if told is None else _first_line(told.get("message", "no reason")),
        )
        before = found.get((case.file, case.name))
        if before is None or before.outcome != "failed":
            found[case.file, case.name] = case
    return list(found.values())


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def summarise(report: Path) -> tuple[int, int, dict[str, int]]:
    """(passed, failed, skipped by reason) of a report; without one the run itself failed."""
    if not report.exists():
        return 0, 1, {}
    told = cases(report)
    outcomes = Counter(case.outcome for case in told)
    skipped = Counter(case.reason for case in told if case.outcome == "skipped")
    return outcomes["passed"], outcomes["failed"], dict(skipped)


def counts(told: Iterable[Case]) -> str:
    """`3 passed, 1 failed, 2 skipped`. Pure."""
    outcomes = Counter(case.outcome for case in told)
    return ", ".join(f"{outcomes[word]} {word}" for word in ("passed", "failed", "skipped"))


def as_text(told: Iterable[Case], slowest: int = SLOWEST) -> str:
    """The slowest tests, the time of every room, skips by reason, failures. Pure."""
    told = sorted(told, key=lambda case: -case.seconds)
    lines = [f"slowest {slowest}:"]
    lines += [f"{c.seconds:8.1f} s  {c.file}::{c.name}" for c in told[:slowest]]
    lines += [f"{'room':16}{'seconds':>9}{'passed':>8}{'failed':>8}{'skipped':>9}"]
    seconds: dict[str, float] = {}
    outcomes: dict[str, Counter[str]] = {}
    for case in told:
        seconds[case.room] = seconds.get(case.room, 0.0) + case.seconds
        outcomes.setdefault(case.room, Counter())[case.outcome] += 1
    for room, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        counts = outcomes[room]
        numbers = f"{counts['passed']:8}{counts['failed']:8}{counts['skipped']:9}"
        lines.append(f"{room:16}{spent:9.1f}{numbers}")
    reasons = Counter(case.reason for case in told if case.outcome == "skipped")
    lines += [f"skipped {count}: {reason}" for reason, count in reasons.most_common()]
    failed = [case for case in told if case.outcome == "failed"]
    lines += [f"FAILED {case.file}::{case.name}: {case.reason[:WIDTH]}" for case in failed]
    return "\n".join(lines)
