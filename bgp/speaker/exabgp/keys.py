"""Peers whose key the kernel refused for the listening socket: what ExaBGP's process says of them.

It says the whole list each time it changes (`listening`), so the last one holds.
"""

from __future__ import annotations

import re

SAID = b"keys without room: "
_LIST = re.compile(re.escape(SAID) + rb"([0-9a-fA-F.: ]*)")


class Keyless:
    """The peers of the last list; none before the first, and after the process has ended."""

    def __init__(self) -> None:
        self._peers: list[str] = []

    def hear(self, line: bytes) -> None:
        """A line of ExaBGP's log; most say nothing of keys."""
        match = _LIST.search(line)
        if match is not None:
            self._peers = match.group(1).decode().split()

    def forget(self) -> None:
        """The process has ended."""
        self._peers = []

    def conditions(self) -> list[tuple[str, str]]:
        """Conditions for an operator: peers that cannot connect."""
        why = (
            "the kernel has no room for its key beside the others (net.core.optmem_max of this "
            "node): it is dialled, and not let in"
        )
        return [(f"BGP peer {peer}", why) for peer in self._peers]
