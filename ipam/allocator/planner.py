"""Turn a group of requests into one transaction: blocks, handles and companions together.

Pure. The view says what is believed of the datastore; the plan says what to change, under
which guards, and what each request gets. A request first chooses (ipam/allocator/address_choice.py)
and then changes, so one that cannot be served leaves no trace (IPAM-8); those beside it are served.

Invariants (tests/ipam/test_planner.py, tests/ipam/test_model.py):
  IPAM-5  Block, handle and companion of a request change in one transaction.
  IPAM-8  A request gets all its addresses or none, unless it says that some will do.
  IPAM-9  No plan has more than `MAX_CHANGES` changes: etcd takes 128 operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipam.allocator.address_choice import MAX_CHANGES, Sources, choose_addresses
from ipam.allocator.committer import Plan
from ipam.allocator.release_choice import choose_release
from ipam.allocator.requests import Allocate, Answer, Granted, Refused, Request, Short
from ipam.allocator.transaction_draft import Missing, Step, TransactionDraft
from ipam.allocator.view import View
from ipam.records.errors import IPAMError
from ipam.records.pools import Pool
from libcalico.errors import MuslinError
from libcalico.model.keys import Key

__all__ = ["MAX_CHANGES", "MAX_REQUESTS", "Sources", "plan"]

MAX_REQUESTS = 40


def plan(
    view: View,
    requests: Sequence[Request],
    pools: Sequence[Sequence[Pool]],
    sources: Sources,
) -> Plan[list[Answer]]:
    """Serve `requests` in order; `pools[i]` are the pools that may serve request i.

    Requests that do not fit into one transaction any more are answered by `Short` with
    family 0: they belong into the next group.
    """
    draft = TransactionDraft(view, now=sources.now, cooldown=sources.cooldown)
    answers: list[Answer] = []
    missing: set[Key] = set()
    for request, usable in zip(requests, pools, strict=True):
        answer: Answer
        try:
            if isinstance(request, Allocate):
                answer, step = choose_addresses(draft, request, usable, sources)
            else:
                answer, step = choose_release(draft, request)
        except Missing as gap:
            missing.update(gap.keys)
            answer = Short(0)
        except MuslinError as error:
            answer = Refused(error)
        else:
            if isinstance(answer, Granted):
                answer = _enter(draft, step, answer)
        answers.append(answer)
    return Plan(answers, draft.changes(), frozenset(missing))


def _enter(draft: TransactionDraft, step: Step, answer: Granted) -> Answer:
    if draft.fits(step, MAX_CHANGES):
        draft.enter(step)
        return answer
    if step.width > MAX_CHANGES:
        return Refused(
            IPAMError(
                f"{step.width} objects would have to change at once and {MAX_CHANGES} can: "
                "ask for fewer addresses, or for a part of them"
            )
        )
    return Short(0)
