"""Whose paths are to be asked for once more (BGP-7), and when. Pure.

What a peer said and cannot be read may stay so: it is not asked for again and again.
Tested in tests/bgp/test_speaker_contract.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bgp.speaker.exabgp.session import Session
from bgp.speaker.interface import IPAddress

_REFRESH_PAUSE = 30.0
_RESET_PAUSE = 600.0


class Repairs:
    """`damaged`: the peers of whom something could not be read."""

    def __init__(self) -> None:
        self.damaged: set[IPAddress] = set()
        self._not_before: dict[IPAddress, float] = {}

    def note(self, peers: Iterable[IPAddress]) -> None:
        """Something of these peers could not be read."""
        self.damaged.update(peers)

    def due(self, sessions: Mapping[IPAddress, Session], now: float) -> list[Session]:
        """The sessions to ask now; `now` in seconds. Each is named once."""
        sessions_due = []
        for address in sorted(self.damaged, key=int):
            session = sessions.get(address)
            if session is None or not session.up:
                self.damaged.discard(address)  # the next session brings everything anew
            elif now >= self._not_before.get(address, 0.0):
                self.damaged.discard(address)
                pause = _REFRESH_PAUSE if session.refreshes else _RESET_PAUSE
                self._not_before[address] = now + pause
                sessions_due.append(session)
        return sessions_due
