"""The one reader of the packets that rules tell of, and the rules' change when it is wanted.

NFLOG groups have one reader in a network namespace (`linux.nflog`). Followers of denied packets
(`felix.reports.drops`) and flow logs (`felix.flows`) share it here, so that neither finds the
groups taken by the other. Rules tell as much as any of them needs; without a listener there is no
such rule, no socket and no cost.

Invariants:
  NFR-1  One felix has one reader at most, and every listener hears every packet from its joining
         to its leaving, or that it was lost.
  NFR-2  A flood takes a bounded share of the main loop (`felix.rationed`). What the kernel
         drops meanwhile is counted.
Tested in tests/felix/agent/test_telling.py and, with a kernel, tests/felix/kernel/test_drops.py
and test_flows.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from felix.dataplane.loop import Dataplane
from felix.rationed import Rationed
from felix.rules import nflog_prefix
from felix.rules.nflog_prefix import Tell
from libcalico.process.tasks import start
from linux.errors import KernelError
from linux.nflog import Logged, Reader

GROUPS = (nflog_prefix.INGRESS_GROUP, nflog_prefix.EGRESS_GROUP)
_PATIENCE = 30.0
"""Seconds to wait until rules that tell are written; then their counts are read all the same."""
Change = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


class Listener(Protocol):
    """A receiver of the packets that rules tell of."""

    def heard(self, packets: Sequence[Logged], lost: int) -> None:
        """Take packets; `lost` were told of before them and did not arrive."""

    def deaf(self, why: str) -> None:
        """Packets cannot be read any more; the listener is forgotten."""


class Telling:
    """The listeners of one felix.

    `across` runs a change that writes the rules anew, and keeps their counts
    (`felix.reports.denials`).
    """

    def __init__(self, plane: Dataplane, across: Callable[[Change], Awaitable[None]]) -> None:
        self._plane, self._across = plane, across
        self._listeners: dict[Listener, Tell] = {}
        self._reader: Reader | None = None
        self._switching: asyncio.Task[None] | None = None
        self._turned = asyncio.Event()
        self._rationed: Rationed | None = None

    @property
    def tells(self) -> Tell:
        """Which packets the kernel's rules tell of; `NOTHING` while they are being written."""
        rules = self._plane.rules
        return rules.tells if not self._plane.state.failures else Tell.NOTHING

    def join(self, listener: Listener, tell: Tell) -> None:
        """Let a listener hear packets. Raises `KernelError`, in words, where they cannot be read.

        Its packets begin when the rules tell (`tells`).
        """
        if self._reader is None:
            try:
                self._reader = Reader(GROUPS)
            except KernelError as error:
                more = ""
                if error.errno in (errno.EBUSY, errno.EPERM):
                    # Kernels say EPERM where another socket has the group.
                    more = "another program reads them, such as Calico's felix or ulogd"
                raise KernelError(error.errno, "packets that rules tell of", more) from error
            self._rationed = Rationed(self._reader.fileno(), self._arrived)
        self._listeners[listener] = tell
        self._follow()

    def leave(self, listener: Listener) -> None:
        """Forget a listener; without any the groups are given back and rules stop telling."""
        if self._listeners.pop(listener, None) is not None:
            self._follow()

    def close(self) -> None:
        """Felix ends; the rules stay as they are."""
        self._listeners.clear()
        self._give_back()
        if self._switching is not None:
            self._switching.cancel()

    def published(self) -> None:
        """Follow a turn of the main loop."""
        self._turned.set()

    # -- rules ---------------------------------------------------------------------------------

    @property
    def _wanted(self) -> Tell:
        return max(self._listeners.values(), default=Tell.NOTHING)

    def _follow(self) -> None:
        if not self._listeners:
            self._give_back()
        if not self._plane.rules.prepared:
            # The first rules that are written tell already: a restart writes nothing anew.
            self._plane.rules.tell(self._wanted)
        if self._switching is None or self._switching.done():
            self._switching = start(self._follow_listeners(), "telling of packets")

    async def _follow_listeners(self) -> None:
        """Let the rules tell what is wanted, and no longer."""
        rules = self._plane.rules
        while rules.telling is not self._wanted:
            await self._across(partial(self._rewritten, self._wanted))

    async def _rewritten(self, tell: Tell) -> None:
        """Wait until the rules are as desired, `_PATIENCE` at most where they are refused."""
        rules = self._plane.rules
        rules.tell(tell)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while rules.tells is not tell or self._plane.state.failures:
                    self._turned.clear()
                    await self._turned.wait()

    # -- packets -------------------------------------------------------------------------------

    def _give_back(self) -> None:
        if self._rationed is not None:
            self._rationed.close()
            self._rationed = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _arrived(self) -> int:
        reader = self._reader
        assert reader is not None
        try:
            packets = reader.read()
        except KernelError as error:
            log.warning("packets that rules tell of cannot be read any more: %s", error)
            listeners = list(self._listeners)
            self._listeners.clear()
            self._follow()
            for listener in listeners:
                listener.deaf(str(error))
            return 0
        lost, reader.lost = reader.lost, 0
        if packets or lost:
            for listener in list(self._listeners):
                listener.heard(packets, lost)
        return len(packets)
