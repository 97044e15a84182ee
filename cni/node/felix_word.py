"""felix's word on one endpoint: as a message, or as the status file that another felix writes.

Tested in tests/cni/test_felix_client.py.
"""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_network
from pathlib import Path

from libcalico import endpoint_files
from libcalico.errors import MuslinError
from libcalico.local.node_api import (
    InForce,
    Offer,
)
from libcalico.model import ResourceKey
from libcalico.model.codec import decode_value

log = logging.getLogger(__name__)


class Word:
    """felix's word, once it comes. A waiter that gives up leaves it to the others."""

    __slots__ = ("_waiting", "said")

    def __init__(self) -> None:
        self.said: InForce | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def say(self, message: InForce) -> None:
        """Set the word; the first one counts."""
        if self.said is None:
            self.said = message
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def drop(self) -> None:
        """Cancel all waits."""
        for waiter in self._waiting:
            waiter.cancel()

    async def wait(self, timeout: float) -> None:
        """Wait until the word has come; raises TimeoutError.

        This costs one turn of the loop less than `shield`.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(timeout, _expire, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.remove(waiter)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


def status_file(directory: Path, offer: Offer) -> tuple[Path, bytes] | None:
    """The status file of an offered endpoint, and what it must say."""
    key = ResourceKey("WorkloadEndpoint", offer.name, offer.namespace)
    try:
        spec = decode_value(key, offer.value.encode()).spec
        networks = [ip_network(text) for text in spec.ipNetworks]
    except (MuslinError, ValueError) as error:
        log.warning("the endpoint offered cannot be read: %s", error)
        return None
    workload = f"{offer.namespace}/{spec.pod}" if spec.pod else spec.workload
    name = endpoint_files.file_name((spec.orchestrator, workload, spec.endpoint))
    said = endpoint_files.content(spec.interfaceName, spec.mac, networks)
    return directory / name, said
