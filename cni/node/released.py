"""Attachments that hold nothing: a repeated DEL of one asks the datastore nothing.

A runtime repeats the DEL of a container that is long gone: once more when it removes the sandbox,
and every minute while something else of the pod fails. On the Kubernetes datastore each of them
asks for a pod that does not exist. So what a DEL has released is remembered for a while, and longer
each time that the datastore was asked once more. An ADD of the attachment ends that, and so does a
datastore that was put back. A process that starts knows nothing and asks.
Tested in tests/cni/test_delete.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cni.request.attachment import Attachment

LIMIT = 1000
FIRST, LONGEST = 30.0, 600.0
"""Seconds for which it is remembered: after the first DEL, and at most."""


class Released:
    """At most `LIMIT` attachments; the oldest go first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Attachment, tuple[float, float]] = {}

    def note(self, attachment: Attachment) -> None:
        """A DEL has released everything, by the word of the datastore."""
        _, before = self._until.pop(attachment, (0.0, FIRST / 2))
        seconds = min(LONGEST, 2 * before)
        self._until[attachment] = self._clock() + seconds, seconds
        if len(self._until) > LIMIT:
            del self._until[next(iter(self._until))]

    def holds(self, attachment: Attachment) -> bool:
        """Whether it was released lately, so that the datastore need not be asked."""
        until, _ = self._until.get(attachment, (0.0, 0.0))
        return self._clock() < until

    def forget(self, attachment: Attachment) -> None:
        """An ADD begins."""
        self._until.pop(attachment, None)

    def clear(self) -> None:
        """Forget everything."""
        self._until.clear()
