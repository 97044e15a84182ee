"""What is known of a session that does not come up.

Tested in tests/bgp/test_diagnosis.py.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from bgp.peering.planned import PlannedPeer
from bgp.speaker.interface import PeerOpen


class Reached(enum.Enum):
    """The result of a TCP connection to the peer's port, without a password."""

    CONNECTED = "connected"
    REFUSED = "refused"
    SILENT = "silent"
    NO_ROUTE = "no route"
    NO_ADDRESS = "no address"


@dataclass(frozen=True, slots=True)
class Probe:
    """A connection that was tried; `host_answers`: another port of the silent peer refused."""

    reached: Reached
    host_answers: bool = False


@dataclass(frozen=True, slots=True)
class Notification:
    """The last NOTIFICATION of a session, ours if `sent`."""

    sent: bool
    code: int
    subcode: int


@dataclass(frozen=True, slots=True)
class KeyDrops:
    """Segments that the kernel dropped for their TCP-MD5 since it was last asked.

    `wrong`: a key other than ours, or none where we have one; `unexpected`: a key where we have
    none. They count for the whole node.
    """

    wrong: bool = False
    unexpected: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one session. `waiting`: TCP is up, and no OPEN came for long."""

    planned: PlannedPeer
    up: bool = False
    error: str = ""
    opened: PeerOpen | None = None
    probe: Probe | None = None
    drops: KeyDrops = KeyDrops()
    waiting: bool = False


_NOTIFICATION = re.compile(r"notification (sent|received) \((\d+),\s*(\d+)\)")


def notification(words: str) -> Notification | None:
    """The NOTIFICATION in a speaker's words, if there is one."""
    match = _NOTIFICATION.search(words)
    if match is None:
        return None
    return Notification(match[1] == "sent", int(match[2]), int(match[3]))
