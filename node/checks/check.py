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
    """The result of a check; only FAILED makes the exit status 1."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of a judge: good, bad or (None) unknown, and its reason."""

    good: bool | None
    detail: str
    harmless: bool = False
    """Whether a bad finding of a required check is only a warning."""


def good(detail: str) -> Finding:
    """The finding that all is as it should be."""
    return Finding(True, detail)


def bad(detail: str) -> Finding:
    """The finding that something is not as it should be."""
    return Finding(False, detail)


def doubtful(detail: str) -> Finding:
    """The finding of a fault with which the node can work: a warning, also of a required check."""
    return Finding(False, detail, harmless=True)


def unknown(detail: str) -> Finding:
    """The finding that the check could not be made, and why."""
    return Finding(None, detail)


Judge = Callable[[Facts], Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `cause`: what goes wrong without it. `fix`: what to do."""

    id: str
    required: bool
    cause: str
    fix: str
    judge: Judge


@dataclass(frozen=True, slots=True)
class Result:
    """A check and its result on this machine."""

    check: Check
    verdict: Verdict
    detail: str


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
    """The results of every check (or of those in `only`), in their order."""
    return [_result(one, facts) for one in CHECKS if not only or one.id in only]


def _result(one: Check, facts: Facts) -> Result:
    finding = one.judge(facts)
    if finding.good is None:
        verdict = Verdict.SKIPPED
    elif finding.good:
        verdict = Verdict.OK
    else:
        verdict = Verdict.FAILED if one.required and not finding.harmless else Verdict.WARNING
    return Result(one, verdict, finding.detail)
