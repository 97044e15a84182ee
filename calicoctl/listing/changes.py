"""What a watch has shown so far, and which rows a listing or an event adds to it. Pure.

Tested in `tests/calicoctl/test_watch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from calicoctl.listing.result import Request, Result
from libcalico.datastore.interface import Entry
from libcalico.errors import NotFound
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.resources.policy import OLD_PREFIX, POLICY_KINDS

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
"""kubectl's words, as Kubernetes' watch has them."""


class Row(msgspec.Struct, frozen=True):
    """A resource as it is now, or was when it went."""

    event: str
    entry: Entry


class Seen:
    """The resources of a request that were shown last, by key."""

    def __init__(self, request: Request) -> None:
        self._asked = set(request.keys)
        self._selects = request.selects
        self._shown: dict[Key, Entry] = {}

    def require_names(self) -> None:
        """Raise `NotFound` for a named resource that is not there."""
        shown = {_own(key) for key in self._shown} | self._shown.keys()
        missing = sorted(str(key) for key in self._asked - shown)
        if missing:
            raise NotFound("\n".join(f"resource does not exist: {key}" for key in missing))

    def listed(self, result: Result) -> list[Row]:
        """The rows by which a listing differs from what was shown: at first all of it."""
        present = {entry.key for entry in result.entries}
        rows = [
            row
            for key in list(self._shown)
            if key not in present
            for row in self.changed(key, None)
        ]
        for entry in result.entries:
            rows += self.changed(entry.key, entry)
        return rows

    def changed(self, key: Key, entry: Entry | None) -> Sequence[Row]:
        """The row of one change, or none: of another resource, or as it was shown already.

        A resource whose labels are not selected any more is gone, as for kubectl.
        """
        if self._asked and key not in self._asked and _own(key) not in self._asked:
            return ()
        before = self._shown.get(key)
        if entry is not None and self._selects is not None:
            entry = entry if self._selects(entry.value.metadata.labels) else None
        if entry is None:
            if before is None:
                return ()
            del self._shown[key]
            return (Row(DELETED, before),)
        self._shown[key] = entry
        if before is None:
            return (Row(ADDED, entry),)
        same = (before.revision, before.raw) == (entry.revision, entry.raw)
        return () if same else (Row(MODIFIED, entry),)


def _own(key: Key) -> Key:
    """The key of a policy by its own name, where it lies under that of an older release."""
    if isinstance(key, ResourceKey) and key.kind in POLICY_KINDS:
        return key._replace(name=key.name.removeprefix(OLD_PREFIX))
    return key
