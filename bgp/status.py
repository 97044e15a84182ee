"""What others may read of this process: `/var/run/calico/status/bgp.json` (0644).

Schema (`time` and `pid` are added by `libcalico.status_file`):

    {"router_id": "10.99.1.1", "local_as": 64512,
     "speaker": "running" | "stopped" | "restarting",
     "start_complete": bool,          all peers have sent End-of-RIB since our start, or the
                                      deadline passed: felix holds a complete snapshot
     "datastore": bool, "felix": bool connected right now
     "draining": bool,                routes say that this node is about to go
     "peers": [{"address": "10.99.1.2",
                "type": "node-to-node mesh" | "global" | "node specific",
                "node": "n2",            name of the node of the cluster, else empty
                "state": "up" | "start",
                "since": RFC 3339,
                "info": "Established" | "Active" | "Connect" | "OpenSent", then ": last error",
                "asn": 64512,
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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from libcalico import status_file
from libcalico.model.meta import now_text

log = logging.getLogger(__name__)

_PAUSE, _PERIOD = 0.2, 10.0
ESTABLISHED = "Established"


@dataclass
class PeerStatus:
    """What people want to know of one session."""

    info: str
    error: str = ""
    since: str = field(default_factory=now_text)

    @property
    def up(self) -> bool:
        """The session is Established."""
        return self.info == ESTABLISHED

    def change(self, info: str, error: str = "") -> None:
        """A new state; `since` moves only when the session comes up or goes down."""
        if (info == ESTABLISHED) != self.up:
            self.since = now_text()
        self.info = info
        self.error = "" if info == ESTABLISHED else (error or self.error)

    @property
    def text(self) -> str:
        """State and last error in one."""
        return f"{self.info}: {self.error}" if self.error else self.info


class Writer:
    """Writes the status file whenever `changed` was called, and now and then."""

    def __init__(self, collect: Callable[[], dict[str, Any]]) -> None:
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
            try:
                async with asyncio.timeout(_PERIOD):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
