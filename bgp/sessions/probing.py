"""Finds out why sessions are down: waits, tries a TCP connection now and then, asks the kernel.

ExaBGP does not say why a connection failed, and TCP-MD5 says nothing at all. A session that has
been down and silent for some seconds is tried once from the address it dials from, without its
password, and reset at once; then again after pauses that grow to five minutes. Where the
peer has spoken (a NOTIFICATION about our OPEN) nothing is tried: a connection that ends at once
could only disturb it. What follows from all that is `bgp.sessions.diagnosis`.

Tested in tests/bgp/test_probing.py with real refusals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bgp.peering.planned import PlannedPeer
from bgp.sessions.diagnosis import Diagnosis, diagnose
from bgp.sessions.evidence import Evidence, KeyDrops, Probe, Reached, notification
from bgp.sessions.sessions import Sessions
from bgp.sessions.tcp_probe import probe
from bgp.speaker.interface import IPAddress
from libcalico.process import tasks

log = logging.getLogger(__name__)

LOOK = 1.0
QUIET = 6.0
"""How long a session must be down without a word before it is tried."""
PAUSES = (15.0, 30.0, 60.0, 120.0, 300.0)
AT_ONCE = 8
NETSTAT = Path("/proc/self/net/netstat")


class KeyCounters:
    """The kernel's counters of TCP-MD5 (`TCPMD5*` in /proc/net/netstat of this namespace)."""

    def __init__(self, file: Path = NETSTAT) -> None:
        self._file = file
        self._last = self._read()

    def _read(self) -> tuple[int, int]:
        names: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError):
            lines = self._file.read_text().splitlines()
            for head, values in zip(lines[::2], lines[1::2], strict=False):
                if head.startswith("TcpExt:"):
                    numbers = map(int, values.split()[1:])
                    names = dict(zip(head.split()[1:], numbers, strict=False))
        wrong = names.get("TCPMD5NotFound", 0) + names.get("TCPMD5Failure", 0)
        return wrong, names.get("TCPMD5Unexpected", 0)

    def since_last(self) -> KeyDrops:
        """The segments dropped since the last call."""
        before, self._last = self._last, self._read()
        return KeyDrops(self._last[0] > before[0], self._last[1] > before[1])


@dataclass
class _Watched:
    """A session that is down. Times are seconds, monotonic."""

    planned: PlannedPeer
    next_try: float
    tries: int = 0
    probe: Probe | None = None
    wrong_key_until: float = 0.0
    stray_key_until: float = 0.0
    running: asyncio.Task[None] | None = None


class SessionProber:
    """Keeps `diagnoses`, of each session that has one, up to date."""

    def __init__(self, sessions: Sessions, changed: Callable[[], None]) -> None:
        self._sessions, self._changed = sessions, changed
        self._watched: dict[IPAddress, _Watched] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self.diagnoses: dict[IPAddress, Diagnosis] = {}

    async def run(self) -> None:
        """Look every second, until cancelled."""
        counters = KeyCounters()
        try:
            while True:
                self.look(time.monotonic(), counters.since_last())
                await asyncio.sleep(LOOK)
        finally:
            for watched in self._watched.values():
                _stop(watched)

    def look(self, now: float, drops: KeyDrops) -> None:
        """Start the probes that are due, and diagnose all sessions again."""
        planned = self._sessions.planned
        for address in list(self._watched):
            known = planned.get(address)
            if known is None or known.peer != self._watched[address].planned.peer:
                _stop(self._watched.pop(address))
        diagnoses = {}
        for address, each in planned.items():
            diagnosis = diagnose(self._evidence(each, now, drops))
            if diagnosis is not None:
                diagnoses[address] = diagnosis
        if diagnoses != self.diagnoses:
            for address in diagnoses.keys() - self.diagnoses.keys():
                log.warning("%s", diagnoses[address].text, extra={"peer": str(address)})
            self.diagnoses = diagnoses
            self._changed()

    def conditions(self) -> list[tuple[str, str]]:
        """For an operator: (object, reason)."""
        return [(f"BGP peer {address}", each.text) for address, each in self.diagnoses.items()]

    def _evidence(self, planned: PlannedPeer, now: float, drops: KeyDrops) -> Evidence:
        address = planned.peer.address
        status = self._sessions.status[address]
        opened = self._sessions.helper.peer_open(address)
        if status.up or not self._sessions.speaker_up:
            if (watched := self._watched.pop(address, None)) is not None:
                _stop(watched)
            return Evidence(planned, up=status.up, error=status.error, opened=opened)
        watched = self._watched.get(address)
        if watched is None:
            watched = self._watched[address] = _Watched(planned, now + QUIET)
        if drops.wrong:
            watched.wrong_key_until = now + PAUSES[-1]
        if drops.unexpected:
            watched.stray_key_until = now + PAUSES[-1]
        ended = notification(status.notice) if status.notice_stands else None
        about_us = ended is not None and ended.code in (2, 6)
        if about_us or now < status.noticed + QUIET:
            watched.probe, watched.tries = None, 0
            watched.next_try = now + QUIET
        elif status.info != "OpenSent" and now >= watched.next_try and watched.running is None:
            watched.next_try = now + PAUSES[min(watched.tries, len(PAUSES) - 1)]
            watched.tries += 1
            watched.running = tasks.start(self._try(watched), f"probe of {address}")
        return Evidence(
            planned,
            error=status.error,
            opened=opened,
            probe=watched.probe,
            drops=self._drops(watched, now),
            waiting=status.info == "OpenSent" and now > status.entered + QUIET,
        )

    def _drops(self, watched: _Watched, now: float) -> KeyDrops:
        """The kernel's counts, as far as they can be this session's.

        They do not say whose segments were dropped: one of a host that answers nothing counts
        only where no other session may be meant.
        """
        drops = KeyDrops(watched.wrong_key_until > now, watched.stray_key_until > now)
        if drops == KeyDrops():
            return drops
        keyed = bool(watched.planned.peer.password)
        alike = [
            each
            for each in self._watched.values()
            if _silent(each) and bool(each.planned.peer.password) == keyed
        ]
        answers = watched.probe is not None and watched.probe.host_answers
        if not answers and len(alike) > 1:
            return KeyDrops()
        return drops

    async def _try(self, watched: _Watched) -> None:
        try:
            async with self._room:
                watched.probe = await probe(watched.planned.peer)
        finally:
            watched.running = None


def _silent(watched: _Watched) -> bool:
    return watched.probe is not None and watched.probe.reached is Reached.SILENT


def _stop(watched: _Watched) -> None:
    if watched.running is not None:
        watched.running.cancel()
