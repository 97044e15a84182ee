"""Versions that await confirmation: which version of an object counts, and until when.

This step comes before the calculation: it sees every stored object and hands on the version that
counts (libcalico/commit_confirmed.py). The version on trial may itself cut the node off, so the
node depends on no other machine. It reverts at the deadline by its own clock, or when it has known
the version for as long as was allowed, whichever comes first. A wrong clock therefore shortens the
time; it never lengthens it while felix runs.

Invariant:
  CNF-3  A version whose deadline passed is not enforced, after a restart neither, until it is
         stored again without the annotation.
Tested in tests/felix/calc/test_commit_confirmed.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from libcalico.commit_confirmed import ANNOTATION, KINDS, previous, read
from libcalico.errors import InvalidValue
from libcalico.model import Key, ResourceKey


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A version in force for the time being."""

    deadline: str
    ends: float
    predecessor: Any


class Unconfirmed:
    """The objects that wait for confirmation, and those that were reverted.

    `monotonic` and `now` are the clocks: seconds, and the time of day.
    """

    def __init__(self, monotonic: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._monotonic, self._now = monotonic, now
        self._waiting: dict[ResourceKey, _Waiting] = {}
        self._reverted: dict[ResourceKey, str] = {}
        self._unreadable: dict[ResourceKey, str] = {}

    def effective(self, key: Key, value: Any) -> Any:
        """The version of an object that counts; None: there is no object."""
        if not isinstance(key, ResourceKey) or key.kind not in KINDS:
            return value
        before = self._waiting.pop(key, None)
        reverted = self._reverted.pop(key, None)
        self._unreadable.pop(key, None)
        if value is None or ANNOTATION not in value.metadata.annotations:
            return value
        try:
            trial = read(value)
            assert trial is not None
            predecessor = previous(key, trial)
        except InvalidValue as error:
            self._unreadable[key] = f"{error}; the stored version counts"
            return value
        left = min(trial.within, (trial.ends - self._now()).total_seconds())
        ends = self._monotonic() + left
        if before is not None and before.deadline == trial.deadline:
            ends = min(ends, before.ends)
        if reverted == trial.deadline or ends <= self._monotonic():
            self._reverted[key] = trial.deadline
            return predecessor
        self._waiting[key] = _Waiting(trial.deadline, ends, predecessor)
        return value

    def left(self) -> float | None:
        """Seconds until the next version reverts; None: none waits."""
        ends = min((one.ends for one in self._waiting.values()), default=None)
        return None if ends is None else max(0.0, ends - self._monotonic())

    def expired(self) -> list[tuple[ResourceKey, Any]]:
        """The objects whose time is over, each with the version that counts again."""
        now, reverted = self._monotonic(), []
        for key, one in list(self._waiting.items()):
            if one.ends <= now:
                del self._waiting[key]
                self._reverted[key] = one.deadline
                reverted.append((key, one.predecessor))
        return reverted

    def conditions(self) -> list[tuple[str, str]]:
        """What an operator must know of each object."""
        reports = [(str(key), reason) for key, reason in self._unreadable.items()]
        for key, deadline in self._reverted.items():
            text = f"was not confirmed by {deadline}: the version before it is in force again"
            reports.append((str(key), text))
        for key, one in self._waiting.items():
            text = f"is in force until {one.deadline} only: calicoctl confirm makes it last"
            reports.append((str(key), text))
        return reports
