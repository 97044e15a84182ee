"""The daemon's line to felix: offer an endpoint early, wait until it is in force.

felix may be away or restart at any moment. Offers and waits that are open are told again to
every new connection, so that a restart of felix in the middle of an ADD costs time, not the
ADD. Nothing here blocks an ADD: messages queue, only `in_force` waits.

Where Calico's felix runs there is no such line: no socket at all, but a directory of files, each of
which says that an endpoint is in force. Such a file is waited for instead. Our felix takes socket
and directory with it when it ends, and leaves both where it is killed.

Invariants (tests/cni/test_felix_client.py):
  CNI-16  A wait ends by felix's word about this very container, by the caller's timeout, or
          by `stop_waiting`; never by the loss of a connection. A file is felix's word only where
          Calico's felix speaks (a directory and no socket), and when it names the interface, the
          hardware address and the addresses of this container.
  CNI-24  Every offer is closed: by `stored`, from whose revision on the datastore's word counts, or
          by `retract`. One that is open is told again to each new felix.
  CNI-23  Felix's word about one offer is none about a later one of the same container, with
          other addresses after a lost race, say: a wait is for the word on the last.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cni.node.felix_word import Word, status_file
from libcalico import endpoint_files
from libcalico.errors import MuslinError
from libcalico.local.framing import Connection, connect_unix
from libcalico.local.node_api import (
    Await,
    Hello,
    InForce,
    Message,
    Offer,
    Retract,
    Stored,
    Unreleased,
    Vanished,
)
from libcalico.process import paths
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import beside

FILE_INTERVAL = 0.05

log = logging.getLogger(__name__)


class Subject(NamedTuple):
    """One endpoint of one container."""

    namespace: str
    name: str
    container_id: str


@dataclass(slots=True)
class _Wait:
    """A wait for felix's word, and which of our questions it must answer."""

    word: Word
    number: int
    wired: bool
    file: tuple[Path, bytes] | None = None
    looking: asyncio.TimerHandle | None = None


class FelixClient:
    """`run` keeps the connection; the other methods may be called at any time."""

    def __init__(self, path: Path, endpoint_status: Path = paths.ENDPOINT_STATUS) -> None:
        self._path, self._endpoint_status = path, endpoint_status
        self._offers: dict[Subject, Offer] = {}
        self._waits: dict[Subject, _Wait] = {}
        self._numbers = itertools.count(1)
        self._unreleased: Unreleased | None = None
        self._outgoing: asyncio.Queue[Message] | None = None
        self._connection: Connection | None = None
        self.on_vanished: Callable[[Subject], None] = lambda _: None
        """Called of an endpoint that the datastore lost and that was not retracted."""

    @property
    def connected(self) -> bool:
        """Whether felix listens."""
        return self._outgoing is not None

    @property
    def calico_felix_here(self) -> bool:
        """Whether Calico's felix keeps this node: it has no socket, and speaks by files."""
        return not self.connected and not self._path.exists() and self._endpoint_status.exists()

    def offer(self, subject: Subject, value: bytes, *, wired: bool = False) -> None:
        """Hand over the exact bytes of an endpoint that is about to be stored.

        `wired`: ask for felix's word in the same breath, as `expect` does.
        """
        message = Offer(subject.namespace, subject.name, value.decode())
        before = self._offers.get(subject)
        self._offers[subject] = message
        wait = self._waits.get(subject)
        if wait is None and wired:
            self._send(message, self._question(subject, None, wired=True))
        elif wait is not None and before != message:
            word = None if wait.word.said else wait.word
            self._send(message, self._question(subject, word, wired=wait.wired))
        else:
            self._send(message)

    async def in_force(self, subject: Subject, timeout: float) -> str:
        """Wait until routes and rules of the endpoint are in the kernel.

        For a `wired` endpoint only the rules: the caller then writes the `routes`. Returns an empty
        text, or felix's reason why it will not be. Raises TimeoutError.
        """
        self.expect(subject)
        wait = self._waits[subject]
        if wait.word.said is None:
            self._look_again(wait, subject)
            try:
                await wait.word.wait(timeout)
            finally:
                if wait.looking is not None:
                    wait.looking.cancel()
        assert wait.word.said is not None
        return wait.word.said.error

    def routes(self, subject: Subject) -> Sequence[str]:
        """The prefixes that felix left to us to lead to the endpoint, by its last word."""
        wait = self._waits.get(subject)
        return wait.word.said.routes if wait is not None and wait.word.said else ()

    def _look(self, wait: _Wait, subject: Subject) -> None:
        """Without a felix of ours: read the status files of another one, again and again."""
        if wait.word.said is not None:
            return
        if self.calico_felix_here:
            offer = self._offers.get(subject)
            wait.file = wait.file or (status_file(self._endpoint_status, offer) if offer else None)
            if wait.file is None:
                return
            path, said = wait.file
            if reason := endpoint_files.too_long(path.name):
                # Calico's plugin goes on when no file comes; until the rules stand its felix
                # drops what comes from an interface that it does not know yet.
                log.warning("not waited for a file that tells of %s: %s", subject.name, reason)
                wait.word.say(InForce(*subject))
                return
            if endpoint_files.says(path, said):
                wait.word.say(InForce(*subject))
                return
        self._look_again(wait, subject)

    def _look_again(self, wait: _Wait, subject: Subject) -> None:
        loop = asyncio.get_running_loop()
        wait.looking = loop.call_later(FILE_INTERVAL, self._look, wait, subject)

    def expect(self, subject: Subject) -> None:
        """Ask for the word on an endpoint now; `in_force` collects it later."""
        if subject not in self._waits:
            self._send(self._question(subject, None))

    def _question(self, subject: Subject, word: Word | None, *, wired: bool = False) -> Await:
        wait = self._waits[subject] = _Wait(word or Word(), next(self._numbers), wired)
        return Await(*subject, wait.number, wired)

    def stored(self, subject: Subject, revision: int) -> None:
        """The offered endpoint is in the datastore since `revision` (0: an unknown one).

        The datastore's word counts from then on.
        """
        self.stop_waiting(subject)
        if self._offers.pop(subject, None) is not None:
            self._send(Stored(*subject, revision))

    def retract(self, subject: Subject, *, forgotten: bool = False) -> None:
        """The endpoint is gone, or never came to be; `forgotten`: its flows are, too."""
        self.stop_waiting(subject)
        self._offers.pop(subject, None)
        self._send(Retract(*subject, forgotten))

    def unreleased(self, containers: Collection[str]) -> None:
        """Tell felix that the release of these containers waits, and of no others."""
        message = Unreleased(sorted(containers))
        if message != (self._unreleased or Unreleased()):
            self._unreleased = message
            self._send(message)

    def stop_waiting(self, subject: Subject) -> None:
        """Cancel the wait for felix's word; the endpoint stays with felix."""
        wait = self._waits.pop(subject, None)
        if wait is not None:
            wait.word.drop()

    def _send(self, *messages: Message) -> None:
        if self._outgoing is None or self._connection is None:
            return
        # At once where nothing waits: the caller goes on to hold the loop with its wiring.
        if self._outgoing.empty() and self._connection.send_now(*messages):
            return
        for message in messages:
            self._outgoing.put_nowait(message)

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        backoff = Backoff(initial=0.05, maximum=2.0)
        while True:
            try:
                connection = await connect_unix(self._path, Hello("cni"))
            except (OSError, MuslinError) as error:
                log.debug("felix cannot be reached: %s", error)
                await backoff.wait()
                continue
            backoff.reset()
            log.info("connected to felix")
            try:
                await self._converse(connection)
            except (OSError, MuslinError) as error:
                log.warning("the connection to felix broke: %s", error)
            finally:
                self._outgoing = None
                await connection.close()
            await backoff.wait()

    async def _converse(self, connection: Connection) -> None:
        outgoing: asyncio.Queue[Message] = asyncio.Queue()
        for offer in self._offers.values():
            outgoing.put_nowait(offer)
        for subject, wait in self._waits.items():
            outgoing.put_nowait(Await(*subject, wait.number, wait.wired))
        if self._unreleased is not None:
            outgoing.put_nowait(self._unreleased)
        self._outgoing, self._connection = outgoing, connection
        async with beside(_pump(connection, outgoing)):
            await connection.attend(self._heard)

    def _heard(self, message: Message) -> None:
        if not isinstance(message, (InForce, Vanished)):
            return
        subject = Subject(message.namespace, message.name, message.container_id)
        if isinstance(message, Vanished):
            self.on_vanished(subject)
            return
        wait = self._waits.get(subject)
        # A felix that was not restarted yet since the last upgrade repeats no number.
        if wait is not None and message.number in (0, wait.number):
            wait.word.say(message)


async def _pump(connection: Connection, outgoing: asyncio.Queue[Message]) -> None:
    while True:
        await connection.send(await outgoing.get())
