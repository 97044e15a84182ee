"""Where the node has no BGP: a process that says that all is well, and does nothing.

`calico_backend` may be changed in the ConfigMap while the pod still has its container `calico-bgp`.
A speaker that ran on would announce unwanted routes; one that ended would be restarted for ever.
Tested in tests/bgp/test_idle.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from libcalico.process.health import HealthServer, Reporter

log = logging.getLogger(__name__)

HEARTBEAT = 2.0


def backend(environ: Mapping[str, str]) -> str:
    """The networking backend; `bird` is BGP."""
    if environ.get("CALICO_NETWORKING", "").strip().lower() == "false":
        return "none"
    return environ.get("CALICO_NETWORKING_BACKEND", "").strip().lower() or "bird"


async def idle(why: str, port: int) -> None:
    """Answer health on `port` until cancelled."""
    log.info("no BGP on this node: CALICO_NETWORKING_BACKEND is %s", why)
    reporter = Reporter("no-bgp", timeout=30.0, ready=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(HealthServer("localhost", port, [reporter]).run())
        while True:
            reporter.alive()
            await asyncio.sleep(HEARTBEAT)
