"""When ExaBGP looks at what: at a peer that has something to do, and at nothing else.

ExaBGP gives every peer a turn a hundred times a second. A connection that was closed stays in its
poller, which then never waits. That is processor time for nothing, most of it while a hundred nodes
start at once.

Here a peer rests until something arrives for it, until a timer of its own, or until other code
wakes it (`wake`). With all of them at rest the process sleeps: a hundred quiet sessions take 1.3 %
of a processor, and 7 % without this module (measured by test_sending.py,
test_sessions_that_say_nothing_cost_nothing).

Applied by `patches.apply`; proved in tests/bgp/test_sending.py. Standard library and ExaBGP only.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from functools import wraps

from exabgp.logger import log
from exabgp.reactor import keepalive, loop
from exabgp.reactor import peer as peers
from exabgp.reactor.asynchronous import ASYNC

from bgp.speaker.exabgp.upstream import clock, sending
from bgp.speaker.exabgp.upstream.exabgp_types import (
    Asynchronous,
    KeepAliveTimer,
    Peer,
    Reactor,
    Session,
)

LONGEST_REST = 1.0
"""Seconds: wall clocks may be set, and a forgotten `wake` delays a peer by this much at most."""


_ARRIVALS_SECONDS = 0.02
_HANDSHAKE_REST = 0.1
_SLEEP = 0.1
_BROKEN = select.POLLHUP | select.POLLERR


def wake(peer: Peer) -> None:
    """The peer has its turn as soon as may be."""
    peer.rests_until = 0.0


def resting() -> None:
    """A peer has a turn when it has something to do; timers stay exact.

    Upstream: every peer has a turn a hundred times a second.
    Fails without it: none; see above for what it saves.
    Remove when: ExaBGP waits for events instead of asking every peer.
    """
    turn = peers.Peer.run

    def run(self: Peer) -> object:
        action = turn(self)
        now = time.monotonic()
        self.rests_until = now + _rest(self, now) if action == peers.ACTION.LATER else 0.0
        if (descriptor := self.socket()) >= 0:
            self.reactor.__dict__.setdefault("resting", {})[descriptor] = self
        return action

    def active(self: Reactor) -> set[str]:
        now = time.monotonic()
        ready, first = set(), now + _SLEEP
        for key, peer in self._peers.items():
            until = peer.__dict__.get("rests_until", 0.0)
            if now < until:
                first = min(first, until)
            elif peer.stopping() or peer.proto or not peer.neighbor["passive"]:
                ready.add(key)
        self.sleeps_until = 0.0 if ready else first
        return ready

    peers.Peer.run, loop.Reactor.active_peers = run, active
    for name in ("stop", "reestablish", "reconfigure", "teardown", "handle_connection", "_reset"):
        setattr(peers.Peer, name, _waking(getattr(peers.Peer, name)))


def _waking(method: Callable[..., object]) -> Callable[..., object]:
    @wraps(method)
    def run(self: Peer, *args: object, **named: object) -> object:
        wake(self)
        return method(self, *args, **named)

    return run


def _rest(peer: Peer, now: float) -> float:
    """For how many seconds a peer has nothing to do unless something arrives."""
    if peer.proto is None:
        if peer.generator is None:  # it waits before it dials
            return float(min(max(0.0, peer._delay._time - clock.steady()), LONGEST_REST))
        return float(max(0.0, min(getattr(peer, "dials_at", 0.0) - now, LONGEST_REST)))
    if not peer.established():
        return _HANDSHAKE_REST
    if peer.proto.connection is None or sending.outbox(peer.proto.connection):
        return 0.0
    rest = LONGEST_REST
    timer = getattr(peer.proto, "keepalives", None)
    if timer is None:
        return 0.0
    if timer.keepalive:
        rest = min(rest, timer.last_sent + timer.keepalive - clock.steady())
    if (hold := peer.recv_timer).holdtime:
        rest = min(rest, getattr(hold, "last_heard", now) + hold.holdtime - now)
    return float(max(0.0, rest))


def keepalive_timers() -> None:
    """A session's timer can be asked when it is due.

    Upstream: the timer is a local variable of the session's generator.
    Fails without it: none; see above for what it saves.
    Remove when: `resting` goes.
    """
    start = keepalive.KA.__init__

    def init(self: KeepAliveTimer, session: str, proto: Session) -> None:
        start(self, session, proto)
        proto.keepalives = self.send_timer

    keepalive.KA.__init__ = init


def waiting() -> None:
    """The process sleeps until there is something to do.

    A connection that arrives at a listening socket wakes it, and one that was closed does not.

    Upstream: a closed connection stays in the poller, which then never waits; each turn in which a
        connection arrives starts an event loop of asyncio.
    Fails without it: none; see above for what it saves.
    Remove when: the poller holds open and listening sockets alone.
    """

    def arrivals(self: Asynchronous) -> bool:
        end = time.monotonic() + _ARRIVALS_SECONDS
        while self._async and time.monotonic() < end:
            _, work = self._async[0]
            try:
                next(work)
            except StopIteration:
                self._async.popleft()
            except Exception as error:  # noqa: BLE001 - of ExaBGP's own work: told, and the others go on
                self._async.popleft()
                text = f"a connection failed: {type(error).__name__}: {error}"
                log.error(lambda text=text: text, "reactor")
        return bool(self._async)

    def wait_for_io(self: Reactor, milliseconds: int) -> Iterator[object]:
        _watch_listeners(self)
        if milliseconds and not self.asynchronous._async and not self.signal.received:
            until = getattr(self, "sleeps_until", 0.0)
            milliseconds = max(milliseconds, round((until - time.monotonic()) * 1000))
        else:
            milliseconds = 0
        resting, broken = self.__dict__.setdefault("resting", {}), False
        others = self.listening | set(self.processes.fds)
        for descriptor, event in self._poller.poll(milliseconds):
            peer = resting.get(descriptor)
            if peer is not None and peer.socket() == descriptor:
                wake(peer)
                broken |= bool(event & _BROKEN)
            elif descriptor not in others:  # what it was has been closed
                self._poller.unregister(descriptor)
                resting.pop(descriptor, None)
        if broken:
            self._prevent_spin()
        return iter(())

    ASYNC.run, loop.Reactor._wait_for_io = arrivals, wait_for_io


def _watch_listeners(reactor: Reactor) -> None:
    listening = {each.fileno() for each in reactor.listener._sockets} if reactor.listener else set()
    for descriptor in listening - reactor.__dict__.setdefault("listening", set()):
        reactor._poller.register(descriptor, select.POLLIN)
    reactor.listening = listening


def quiet() -> None:
    """A session's counters are not logged, and a line for debugging costs one call.

    Upstream: five lines are logged for each session, two fifths of what a quiet one costs; a line
        that is not wanted is found to be so after four calls.
    Fails without it: none; see above for what it saves.
    Remove when: the log of statistics, and each level, can be switched off before a line is made.
    """
    peers.Stats.changed_statistics = lambda _: iter(())
    log.debug = lambda *_, **__: None


def apply() -> None:
    """All of them, after those that change a turn."""
    resting()
    keepalive_timers()
    waiting()
    quiet()
