"""Fields that the followed objects set and that are not enforced: logged once, kept for status.

An agent calls `update` for each change and `conditions` for its status. The fields are those of
`libcalico.model.enforcement.table`. Tested in tests/libcalico/test_enforcement.py.
"""

from __future__ import annotations

import logging

from libcalico.model.base.meta import APIObject
from libcalico.model.enforcement.table import not_enforced
from libcalico.model.keys import Key


class Lacking:
    """The notices of all followed objects, by object."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._notices: dict[Key, tuple[str, ...]] = {}

    def update(self, subject: Key, resource: APIObject | None) -> None:
        """Receive an object (None: deleted) and log the fields that it newly sets in vain."""
        notices: tuple[str, ...] = ()
        if resource is None and subject not in self._notices:
            return
        if resource is not None:
            notices = tuple(f"{path}: not enforced: {why}" for path, why in not_enforced(resource))
        old = self._notices.pop(subject, ())
        if notices:
            self._notices[subject] = notices
        for notice in notices:
            if notice not in old:
                self._log.warning("%s", notice, extra={"object": str(subject)})

    def conditions(self) -> list[tuple[str, str]]:
        """(object, notice) of everything, in the order of the objects' names."""
        return sorted(
            (str(key), notice) for key, notices in self._notices.items() for notice in notices
        )
