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
    """At most `LIMIT` containers' interfaces; the oldest go first.

    An ADD ends the memory of every DEL of its container's interface: a runtime's DEL may name the
    pod or not, and only the container tells that they are about one thing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], tuple[Attachment, float, float]] = {}

    def note(self, attachment: Attachment) -> None:
        """A DEL has released everything, by the word of the datastore."""
        known = self._until.pop(_interface(attachment), None)
        again = known is not None and known[0] == attachment
        seconds = min(LONGEST, 2 * known[2]) if known is not None and again else FIRST
        self._until[_interface(attachment)] = attachment, self._clock() + seconds, seconds
        if len(self._until) > LIMIT:
            del self._until[next(iter(self._until))]

    def holds(self, attachment: Attachment) -> bool:
        """Whether it was released lately, so that the datastore need not be asked."""
        known = self._until.get(_interface(attachment))
        return known is not None and known[0] == attachment and self._clock() < known[1]

    def forget(self, attachment: Attachment) -> None:
        """An ADD begins."""
        self._until.pop(_interface(attachment), None)

    def clear(self) -> None:
        """Forget everything."""
        self._until.clear()


def _interface(attachment: Attachment) -> tuple[str, str]:
    return attachment.container_id, attachment.ifname
