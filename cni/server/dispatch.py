"""Which function serves which verb, for the plugin `calico` and for `calico-ipam`.

Tested in tests/cni/test_daemon_add.py, tests/cni/test_ipam_plugin.py and tests/cni/test_garbage.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from cni.node.daemon_context import DaemonContext
from cni.request.attachment import attachment_of
from cni.request.errors import CNIError, Code
from cni.request.request import Command, Request
from cni.request.result import Result
from cni.request.result_encoding import encode
from cni.socket import call_log
from cni.socket.caller import MARGIN_SECONDS, Caller
from cni.socket.container_locks import ContainerLocks
from cni.socket.trace import Trace
from cni.verbs import add, check, delete, garbage, ipam_plugin, status
from cni.verbs.delegation import Delegate, is_delegated

LONGEST_SECONDS = 120.0
"""No caller gets more, even by its own deadline: the executable itself gives up after 60."""
IPAM_PLUGIN = "calico-ipam"


class Dispatcher:
    """Serves the verbs of one daemon; the caller holds the container's lock."""

    def __init__(self, context: DaemonContext, locks: ContainerLocks) -> None:
        self._context, self._locks = context, locks
        self.collect: Callable[[str, Iterable[str]], None] = lambda _network, _valid: None
        """Called for every GC: the network, and the containers with valid attachments."""
        self.watching: list[set[str]] = []
        """For each GC in progress the containers that have called since it began."""
        self._room = status.Room(away=time.monotonic())

    async def dispatch(
        self,
        caller: Caller,
        request: Request,
        descriptor: int | None,
        trace: Trace,
        deadline: float,
    ) -> str:
        """Serve one call; returns what goes to stdout. Raises CNIError."""
        call_log.set_level(request.config.log_level)
        seconds = max(min(deadline, LONGEST_SECONDS) - MARGIN_SECONDS, MARGIN_SECONDS)
        match request.command:
            case Command.ADD:
                result = await self._add(caller, request, descriptor, trace, seconds)
                return encode(result, request.config.result_version).decode()
            case Command.DEL:
                # Shielded: a DEL goes on when the executable goes away.
                work = self._context.keep(self.delete(request, trace, caller, descriptor))
                await asyncio.shield(work)
            case Command.CHECK if request.plugin == IPAM_PLUGIN:
                await ipam_plugin.check(self._context, request, trace, seconds)
            case Command.CHECK:
                await check.check(self._context, request, descriptor, trace, seconds, caller)
            case Command.STATUS:
                await status.status(self._context, request, caller, self._room)
            case Command.GC:
                await self._collect(caller, request)
            case _:
                raise CNIError(Code.INVALID_ENVIRONMENT, f"unknown CNI_COMMAND: {request.command}")
        return ""

    async def _add(
        self,
        caller: Caller,
        request: Request,
        descriptor: int | None,
        trace: Trace,
        seconds: float,
    ) -> Result:
        if request.plugin == IPAM_PLUGIN:
            return await ipam_plugin.add(self._context, request, trace, seconds)
        if descriptor is None:
            raise CNIError(
                Code.INVALID_ENVIRONMENT, "the network namespace did not reach the daemon"
            )
        return await add.add(self._context, request, descriptor, trace, seconds, caller)

    async def delete(
        self,
        request: Request,
        trace: Trace,
        caller: Caller | None = None,
        descriptor: int | None = None,
    ) -> None:
        """Serve one DEL, also that which undoes an ADD."""
        if request.plugin == IPAM_PLUGIN:
            await ipam_plugin.delete(self._context, request, trace)
        else:
            await delete.delete(self._context, request, trace, caller, descriptor)

    async def _collect(self, caller: Caller, request: Request) -> None:
        """GC: our own part first, then the delegate's (GC-05)."""
        called = set(self._locks.busy)
        self.watching.append(called)
        try:
            await garbage.collect(self._context, self._locks.acquire, called, request)
        finally:
            # This very set: that of another GC may hold the same.
            self.watching = [each for each in self.watching if each is not called]
            if (valid := request.config.valid_attachments) is not None:
                # The collector looks twice, and so also finds what was half made before.
                self.collect(request.config.name, {one.containerID for one in valid})
            if request.plugin != IPAM_PLUGIN and is_delegated(request):
                await Delegate(caller, request).collect()

    async def replay(self, request: Request) -> None:
        """Finish a DEL of the journal; raises while it cannot be done."""
        if request.plugin == IPAM_PLUGIN:
            await ipam_plugin.release(self._context, attachment_of(request, self._context.node))
        else:
            await delete.replay(self._context, request)
