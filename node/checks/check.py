"""A check: a pure function from facts to a finding, with an id, a cause and a fix.

Invariants:
  NCK-1  A check that lacks its facts says so; it neither passes nor fails.
  NCK-2  Ids are unique and never change: operators and scripts name checks by them.
Tested in `tests/node/test_checks.py`: every check there has facts that pass and facts that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from node.checks.facts import Facts


class Verdict(StrEnum):
    """What became of a check; only FAILED makes the exit status 1."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a judge says: good, bad or (None) unknown, and what it saw."""

    good: bool | None
    found: str
    harmless: bool = False
    """A bad finding of a required check that still is only a warning."""


def good(found: str) -> Finding:
    """As it should be."""
    return Finding(True, found)


def bad(found: str) -> Finding:
    """Not as it should be."""
    return Finding(False, found)


def doubtful(found: str) -> Finding:
    """Not as it should be, yet the node can work: a warning also where the check is required."""
    return Finding(False, found, harmless=True)


def unknown(found: str) -> Finding:
    """Nothing can be said, and why."""
    return Finding(None, found)


Judge = Callable[[Facts], Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `cause` says what goes wrong without it, `fix` what to do."""

    id: str
    required: bool
    cause: str
    fix: str
    judge: Judge


@dataclass(frozen=True, slots=True)
class Result:
    """A check and what it found here."""

    check: Check
    verdict: Verdict
    found: str


CHECKS: list[Check] = []


def check(identity: str, *, required: bool, cause: str, fix: str) -> Callable[[Judge], Judge]:
    """Register a judge under an id (NCK-2)."""

    def register(judge: Judge) -> Judge:
        if any(one.id == identity for one in CHECKS):
            raise ValueError(f"two checks are called {identity}")
        CHECKS.append(Check(identity, required, cause, fix, judge))
        return judge

    return register


def run(facts: Facts, only: Collection[str] = ()) -> list[Result]:
    """Every check (or those of `only`) on `facts`, in their order."""
    return [_result(one, facts) for one in CHECKS if not only or one.id in only]


def _result(one: Check, facts: Facts) -> Result:
    finding = one.judge(facts)
    if finding.good is None:
        verdict = Verdict.SKIPPED
    elif finding.good:
        verdict = Verdict.OK
    else:
        verdict = Verdict.FAILED if one.required and not finding.harmless else Verdict.WARNING
    return Result(one, verdict, finding.found)
