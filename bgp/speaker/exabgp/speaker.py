"""The ExaBGP speaker: keeps one child in the desired state and turns its lines into events.

One task (`_run`) does everything that takes time: start, reload, kill.
`configure` and `announce` only store the desired state and wake it, so a burst of changes costs
one reload. Events come from the reader thread through the loop, in ExaBGP's order.

Runtime peer changes: a new file is validated (`refusals` says what becomes of one that is
refused), renamed, and SIGUSR1 sent; if ExaBGP does not say that it loaded it, the child is
killed and started again, because one failed reload poisons all later ones (and a restart under
graceful restart loses nothing).

The watchdog: a frozen ExaBGP is not covered by graceful restart; the peers would drop our
routes when the hold time ends. So a ping is always outstanding when nothing else is said,
and the child is killed long before (BGP-3), during a reload too. It counts its own ticks,
not the clock: when this whole machine stood still, ExaBGP is not to blame.

Invariant (`repairs` holds it, by a route refresh or a new session):
  BGP-7  A route that could not be read is asked for again: its peer's table does not stay behind.
Tested in tests/bgp/test_speaker_contract.py.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path

from bgp.speaker.exabgp import child as children
from bgp.speaker.exabgp import child_command, command_lines, protocol
from bgp.speaker.exabgp.backlog import Backlog
from bgp.speaker.exabgp.child_log import ChildLog
from bgp.speaker.exabgp.command_lines import Command
from bgp.speaker.exabgp.commands import Commands
from bgp.speaker.exabgp.failures import Failures
from bgp.speaker.exabgp.offers import Offers
from bgp.speaker.exabgp.refusals import Refusals
from bgp.speaker.exabgp.repairs import Repairs, asked_again
from bgp.speaker.exabgp.run_dir import RunDirectory
from bgp.speaker.exabgp.session import Ending, Penalties, Session, changed_fields, down_reason
from bgp.speaker.exabgp.watchdog import Watchdog
from bgp.speaker.interface import (
    DownReason,
    Event,
    Family,
    IPAddress,
    Peer,
    PeerDown,
    PeerOpen,
    PeerProgress,
    PeerUp,
    Route,
    SpeakerDown,
    SpeakerFailed,
    SpeakerUp,
)
from libcalico.process import tasks
from libcalico.process.tasks import ended
from libcalico.process.waiting import set_within

log = logging.getLogger(__name__)

_TICK = 0.5
_REFRESHED_PAUSE = 1.0
"""A peer is told all once more at most so often, in seconds."""


class ExaBGPSpeaker:
    """Implements `bgp.speaker.interface.Speaker`; `run_dir` must be on a tmpfs."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = RunDirectory(run_dir)
        self._wanted: dict[IPAddress, Peer] = {}
        self._applied: dict[IPAddress, Peer] = {}
        self._offers = Offers()
        self._sessions: dict[IPAddress, Session] = {}
        self._penalties = Penalties()
        self._refusals = Refusals()
        self._failures = Failures()
        self._watchdog = Watchdog(_TICK)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._commands = Commands()
        self._backlog = Backlog()
        self._child: children.Child | None = None
        self._log = ChildLog()
        self._reloading: asyncio.Task[bool] | None = None
        self._repairs = Repairs()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        self.unreadable = 0

    # -- the interface

    async def configure(self, peers: Collection[Peer]) -> None:
        self._wanted = {peer.address: peer for peer in peers}
        self._poke()

    async def announce(self, routes: Collection[Route]) -> None:
        self._command(self._offers.change(routes))

    def withhold(self, withheld: bool) -> None:
        self._command(self._offers.withhold(withheld))

    async def events(self) -> AsyncIterator[Event]:
        while True:
            if self._events.empty():
                self._backlog.taken()
            yield await self._events.get()

    def conditions(self) -> list[tuple[str, str]]:
        reports = self._penalties.conditions(asyncio.get_running_loop().time())
        reports += self._refusals.conditions(self._target()) + self._offers.conditions()
        reports += self._log.keyless.conditions()
        return reports + (self._failures.conditions() if self._wanted else [])

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended([self._task])
        if self._child is not None:
            await self._child.kill()

    @property
    def running(self) -> bool:
        """A child runs."""
        return self._child is not None

    @property
    def child_pid(self) -> int | None:
        """ExaBGP's process id, for status and tests."""
        return self._child.pid if self._child else None

    # -- the task that keeps the child in the desired state

    def _poke(self) -> None:
        if self._task is None:
            self._task = tasks.start(self._run(), "exabgp")
        self._wake.set()

    async def _run(self) -> None:
        try:
            await self._keep()
        except Exception:
            log.exception("the keeper of exabgp failed")
            self._events.put_nowait(SpeakerFailed())
        finally:
            await self._stop_reload()

    async def _keep(self) -> None:
        started = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await set_within(self._wake, _TICK)
            self._wake.clear()
            child = self._child
            if child is None:
                await self._stop_reload()
                if self._target():
                    await self._start()
                    started = loop.time()
                    self._watchdog.reset()
                continue
            self._failures.settled(loop.time() - started)
            if not self._is_as_desired(child):
                needed = bool(self._target())
                await child.kill()
                if not needed:
                    self._failures.forget()  # it has not failed: it has no peers
                continue
            self._watchdog.look(child.heard, loop.time())
            hold = min((each.hold_time for each in self._sessions.values()), default=90)
            if self._watchdog.wants_ping(hold) and self._commands.idle:
                self._command([command_lines.PING])
            if self._watchdog.frozen(hold):
                self._failures.trouble = "it gave no sign of life and was killed"
                log.error("exabgp gives no sign of life: killed", extra={"pid": child.pid})
                await child.kill()
            self._mend(loop.time())

    def _target(self) -> dict[IPAddress, Peer]:
        """The peers to hold sessions with now."""
        return self._penalties.without(self._wanted, asyncio.get_running_loop().time())

    def _is_as_desired(self, child: children.Child) -> bool:
        """Whether the child may live on; starts a reload, beside the watchdog, where one is due."""
        target = self._target()
        if not target:
            return False
        if self._reloading is not None:
            if not self._reloading.done():
                return True
            ended, self._reloading = self._reloading, None
            if not ended.result():
                return False
        if self._refusals.instead_of(target, asyncio.get_running_loop().time()) != self._applied:
            self._reloading = tasks.start(self._apply_reload(child), "exabgp-reload")
            self._reloading.add_done_callback(lambda _: self._wake.set())
        return True

    async def _stop_reload(self) -> None:
        task, self._reloading = self._reloading, None
        if task is not None:
            task.cancel()
            await ended([task])

    def _mend(self, now: float) -> None:
        """Ask once more for what could not be read, where it is time to (BGP-7)."""
        for session in self._repairs.due(self._sessions, now):
            self._command(asked_again(session, self._families(session.peer.address)))

    async def _start(self) -> None:
        if self._failures.count:
            await asyncio.sleep(self._failures.pause())
        self._failures.count += 1
        if why := self._run_dir.prepare():
            log.warning("exabgp keeps our uid, with one capability: %s", why)
        self._run_dir.empty()
        target, now = self._target(), asyncio.get_running_loop().time()
        peers = dict(self._refusals.instead_of(target, now))
        if self._failures.start_failed and peers == target:
            complaint = self._run_dir.complaint
            peers = dict(await self._refusals.usable(target, {}, complaint, now))
            if peers != target:
                self._failures.count, self._failures.trouble = 1, ""  # the reason is named
        if not peers:
            return
        self._run_dir.write(peers)
        self._commands.clear()
        self._sessions = {address: Session(peer) for address, peer in peers.items()}
        try:
            self._child = await self._run_dir.start(
                self._on_lines, self._on_end, self._backlog.admit
            )
        except children.ChildFailed as error:
            log.error("%s", error)
            self._failures.trouble, self._failures.start_failed = str(error), True
            self._events.put_nowait(SpeakerDown(str(error), self._failures.count))
            self._wake.set()
            return
        self._applied, self._failures.start_failed = peers, False
        log.info("exabgp started", extra={"pid": self._child.pid, "peers": len(peers)})
        self._events.put_nowait(SpeakerUp())

    async def _apply_reload(self, child: children.Child) -> bool:
        """Bring a running child to the desired peers; False asks for a restart (SPK-1)."""
        target, now = self._target(), asyncio.get_running_loop().time()
        complaint = self._run_dir.complaint
        peers = dict(await self._refusals.usable(target, self._applied, complaint, now))
        for subject, why in self._refusals.conditions(target):
            log.error("%s: %s", subject, why)
        if peers == self._applied:
            return True
        self._run_dir.replace(peers)
        for address in self._applied.keys() - peers.keys():
            session = self._sessions.pop(address, None)
            self._offers.down(address)
            if session is not None:
                self._commands.gone(session.number)
            if session is not None and session.up:
                self._events.put_nowait(PeerDown(address, DownReason.REMOVED))
        for address, peer in peers.items():
            session = self._sessions.setdefault(address, Session(peer))
            if session.peer != peer:
                fields = ", ".join(changed_fields(session.peer, peer))
                log.info("a peer is defined anew: %s", fields, extra={"peer": str(address)})
                session.peer = peer
        self._log.expect_reload()
        child.signal(signal.SIGUSR1)
        if not await self._log.reloaded():
            log.error("exabgp did not take the new configuration: restarting it")
            return False
        self._applied = peers
        log.info("exabgp reloaded", extra={"peers": len(peers)})
        return True

    # -- what the child says

    def _on_end(self) -> None:
        self._child = None
        idle = not self._target()
        if not idle:
            said = self._log.last_words()
            log.warning("exabgp ended; its last words: %s", said)
            self._failures.trouble = self._failures.trouble or said
        self._commands.clear()
        self._sessions = {}
        self._offers.clear()
        self._backlog.clear()
        self.restarts += 1
        self._log.ended()
        detail = "" if idle else "exabgp ended"
        self._events.put_nowait(SpeakerDown(detail, self._failures.count, idle))
        self._wake.set()

    def _on_lines(self, api: list[bytes], logged: list[bytes]) -> None:
        for line in logged:
            self._on_log(line)
        for line in api:
            said = protocol.decode(line)
            self._backlog.decoded(line)
            if isinstance(said, protocol.RawUpdate):
                self._on_update(said)
            elif isinstance(said, protocol.Ack):
                self._on_ack(said)
            elif isinstance(said, protocol.State):
                self._on_state(said)
            elif isinstance(said, protocol.Overflow):
                self._on_overflow(said)
            elif isinstance(said, protocol.Up):
                self._on_up(said)
            elif isinstance(said, protocol.Refresh):
                self._on_refresh(said)
            elif isinstance(said, protocol.Unreadable):
                self.unreadable += 1
                log.warning("exabgp said something unreadable: %s", said.why)
                self._repairs.note(self._sessions if said.peer is None else [said.peer])
                self._wake.set()
            elif isinstance(said, (PeerOpen, PeerProgress)):
                session = self._session(said.peer)
                if session is not None:
                    self._events.put_nowait(said)
                    if isinstance(said, PeerOpen) and not session.up:
                        session.opened = said
        if self._events.empty():
            self._backlog.taken()

    def _session(self, address: IPAddress) -> Session | None:
        """The session with a peer; none with one that is held down, which ExaBGP may yet dial."""
        session = self._sessions.get(address)
        if session is None or session.up or address in self._target():
            return session
        return None if address in self._wanted else session

    def _on_update(self, raw: protocol.RawUpdate) -> None:
        session = self._sessions.get(raw.peer)
        if session is None or not session.up or session.ending is not None:
            return
        events, ending, words = session.receive_update(raw)
        if words:
            log.warning("a peer's UPDATE is wrong: %s", words, extra={"peer": str(raw.peer)})
        for event in events:
            self._events.put_nowait(event)
        if ending is not None:
            self._end(session, ending)

    def _on_overflow(self, said: protocol.Overflow) -> None:
        session = self._sessions.get(said.peer)
        if session is not None and session.up and session.ending is None:
            detail = f"more than {self._backlog.limit >> 10} KiB that could not be read in time"
            self._end(session, Ending(DownReason.LIMIT, detail, 6, 8))

    def _end(self, session: Session, ending: Ending) -> None:
        """End a session for a fault of the peer's."""
        peer = session.peer
        session.ending = ending
        log.error("a session is ended: %s", ending.detail, extra={"peer": str(peer.address)})
        self._commands.urgent(command_lines.end(session.number, ending.code, ending.subcode))
        self._next_command()

    def _on_log(self, line: bytes) -> None:
        self._log.hear(line)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("exabgp: %s", child_command.readable(line))

    def _on_up(self, said: protocol.Up) -> None:
        session = self._session(said.peer)
        if session is None:
            if said.peer in self._sessions:
                self._command([command_lines.end(said.session, 6, 5)])  # "connection rejected"
            return
        if session.up:  # a new session took the old one's place without a word
            self._down(session, DownReason.CLOSED, "replaced")
        hearing = session.start(said)
        self._events.put_nowait(PeerUp(said.peer, session.peer))
        self._command(self._offers.up(said.peer, hearing))

    def _on_refresh(self, said: protocol.Refresh) -> None:
        session = self._sessions.get(said.peer)
        if session is None or session.number != said.session or said.family is None:
            return
        if said.family in session.refreshed:
            session.refreshed[said.family] = True
            return
        session.refreshed[said.family] = False
        self._command(self._offers.again(said.peer, said.family, said.enhanced))
        loop = asyncio.get_running_loop()
        loop.call_later(_REFRESHED_PAUSE, self._refreshed, session, said)

    def _refreshed(self, session: Session, said: protocol.Refresh) -> None:
        """A peer that asked again meanwhile is answered now, once."""
        same = session.up and session.number == said.session
        if same and said.family is not None and session.refreshed.pop(said.family, False):
            self._on_refresh(said)

    def _on_state(self, said: protocol.State) -> None:
        session = self._session(said.peer)
        if session is None:
            return
        if said.state == "down":
            if session.up:
                self._down(session, down_reason(said.reason), said.reason)
            else:
                self._events.put_nowait(PeerProgress(said.peer, "Idle", said.reason))
        elif said.state == "connected" and not session.up:
            self._events.put_nowait(PeerProgress(said.peer, "OpenSent"))

    def _down(self, session: Session, reason: DownReason, words: str) -> None:
        address = session.peer.address
        reason, words = session.stop(reason, words)
        self._offers.down(address)
        self._commands.gone(session.number)
        if reason is DownReason.LIMIT:
            now = asyncio.get_running_loop().time()
            pause = self._penalties.punish(session.peer, now, words)
            words = f"{words}; held down for {pause:g} s"
            self._wake.set()
        self._events.put_nowait(PeerDown(address, reason, words))

    # -- what we say to the child

    def _families(self, address: IPAddress) -> tuple[Family, ...]:
        peer = self._wanted.get(address) or self._applied.get(address)
        return peer.families if peer else ()

    def sent(self, address: IPAddress) -> int:
        """How many routes are offered to a peer now."""
        return self._offers.sent(address)

    def _command(self, commands: Iterable[Command]) -> None:
        self._commands.add(commands)
        self._next_command()

    def _next_command(self) -> None:
        while self._child is not None and (line := self._commands.next_line()) is not None:
            self._child.send(line)

    def _on_ack(self, ack: protocol.Ack) -> None:
        self._commands.answered(refused=ack is protocol.Ack.ERROR)
        self._next_command()

    @property
    def command_errors(self) -> int:
        """How many commands ExaBGP has refused."""
        return self._commands.errors
