"""The ExaBGP speaker: keeps one child in the wished state and turns its lines into events.

One task (`_run`) does everything that takes time: start, reload, kill, commands one by one.
`configure` and `announce` only store the wish and wake it, so a burst of changes costs one
reload. Events come from the reader thread through the loop, in ExaBGP's order.

Runtime peer changes: a new file is validated, renamed, and SIGUSR1 sent; if ExaBGP does not
say that it loaded it, the child is killed and started again, because one failed reload
poisons all later ones (and a restart under graceful restart loses nothing).

The watchdog: a frozen ExaBGP is not covered by graceful restart; the peers would drop our
routes when the hold time ends. So a ping is always outstanding when nothing else is said,
and the child is killed long before (BGP-3), during a reload too. It counts its own ticks,
not the clock: when this whole machine stood still, nobody is to blame.

What a peer said and nobody can read is asked for once more: by a route refresh, or by a new
session with a peer that knows none (BGP-7). Not at once again and again: what is unreadable
may stay so.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from bgp.speaker.exabgp import child as children
from bgp.speaker.exabgp import config, protocol
from bgp.speaker.interface import (
    DownReason,
    Event,
    Family,
    IPAddress,
    PathsReceived,
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

log = logging.getLogger(__name__)

_TICK = 0.5
_RELOADED = b"loaded new configuration successfully"
_NOT_RELOADED = b"could not load/reload configuration"
_RELOAD_TIMEOUT = 10.0
_BACKOFF = (0.05, 0.5, 1.0, 2.0, 5.0)
_SETTLED = 30.0
_REFRESH_PAUSE = 30.0
_RESET_PAUSE = 600.0


@dataclass
class _Session:
    """What we know of one configured peer's session."""

    up: bool = False
    offered: frozenset[Route] = frozenset()
    refreshes: bool = False


class ExaBGPSpeaker:
    """Implements `bgp.speaker.interface.Speaker`; `run_dir` must be on a tmpfs."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._configuration = run_dir / "exabgp.conf"
        self._socket = run_dir / "relay.sock"
        self._wanted: dict[IPAddress, Peer] = {}
        self._applied: dict[IPAddress, Peer] = {}
        self._routes: frozenset[Route] = frozenset()
        self._sessions: dict[IPAddress, _Session] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._commands: deque[str] = deque()
        self._flying: str | None = None
        self._child: children.Child | None = None
        self._reload: asyncio.Future[bool] | None = None
        self._reloading: asyncio.Task[bool] | None = None
        self._damaged: set[IPAddress] = set()
        self._not_before: dict[IPAddress, float] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._uid: int | None = None
        self._failures = 0
        self._last_words: deque[bytes] = deque(maxlen=6)
        self._holds: dict[IPAddress, int] = {}
        self.restarts = 0
        self.command_errors = 0
        self.unreadable = 0

    # -- the interface

    async def configure(self, peers: Collection[Peer]) -> None:
        self._wanted = {peer.address: peer for peer in peers}
        self._poke()

    async def announce(self, routes: Collection[Route]) -> None:
        self._routes = frozenset(routes)
        alike: dict[tuple[tuple[Family, ...], frozenset[Route]], list[IPAddress]] = {}
        for address, session in self._sessions.items():
            if session.up:
                key = (self._families(address), frozenset(session.offered))
                alike.setdefault(key, []).append(address)
        for addresses in alike.values():
            self._offer(addresses)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    def conditions(self) -> list[tuple[str, str]]:
        return []

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
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

    # -- the task that keeps the child as wished

    def _poke(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="exabgp")
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
        quiet, seen = 0, 0
        started = counted = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(_TICK):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            child = self._child
            if child is None:
                await self._stop_reload()
                if self._wanted:
                    await self._start()
                    started, quiet, seen = loop.time(), 0, 0
                continue
            if self._failures and loop.time() - started > _SETTLED:
                self._failures = 0
            if not self._as_wished(child):
                await child.kill()
                continue
            if child.heard != seen:
                quiet, seen = 0, child.heard
            elif loop.time() - counted >= _TICK * 0.9:  # a burst of wishes is no silence
                quiet, counted = quiet + 1, loop.time()
            if self._frozen(quiet):
                log.error("exabgp gives no sign of life: killed", extra={"pid": child.pid})
                await child.kill()
            self._mend(loop.time())

    def _as_wished(self, child: children.Child) -> bool:
        """Whether the child may live on; starts a reload, beside the watchdog, where one is due."""
        if not self._wanted:
            return False
        if self._reloading is not None:
            if not self._reloading.done():
                return True
            ended, self._reloading = self._reloading, None
            if not ended.result():
                return False
        if self._wanted != self._applied:
            self._reloading = asyncio.create_task(self._apply_reload(child), name="exabgp-reload")
            self._reloading.add_done_callback(lambda _: self._wake.set())
        return True

    async def _stop_reload(self) -> None:
        task, self._reloading = self._reloading, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _mend(self, now: float) -> None:
        """Ask once more for what could not be read, where it is time to (BGP-7)."""
        for address in sorted(self._damaged, key=int):
            session = self._sessions.get(address)
            if session is None or not session.up:
                self._damaged.discard(address)  # the next session brings everything anew
            elif now >= self._not_before.get(address, 0.0):
                self._damaged.discard(address)
                pause = _REFRESH_PAUSE if session.refreshes else _RESET_PAUSE
                self._not_before[address] = now + pause
                log.warning(
                    "a peer's paths are asked for once more",
                    extra={"peer": str(address), "reset": not session.refreshes},
                )
                if session.refreshes:
                    families = self._families(address)
                    self._command(protocol.route_refresh(address, family) for family in families)
                else:
                    self._command([protocol.reset(address)])

    def _frozen(self, quiet: int) -> bool:
        """Judge `quiet` ticks without a line; send a ping when one is due (BGP-3)."""
        asked = {address: peer.hold_time for address, peer in self._applied.items()}
        hold = min((self._holds.get(address, asked[address]) for address in asked), default=90)
        ping_after = max(1.0, min(hold / 6, 10.0)) / _TICK
        dead_after = ping_after + max(2.0, min(hold / 4, 20.0)) / _TICK
        if quiet >= ping_after and self._flying is None:
            self._command([protocol.PING])
        return quiet >= dead_after

    async def _start(self) -> None:
        if self._failures:
            await asyncio.sleep(_BACKOFF[min(self._failures, len(_BACKOFF)) - 1])
        self._failures += 1
        if self._uid is None:
            self._run_dir.parent.mkdir(parents=True, exist_ok=True)
            self._uid, why = children.speaker_id(self._run_dir)
            if why:
                log.warning("exabgp keeps our uid, with one capability: %s", why)
        children.prepare_run_dir(self._run_dir, self._uid)
        wanted = dict(self._wanted)
        self._write(self._configuration, wanted)
        self._flying = None
        self._commands.clear()
        self._sessions = {address: _Session() for address in wanted}
        try:
            self._child = await children.Child.start(
                self._configuration, self._socket, self._uid, self._on_lines, self._on_end
            )
        except children.ChildFailed as error:
            log.error("%s", error)
            self._events.put_nowait(SpeakerDown(str(error)))
            self._wake.set()
            return
        self._applied = wanted
        log.info("exabgp started", extra={"pid": self._child.pid, "peers": len(wanted)})
        self._events.put_nowait(SpeakerUp())

    async def _apply_reload(self, child: children.Child) -> bool:
        """Bring a running child to the wished peers; False asks for a restart (SPK-1)."""
        wanted = dict(self._wanted)
        uid = self._uid or 0
        fresh = self._configuration.with_suffix(".new")
        self._write(fresh, wanted)
        if complaint := await children.validate(fresh, uid):
            log.error("exabgp refuses the new configuration: %s", complaint)
            return False
        fresh.rename(self._configuration)
        for address in self._applied.keys() - wanted.keys():
            session = self._sessions.pop(address, None)
            if session is not None and session.up:
                self._events.put_nowait(PeerDown(address, DownReason.REMOVED))
        for address in wanted.keys() - self._applied.keys():
            self._sessions.setdefault(address, _Session())
        self._reload = asyncio.get_running_loop().create_future()
        child.signal(signal.SIGUSR1)
        try:
            loaded = await asyncio.wait_for(self._reload, _RELOAD_TIMEOUT)
        except TimeoutError:
            loaded = False
        finally:
            self._reload = None
        if not loaded:
            log.error("exabgp did not take the new configuration: restarting it")
            return False
        self._applied = wanted
        log.info("exabgp reloaded", extra={"peers": len(wanted)})
        return True

    def _write(self, path: Path, peers: dict[IPAddress, Peer]) -> None:
        text = config.render(peers.values(), children.relay_command(self._socket))
        children.write_private(path, text, self._uid or 0)

    # -- what the child says

    def _on_end(self) -> None:
        self._child = None
        if self._wanted:
            said = " | ".join(children.readable(line) for line in self._last_words)
            log.warning("exabgp ended; its last words: %s", said)
        self._last_words.clear()
        self._flying = None
        self._commands.clear()
        self._sessions = {}
        self.restarts += 1
        if self._reload is not None and not self._reload.done():
            self._reload.set_result(False)
        self._events.put_nowait(SpeakerDown("exabgp ended"))
        self._wake.set()

    def _on_lines(self, api: list[bytes], logged: list[bytes]) -> None:
        for line in logged:
            self._on_log(line)
        for line in api:
            said = protocol.decode(line)
            if isinstance(said, protocol.Ack):
                self._on_ack(said)
            elif isinstance(said, protocol.State):
                self._on_state(said)
            elif isinstance(said, protocol.Unreadable):
                self.unreadable += 1
                log.warning("exabgp said something unreadable: %s", said.why)
                self._damaged |= self._sessions.keys() if said.peer is None else {said.peer}
                self._wake.set()
            elif isinstance(said, (PathsReceived, PeerOpen, PeerProgress)):
                if said.peer in self._sessions:
                    self._events.put_nowait(said)
                    if isinstance(said, PeerOpen):
                        self._holds[said.peer] = self._negotiated(said)
                        self._sessions[said.peer].refreshes = said.route_refresh
            elif said is not None:
                self._events.put_nowait(said)

    def _negotiated(self, said: PeerOpen) -> int:
        """The hold time of a session: the smaller of the two wishes (RFC 4271 4.2)."""
        peer = self._applied.get(said.peer)
        return min(said.hold_time or 90, peer.hold_time if peer else 90)

    def _on_log(self, line: bytes) -> None:
        if self._reload is not None and not self._reload.done():
            if _RELOADED in line:
                self._reload.set_result(True)
            elif _NOT_RELOADED in line:
                self._reload.set_result(False)
        self._last_words.append(line)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("exabgp: %s", children.readable(line))

    def _on_state(self, said: protocol.State) -> None:
        session = self._sessions.get(said.peer)
        if session is None:
            return
        if said.state == "up":
            if session.up:  # a new session took the old one's place without a word
                self._events.put_nowait(PeerDown(said.peer, DownReason.CLOSED, "replaced"))
            session.up, session.offered = True, frozenset()
            self._events.put_nowait(PeerUp(said.peer))
            self._offer([said.peer])
            self._command(
                protocol.end_of_rib(said.peer, family) for family in self._families(said.peer)
            )
        elif said.state == "down":
            if session.up:
                session.up = False
                reason = down_reason(said.reason)
                self._events.put_nowait(PeerDown(said.peer, reason, said.reason))
            else:
                self._events.put_nowait(PeerProgress(said.peer, "Idle", said.reason))
        elif said.state == "connected" and not session.up:
            self._events.put_nowait(PeerProgress(said.peer, "OpenSent"))

    # -- what we say to the child

    def _families(self, address: IPAddress) -> tuple[Family, ...]:
        peer = self._wanted.get(address) or self._applied.get(address)
        return peer.families if peer else ()

    def _wish(self, address: IPAddress) -> frozenset[Route]:
        """What a peer should be offered."""
        families = self._families(address)
        return frozenset(
            route
            for route in self._routes
            if Family.of(route.prefix) in families
            and (route.peers is None or address in route.peers)
        )

    def _offer(self, addresses: list[IPAddress]) -> None:
        """Queue what peers that were offered the same lack or have too much (SPK-2).

        Peers that need the same change share the lines: in a mesh, that is nearly all.
        """
        changes: dict[tuple[frozenset[Route], frozenset[Route]], list[IPAddress]] = {}
        for address in addresses:
            session, wish = self._sessions[address], self._wish(address)
            fresh, gone = wish - session.offered, session.offered - wish
            changes.setdefault((fresh, gone), []).append(address)
            session.offered = wish
        for (fresh, gone), peers in changes.items():
            replaced = {route.prefix for route in fresh}
            for family in Family:
                lost = [route.prefix for route in gone if Family.of(route.prefix) is family]
                self._command(
                    protocol.withdraw([net for net in lost if net not in replaced], peers)
                )
                new = [route for route in fresh if Family.of(route.prefix) is family]
                self._command(protocol.announce(new, peers))

    def sent(self, address: IPAddress) -> int:
        """How many routes are offered to a peer now."""
        session = self._sessions.get(address)
        return len(session.offered) if session and session.up else 0

    def _command(self, lines: Iterable[str]) -> None:
        self._commands.extend(lines)
        self._next_command()

    def _next_command(self) -> None:
        if self._flying is None and self._commands and self._child is not None:
            self._flying = self._commands.popleft()
            self._child.send(self._flying)

    def _on_ack(self, ack: protocol.Ack) -> None:
        if ack is protocol.Ack.ERROR:
            self.command_errors += 1
            log.warning("exabgp refused a command: %.200s", self._flying)
        self._flying = None
        self._next_command()


def down_reason(words: str) -> DownReason:
    """ExaBGP's reason for a `down`, by its beginning: the words occur elsewhere too."""
    if words.startswith("notification received ("):
        return DownReason.NOTIFICATION_RECEIVED
    if words.startswith("notification sent ("):
        return DownReason.NOTIFICATION_SENT
    return DownReason.CLOSED
