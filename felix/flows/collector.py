"""The packets and connections of this node, heard and counted: the edge around the joiner.

Rules tell of first packets (`felix.telling`), the kernel of connections that end, and at
the end of each interval its whole list is read, in slices between which the main loop has its
other work. Endings go before packets: a connection that is told of now may have the name of one
that ended just before.

Invariants:
  FCO-1  No step holds up the loop for more than some milliseconds, however many connections live.
  FCO-2  What could not be heard is counted (`felix.flows.joiner.Lost`).
Tested in tests/felix/kernel/test_flows.py and tests/felix/flows/test_collector.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from felix.dataplane.turn.cooperative_steps import in_slices
from felix.flows.joiner import Joiner
from felix.rationed import Rationed
from felix.rules.nflog_prefix import INGRESS_GROUP, Tell
from felix.telling import Telling
from flows.record import Flow
from linux.errors import KernelError
from linux.nflog import Logged
from linux.tracking import connections
from linux.tracking.connections import Endings

SLICE = 0.004
"""Seconds of reading after which others have their turn."""

log = logging.getLogger(__name__)


class Collector:
    """Hears for one joiner while it is open. `slices` lists the kernel's connections."""

    def __init__(
        self,
        joiner: Joiner,
        telling: Telling,
        slices: Callable[[], Iterator[list[bytes]]] = connections.slices,
    ) -> None:
        self._joiner, self._telling, self._slices = joiner, telling, slices
        self._endings: Endings | None = None
        self._rationed: Rationed | None = None
        self.problem = ""
        """Why packets are not heard."""

    def open(self) -> None:
        """Begin to hear. Raises `KernelError`."""
        self._endings = Endings()
        try:
            self._telling.join(self, Tell.FLOWS)
        except KernelError:
            self.close()
            raise
        self._rationed = Rationed(self._endings.fileno(), self._ended)
        self.problem = ""

    def close(self) -> None:
        """Hear no more; twice is fine."""
        self._telling.leave(self)
        if self._rationed is not None:
            self._rationed.close()
            self._rationed = None
        if self._endings is not None:
            self._endings.close()
            self._endings = None

    # -- what is heard -------------------------------------------------------------------------

    def heard(self, packets: Sequence[Logged], lost: int) -> None:
        """Take packets that rules told of."""
        self._joiner.lost.packets += lost
        while self._ended():
            pass
        now = asyncio.get_running_loop().time()
        hear = self._joiner.hear
        for packet in packets:
            hear(packet.payload, packet.prefix, now, ingress=packet.group == INGRESS_GROUP)

    def deaf(self, why: str) -> None:
        """Packets cannot be heard any more; the owner opens anew."""
        self.problem = why
        self.close()

    def _ended(self) -> int:
        endings = self._endings
        if endings is None:
            return 0
        try:
            bodies = endings.read()
        except KernelError as error:
            log.warning("ends of connections cannot be heard any more: %s", error)
            self.deaf(str(error))
            return 0
        self._joiner.lost.endings += endings.lost
        endings.lost = 0
        for body in bodies:
            parts = connections.key_in(body)
            if parts is not None and parts[0] in self._joiner:
                self._joiner.ended(connections.connection_of(body, parts))
        return len(bodies)

    # -- an interval ---------------------------------------------------------------------------

    async def flows(self, start: int, end: int, *, reconsider: bool) -> list[Flow]:
        """Count all connections, and return the flows of an interval that ends now.

        `reconsider`: policies changed, so pending traces may be others. Raises `KernelError` where
        connections cannot be listed; nothing is lost then, the next interval has it.
        """
        await in_slices(self._counting(), SLICE)
        now = asyncio.get_running_loop().time()
        await in_slices(self._joiner.all_counted(now), SLICE)
        if reconsider and self._joiner.pending:
            await in_slices(self._joiner.reconsidered(), SLICE)
        flows: list[Flow] = []
        await in_slices(self._flushing(flows, start, end), SLICE)
        return flows

    def _counting(self) -> Iterator[None]:
        joiner = self._joiner
        for bodies in self._slices():
            for body in bodies:
                parts = connections.key_in(body)
                if parts is not None and parts[0] in joiner:
                    joiner.counted(connections.connection_of(body, parts))
            yield

    def _flushing(self, flows: list[Flow], start: int, end: int) -> Iterator[None]:
        for batch in self._joiner.flushing(start, end):
            flows += batch
            yield
