"""Plan, commit, and plan again while others change the same objects.

The one loop through which every change of IPAM data goes. A plan is a pure function of the
view; the loop reads what the plan misses, commits its changes, and after a conflict learns
what is really there and asks the plan again, at most `ATTEMPTS` times
(docs/reference/data-model.md#automatic-assignment).

Invariant IPAM-7: between plan and commit nothing is assumed that no guard protects.
Tested in tests/ipam/test_service.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ipam.allocator.view import View
from ipam.records.errors import Contention
from libcalico.datastore.interface import Change, CommitConflict, Datastore
from libcalico.errors import DatastoreUnavailable
from libcalico.model.keys import Key

ATTEMPTS = 100
PATIENT_AFTER = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """A decision: what to change, what that means, or which keys must be read first."""

    outcome: T
    changes: Sequence[Change] = ()
    missing: frozenset[Key] = frozenset()


async def settle(
    store: Datastore,
    view: View,
    decide: Callable[[View], Plan[T]],
    announce: Callable[[T], None] | None = None,
) -> T:
    """Carry `decide` through; returns its outcome once the datastore has it.

    `announce` hears each outcome that is about to be committed, so that work which can be
    taken back (wiring) may start early. Raises `Contention` when the attempts are used up
    and `DatastoreUnavailable` with the view's touched keys forgotten: the commit may or may
    not have happened.
    """
    for attempt in range(ATTEMPTS):
        plan = decide(view)
        if plan.missing:
            view.learn(await store.get_many(sorted(plan.missing, key=str)))
            continue
        if announce:
            announce(plan.outcome)
        if not plan.changes:
            return plan.outcome
        try:
            revision = await store.commit(plan.changes)
        except CommitConflict as conflict:
            view.learn(conflict.current)
            if attempt >= PATIENT_AFTER:
                await asyncio.sleep(random.uniform(0, 0.002 * attempt))
        except (DatastoreUnavailable, asyncio.CancelledError):
            view.forget(change.key for change in plan.changes)
            raise
        else:
            view.wrote(plan.changes, revision)
            return plan.outcome
    raise Contention(f"gave up after {ATTEMPTS} attempts: others keep changing the same blocks")
