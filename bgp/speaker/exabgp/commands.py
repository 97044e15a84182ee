"""What is said to ExaBGP: so much in flight that a write never blocks, the others wait.

ExaBGP answers `done` or `error` to each command in turn, and names none.

  CMD-1  Nothing waits for a session that ended: the next session says everything anew, and
         a peer that comes and goes while ExaBGP is busy costs no memory.
Tested in tests/bgp/test_commands.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from bgp.speaker.exabgp.command_lines import IN_FLIGHT, Command

log = logging.getLogger(__name__)


class Commands:
    """The commands of one ExaBGP."""

    def __init__(self) -> None:
        self._waiting: deque[Command] = deque()
        self._flying: deque[str] = deque()
        self._in_flight = 0
        self.errors = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """None is under way."""
        return not self._flying

    def add(self, commands: Iterable[Command]) -> None:
        """Say these after all others."""
        self._waiting.extend(commands)

    def urgent(self, command: Command) -> None:
        """Say this before all others."""
        self._waiting.appendleft(command)

    def next_line(self) -> str | None:
        """The line to send now, if it is time for one."""
        if not self._waiting:
            return None
        line = self._waiting[0].line
        if self._flying and self._in_flight + len(line) >= IN_FLIGHT:
            return None
        self._waiting.popleft()
        self._flying.append(line)
        self._in_flight += len(line) + 1
        return line

    def clear(self) -> None:
        """ExaBGP ended: what waits means nothing to the next one."""
        self._waiting.clear()
        self._flying.clear()
        self._in_flight = 0

    def gone(self, session: int) -> None:
        """A session ended (CMD-1)."""
        if any(session in each.sessions for each in self._waiting):
            rest = (_without(each, session) for each in self._waiting)
            self._waiting = deque(each for each in rest if each is not None)

    def answered(self, *, refused: bool) -> None:
        """ExaBGP's answer to the first command under way."""
        line = self._flying.popleft() if self._flying else ""
        self._in_flight -= len(line) + 1 if line else 0
        if refused:
            self.errors += 1
            log.error("exabgp refused a command: %.200s", line)


def _without(command: Command, session: int) -> Command | None:
    """A command for all its sessions but this one; None if there is no other."""
    if session not in command.sessions:
        return command
    others = tuple(each for each in command.sessions if each != session)
    return Command(command.words, others) if others else None
