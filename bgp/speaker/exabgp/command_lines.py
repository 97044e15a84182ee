"""The commands that ExaBGP is told, as lines of text. Pure.

Tested in tests/bgp/test_commands.py and test_protocol.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

OCTETS_PER_LINE = 8192
"""Of messages, twice that of text. The numbers of 2,000 sessions come behind them."""

IN_FLIGHT = 56 << 10
"""Octets of commands that may wait for their answers; a pipe holds 64 KiB (`man 7 pipe`)."""


class Command(NamedTuple):
    """Something to say to ExaBGP: the words, and the sessions that it is for."""

    words: str
    sessions: tuple[int, ...] = ()

    @property
    def line(self) -> str:
        """As ExaBGP reads it."""
        return " ".join((self.words, *map(str, self.sessions)))


PING = Command("ping")


def send(messages: Iterable[bytes], sessions: Collection[int]) -> Iterator[Command]:
    """Whole messages for these sessions, in order; nothing without sessions."""
    if not sessions:
        return
    to = tuple(sorted(sessions))
    some: list[bytes] = []
    size = 0
    for message in messages:
        size += len(message)
        if some and size > OCTETS_PER_LINE:
            yield Command(f"send {b''.join(some).hex()}", to)
            some, size = [], len(message)
        some.append(message)
    if some:
        yield Command(f"send {b''.join(some).hex()}", to)


def end(session: int, code: int = 6, subcode: int = 4) -> Command:
    """End a session with a NOTIFICATION, by default CEASE, "administrative reset" (RFC 4486)."""
    return Command(f"end {code * 1000 + subcode}", (session,))
