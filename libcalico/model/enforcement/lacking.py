"""What the objects that a process follows ask for and do not get: said once, kept for status.

For agents: `update` per change, `conditions` for the status. Which fields those are says
`libcalico.model.enforcement.table`. Tested in tests/libcalico/test_enforcement.py.
"""

from __future__ import annotations

import logging
from typing import Any

from libcalico.model.enforcement.table import not_enforced
from libcalico.model.keys import Key


class Lacking:
    """The notices of all followed objects, by object."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._notices: dict[Key, tuple[str, ...]] = {}

    def update(self, subject: Key, resource: Any | None) -> None:
        """Take an object (None: gone); log what it newly asks for in vain."""
        found: tuple[str, ...] = ()
        if resource is None and subject not in self._notices:
            return
        if resource is not None:
            found = tuple(f"{path}: not enforced: {why}" for path, why in not_enforced(resource))
        old = self._notices.pop(subject, ())
        if found:
            self._notices[subject] = found
        for notice in found:
            if notice not in old:
                self._log.warning("%s", notice, extra={"object": str(subject)})

    def conditions(self) -> list[tuple[str, str]]:
        """(object, notice) of everything, in the order of the objects' names."""
        return sorted((str(key), one) for key, found in self._notices.items() for one in found)
