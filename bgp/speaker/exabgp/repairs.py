"""Whose paths are to be asked for once more (BGP-7), and when.

What a peer said and cannot be read may stay so: it is not asked for again and again.
Tested in tests/bgp/test_speaker_contract.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from bgp.speaker import encoding
from bgp.speaker.exabgp import command_lines
from bgp.speaker.exabgp.command_lines import Command
from bgp.speaker.exabgp.session import Session
from bgp.speaker.interface import Family, IPAddress

log = logging.getLogger(__name__)

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


def asked_again(session: Session, families: Iterable[Family]) -> Iterable[Command]:
    """What makes the peer of a session say everything once more."""
    log.warning(
        "a peer's paths are asked for once more",
        extra={"peer": str(session.peer.address), "reset": not session.refreshes},
    )
    if session.refreshes:
        asked = [encoding.route_refresh(family) for family in families]
        return command_lines.send(asked, [session.number])
    return [command_lines.end(session.number)]
