"""Where flows go: to the aggregator, to a socket on this node, and into a file.

As in Calico `flowLogsGoldmaneServer` names the aggregator, and `flowLogsLocalReporter: Enabled`
sends to the socket `/var/run/calico/flows/flows.sock` while a program listens there (it takes what
the aggregator takes: `FlowCollector.Connect`). Beside the socket, lines of JSON are written to
`/var/lib/calico/flows/flows.log`, `FILES` of `FILE_BYTES` at most.

Invariant:
  FOU-1  An output that fails or is slow holds up no other and nothing else; what it loses is
         counted.
Tested in tests/felix/flows/test_outputs.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.record import Flow
from libcalico.errors import MuslinError
from libcalico.process import paths
from libcalico.process.tasks import Background, start

if TYPE_CHECKING:
    from flows.export.json_lines import JSONLines
    from flows.place import Place
    from flows.sending import Sender

SOCKET = paths.RUN / "flows" / "flows.sock"
FILE = paths.LIB / "flows" / "flows.log"
FILES, FILE_BYTES = 2, 16 << 20
CHECK = 10.0
"""Seconds between two looks for the socket, as in Calico."""
MOST_LOCAL = 10_000
"""Flows that wait for the listener of the socket."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The outputs that the parameters ask for. `server`: HOST:PORT of the aggregator, or empty;
    `ca`, `certificate`, `key`: files for TLS, or empty."""

    server: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    local: bool = False

    def __bool__(self) -> bool:
        return bool(self.server or self.local)


class Outputs:
    """The outputs of one node."""

    def __init__(self, node: str, socket: Path = SOCKET, file: Path = FILE) -> None:
        self._node, self._socket, self._file = node, socket, file
        self._background = Background()
        self._wanted = Wanted()
        self._senders: dict[str, Sender] = {}
        self._lines: JSONLines | None = None
        self._writing = asyncio.Lock()
        self._problems: dict[str, str] = {}
        self._lost_before = 0
        self.lost_lines = 0

    @property
    def lost(self) -> int:
        """Flows that an output lost so far."""
        sent = sum(sender.counters.lost for sender in self._senders.values())
        return self._lost_before + sent + self.lost_lines

    def want(self, asked: Wanted) -> None:
        """Send to these outputs from now on."""
        if asked == self._wanted:
            return
        before, self._wanted = self._wanted, asked
        if (before.server, before.ca, before.certificate, before.key) != (
            asked.server, asked.ca, asked.certificate, asked.key,
        ):  # fmt: skip
            self._drop("aggregator")
            if asked.server:
                self._background.keep("flows to the aggregator", self._to_aggregator)
        if before.local and not asked.local:
            self._drop("socket")
            self._close_lines()
        if asked.local:
            self._background.keep("flows to the socket", self._to_socket)

    def stop(self) -> None:
        """End every output."""
        self.want(Wanted())
        self._background.stop()

    def conditions(self) -> list[tuple[str, str]]:
        """What keeps flows from where they should go."""
        troubles = [
            (f"flows to the {name}", sender.trouble)
            for name, sender in self._senders.items()
            if sender.trouble
        ]
        return [*troubles, *self._problems.items(), *self._background.conditions()]

    async def offer(self, flows: Sequence[Flow]) -> None:
        """Hand flows to every output. Returns soon, before they are written."""
        for sender in self._senders.values():
            sender.offer(flows)
        if self._wanted.local and flows:
            await self._write(flows)

    # -- the aggregator, and a listener on this node -----------------------------------------------

    async def _to_aggregator(self) -> None:
        # gRPC is loaded by who has something to send.
        from flows.place import Place

        asked = self._wanted
        place = Place(asked.server, asked.ca, asked.certificate, asked.key)
        await self._send("aggregator", place)

    async def _send(self, name: str, place: Place, most: int | None = None) -> None:
        from flows.sending import MOST, Sender

        sender = Sender(place, self._node, most=MOST if most is None else most)
        self._senders[name] = sender
        try:
            await sender.run()
        finally:
            if self._senders.get(name) is sender:
                self._forget(name)

    async def _to_socket(self) -> None:
        """Send to the socket while it is there."""
        from flows.place import Place

        while True:
            if self._socket.exists():
                place = Place(f"unix://{self._socket}")
                sending = start(self._send("socket", place, MOST_LOCAL), "flows to the socket")
                try:
                    while self._socket.exists() and not sending.done():
                        await asyncio.wait({sending}, timeout=CHECK)
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})
            await asyncio.sleep(CHECK)

    def _drop(self, name: str) -> None:
        self._background.cancel(f"flows to the {name}")
        self._forget(name)

    def _forget(self, name: str) -> None:
        sender = self._senders.pop(name, None)
        if sender is not None:
            self._lost_before += sender.counters.lost

    # -- the file --------------------------------------------------------------------------------

    async def _write(self, flows: Sequence[Flow]) -> None:
        try:
            async with self._writing:
                await asyncio.to_thread(self._append, flows)
        except (OSError, MuslinError) as error:
            self.lost_lines += len(flows)
            reason = f"{len(flows)} flows were lost: {error}"
            if str(self._file) not in self._problems:
                log.warning("%s: %s", self._file, reason)
            self._problems[str(self._file)] = reason
        else:
            self._problems.pop(str(self._file), None)

    def _append(self, flows: Sequence[Flow]) -> None:
        from flows.export.json_lines import JSONLines

        if self._lines is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._lines = JSONLines(str(self._file), FILE_BYTES, FILES)
        self._lines.write(flows)

    def _close_lines(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None
        self._problems.pop(str(self._file), None)
