"""What others may read of this process: `/var/run/calico/status/bgp.json` (0644).

Schema (`time` and `pid` are added by `libcalico.process.status_file`):

    {"router_id": "10.99.1.1", "local_as": 64512,
     "speaker": "running" | "stopped" | "restarting",    stopped: no session is to be held now
     "start_complete": bool,          all peers have sent End-of-RIB since our start, or the
                                      deadline passed: felix holds a complete snapshot
     "datastore": bool, "felix": bool connected right now
     "draining": bool,                routes say that this node is about to go
     "peers": [{"address": "10.99.1.2",
                "type": "node-to-node mesh" | "global" | "node specific",
                "node": "n2",            name of the node of the cluster, else empty
                "state": "up" | "start",
                "since": RFC 3339,       whole seconds
                "session": 7,            the last session with it was the 7th that came up, of all
                                         peers and since our start; 0: there was none
                "info": "Established" | "Active" | "Connect" | "OpenSent", then ": last error",
                "asn": 64512,
                "error": "last error of a session that is down",
                "cause": "refused", "seen": "...", "fix": "...",
                                         why it does not come up (see diagnosis), else empty
                "received": 3, "stale": 0, "sent": 1,
                "refused": 1,            paths not taken (loops not counted), the first 20 named:
                "refused_paths": {"10.65.9.0/26": "reason"},
                "reflector_client": bool,
                "leaving": bool,         kept only until its successors carry its routes
                "graceful_restart": "no" | "yes" | "keeping routes"}],
     "refused": [{"peer": "BGPPeer(tor)", "reason": "..."}],
     "felix_refused": {"10.65.0.0/16": "reason", ...},
     "conditions": [{"object": "BGPPeer(tor)", "reason": "spec.x: not enforced: ..."}]}

`Active` means that the peer is expected to dial, `Connect` that we do. Written when
something changed, at most every 0.2 s, and every 10 s. Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypedDict

from libcalico.model.base.meta import now_text
from libcalico.process import status_file
from libcalico.process.waiting import set_within

log = logging.getLogger(__name__)

_PAUSE, _PERIOD = 0.2, 10.0
ESTABLISHED = "Established"
NOTICE = 330.0
"""How long a NOTIFICATION stands, in seconds: BIRD does not even listen for up to 300 s after one
(`error wait time`), so that a refusal then says nothing new."""


class PeerEntry(TypedDict):
    """One peer in the status file."""

    address: str
    type: str
    node: str
    state: str
    since: str
    session: int
    info: str
    error: str
    cause: str
    seen: str
    fix: str
    asn: int
    received: int
    stale: int
    refused: int
    refused_paths: dict[str, str]
    sent: int
    graceful_restart: str
    reflector_client: bool
    leaving: bool


class Refused(TypedDict):
    """A peering that cannot be held, in the status file."""

    peer: str
    reason: str


class Condition(TypedDict):
    """A condition of an object, in the status file."""

    object: str
    reason: str


class StatusDocument(TypedDict):
    """The status file, without what `libcalico.process.status_file` adds."""

    router_id: str
    local_as: int
    speaker: str
    start_complete: bool
    datastore: bool
    felix: bool
    draining: bool
    peers: list[PeerEntry]
    refused: list[Refused]
    felix_refused: dict[str, str]
    conditions: list[Condition]


@dataclass
class PeerStatus:
    """The status of one session, for people."""

    info: str
    error: str = ""
    since: str = field(default_factory=now_text)
    session: int = 0
    notice: str = ""
    noticed: float = 0.0
    """The last NOTIFICATION since the session was up, in the speaker's words, and when it came;
    `entered`: when `info` last changed. Seconds, monotonic."""
    entered: float = field(default_factory=time.monotonic)

    @property
    def up(self) -> bool:
        """The session is Established."""
        return self.info == ESTABLISHED

    def change(self, info: str, error: str = "") -> None:
        """A new state; `since` moves only when the session comes up or goes down."""
        if (info == ESTABLISHED) != self.up:
            self.since = now_text()
        if info != self.info:
            self.info, self.entered = info, time.monotonic()
        if "notification" in error:
            self.notice, self.noticed = error, time.monotonic()
        elif info == ESTABLISHED:
            self.notice, self.noticed, self.error = "", 0.0, ""
            return
        # What follows a NOTIFICATION is its consequence: the connection closes, the next is
        # refused for a while.
        self.error = self.notice if self.notice_stands else error or self.error

    @property
    def notice_stands(self) -> bool:
        """Whether the last NOTIFICATION still says more than what came after it."""
        return bool(self.notice) and time.monotonic() < self.noticed + NOTICE

    @property
    def text(self) -> str:
        """State and last error in one."""
        return f"{self.info}: {self.error}" if self.error else self.info


class Writer:
    """Writes the status file whenever `changed` was called, and now and then."""

    def __init__(self, collect: Callable[[], StatusDocument]) -> None:
        self._collect = collect
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Something is different."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                status_file.write("bgp", self._collect())
            except OSError as error:
                log.warning("the status file cannot be written: %s", error)
            await asyncio.sleep(_PAUSE)
            await set_within(self._changed, _PERIOD)
            self._changed.clear()
