"""What is said to ExaBGP: one command in flight, the others wait; what it refuses is named.

ExaBGP answers `done` or `error` to each command and names none, so one is under way at a time.

  CMD-1  Nothing waits for a peer whose session ended: the next session says everything anew, and
         a peer that comes and goes while ExaBGP is busy costs no memory.
  CMD-2  A command that ExaBGP refuses is a condition of each peer it was meant for, with the
         routes that the peer is not told; until it is told them, or its session ends.
Tested in tests/bgp/test_commands.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

log = logging.getLogger(__name__)

_TO = "neighbor "
_ROUTES = " nlri "
_KEPT = 1000
"""Refused routes that are remembered for a peer."""
_SHOWN = 3
_WORDS = 200


class Commands:
    """The commands of one ExaBGP. Peers are addresses as text."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._flying: str | None = None
        self._refused: dict[str, dict[str, str]] = {}
        self.errors = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """None is under way."""
        return self._flying is None

    def add(self, lines: Iterable[str]) -> None:
        """Say these after all others."""
        self._waiting.extend(lines)

    def urgent(self, line: str) -> None:
        """Say this before all others."""
        self._waiting.appendleft(line)

    def take(self) -> str | None:
        """The command to send now, if it is time for one."""
        if self._flying is not None or not self._waiting:
            return None
        self._flying = self._waiting.popleft()
        return self._flying

    def clear(self) -> None:
        """ExaBGP ended: what waits means nothing to the next one."""
        self._waiting.clear()
        self._flying = None
        self._refused.clear()

    def gone(self, peer: str) -> None:
        """A peer's session ended (CMD-1)."""
        self._refused.pop(peer, None)
        mark = f"{_TO}{peer} "
        if any(mark in line for line in self._waiting):
            rest = (_without(line, peer) if mark in line else line for line in self._waiting)
            self._waiting = deque(line for line in rest if line)
        if self._flying is not None and mark in self._flying:
            self._flying = _without(self._flying, peer)

    def answered(self, *, refused: bool) -> None:
        """ExaBGP's answer to the command under way (CMD-2)."""
        line, self._flying = self._flying or "", None
        if refused:
            self._refuse(line)
        elif self._refused:
            peers, rest = _divided(line)
            for peer in self._refused.keys() & set(peers):
                table = self._refused[peer]
                for what in named(rest):
                    table.pop(what, None)
                if not table:
                    del self._refused[peer]

    def _refuse(self, line: str) -> None:
        self.errors += 1
        peers, rest = _divided(line)
        if not peers:
            log.warning("exabgp refused a command: %.200s", line or "of a peer that is gone")
            return
        log.error("exabgp refused a command: %.200s", rest, extra={"peers": " ".join(peers[:9])})
        words = rest.partition(_ROUTES)[0][:_WORDS]
        for peer in peers:
            table = self._refused.setdefault(peer, {})
            for what in named(rest):
                if len(table) < _KEPT:
                    table[what] = words

    def conditions(self) -> list[tuple[str, str]]:
        """Which routes a peer is not told, for an operator."""
        found = []
        for peer, table in self._refused.items():
            names = ", ".join(list(table)[:_SHOWN])
            more = f" and {len(table) - _SHOWN} more" if len(table) > _SHOWN else ""
            words = next(iter(table.values()))
            why = f"ExaBGP refuses {names}{more}, so the peer does not know: {words}"
            found.append((f"BGP peer {peer}", why))
        return found


def named(rest: str) -> list[str]:
    """What a command is about: its routes, else its words."""
    words, _, routes = rest.partition(_ROUTES)
    return routes.split() or [words[:_WORDS]]


def _divided(line: str) -> tuple[list[str], str]:
    """The peers that a command is for, and what it says."""
    peers, rest = [], line
    while rest.startswith(_TO):
        peer, _, rest = rest[len(_TO) :].partition(" ")
        peers.append(peer)
        rest = rest.removeprefix(", ")
    return peers, rest


def _without(line: str, peer: str) -> str:
    """A command for all its peers but this one; empty if there is no other."""
    peers, rest = _divided(line)
    others = " , ".join(f"{_TO}{each}" for each in peers if each != peer)
    return f"{others} {rest}" if others else ""
