"""Sentences about sessions and lists of names, of which a few are shown. Pure.

Tested in `tests/calicoctl/test_status_judge.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from calicoctl.status.values import DOWN, UP, Grade, Session

SHOWN = 5
"""Names or sessions in a text at most."""


def of_sessions(sessions: tuple[Session, ...]) -> tuple[Grade, list[str]]:
    """The grade of a node by its sessions: one that is left over is a warning, none is bad."""
    kept = [one for one in sessions if not one.leaving]
    down = [one for one in kept if one.state == DOWN]
    if not down:
        return Grade.FINE, []
    why = [
        f"session with {one.peer or one.address} is down: {one.why or 'no reason is known'}"
        for one in down[:SHOWN]
    ]
    if len(down) > SHOWN:
        why.append(f"{len(down) - SHOWN} more sessions are down")
    alive = any(one.state == UP for one in kept)
    return (Grade.WARNING if alive else Grade.BAD), why


def listed(names: Sequence[str]) -> str:
    """Names for a sentence: the first few, and how many more there are."""
    shown = ", ".join(names[:SHOWN])
    rest = len(names) - SHOWN
    return f"{shown} and {rest} more nodes" if rest > 0 else shown
