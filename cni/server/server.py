"""The socket's side of the daemon: one task a connection, one request a connection.

A request is checked again (the executable may be of another release), waits for its container's
lock, is served, and answered. Calls of one container are served one after another; at most
`CONCURRENCY` calls run at a time. When the executable goes away before its answer, an ADD is
cancelled and undone; when it says that it could not deliver the answer, an ADD is undone too.

Invariants (tests/cni/test_daemon_faults.py):
  CNI-40  A descriptor that came with a request is closed, however the request ends.
  CNI-41  Calls of one container never overlap; a stuck peer holds up no other.
  CNI-42  Every failure becomes a CNI error object; none of them ends the daemon.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from cni.node.daemon_context import DaemonContext
from cni.request.errors import CNIError, Code, error_object
from cni.request.request import Command, Request, parse_request, request_version
from cni.server.dispatch import Dispatcher
from cni.socket import protocol
from cni.socket.caller import Caller
from cni.socket.channel import Channel
from cni.socket.container_locks import ContainerLocks
from cni.socket.trace import IN_FLIGHT, Trace, Traces

log = logging.getLogger(__name__)

CONCURRENCY = 64
COLLECTIONS = 4
"""How many GCs run at a time, beside the other calls."""
REQUEST_SECONDS = 10.0
GOODBYE_SECONDS = 5.0


class Server:
    """Serves connections for one daemon."""

    def __init__(
        self,
        context: DaemonContext,
        release: str,
        traces: Traces,
        refused: Callable[[Request, CNIError], None] = lambda _request, _error: None,
    ) -> None:
        """`refused` is called for every call that failed; it must not fail nor wait."""
        self._release, self._traces = release, traces
        self._refused = refused
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._collecting = asyncio.Semaphore(COLLECTIONS)
        self._locks = ContainerLocks()
        self.called: set[str] | None = None
        """Containers with a call since the collector began to watch (CNI-72)."""
        self.dispatcher = Dispatcher(context, self._locks)

    @property
    def busy(self) -> frozenset[str]:
        """The containers with a call in progress or waiting."""
        return self._locks.busy

    def container_lock(self, container_id: str) -> AbstractAsyncContextManager[None]:
        """Wait until no other call of this container runs (CNI-41); "" is no container."""
        return self._locks.acquire(container_id)

    async def handle(self, channel: Channel) -> None:
        """One connection, from hello to goodbye."""
        descriptor: int | None = None
        try:
            await channel.send(protocol.Hello("daemon", release=self._release))
            until = asyncio.get_running_loop().time() + REQUEST_SECONDS
            hello = await channel.receive(until)
            if hello is None or not isinstance(hello[0], protocol.Hello):
                return
            if hello[0].version != protocol.VERSION:
                log.warning("an executable speaks version %d", hello[0].version)
                return
            received = await channel.receive(until)
            if received is None:
                return
            message, descriptor = received
            if not isinstance(message, protocol.Request):
                return
            channel.asked = True
            await self._serve(Caller(channel), message, descriptor)
        except (TimeoutError, OSError, protocol.ProtocolError) as error:
            log.warning("a connection ended: %s", str(error) or "nothing came in time")
        finally:
            if descriptor is not None:
                os.close(descriptor)

    async def _serve(
        self, caller: Caller, message: protocol.Request, descriptor: int | None
    ) -> None:
        """Serve a request and answer it; an ADD whose executable went away gets no answer."""
        task = asyncio.current_task()
        assert task is not None
        working, left = message.env.get("CNI_COMMAND") == Command.ADD, False

        def gone() -> None:
            nonlocal left
            if working and not left:
                left = True
                log.info("the executable is gone: its ADD is undone")
                task.cancel()

        caller.attend(gone)
        command = message.env.get("CNI_COMMAND", "")
        trace = Trace(command if command in Command.__members__ else "other")
        try:
            request, result = await self._answer(caller, message, descriptor, trace)
        except asyncio.CancelledError:
            if not left or task.uncancel():
                raise
            return
        working = False
        delivered = await self._deliver(caller, result, trace)
        if request and request.command is Command.ADD and result.exit == 0 and not delivered:
            await self._take_back(request)

    async def _deliver(self, caller: Caller, result: protocol.Result, trace: Trace) -> bool:
        """Send the result, note it, and hear whether it reached the runtime."""
        try:
            await caller.channel.send(result)
        except (OSError, protocol.ProtocolError):
            return False
        finally:
            self._traces.record(trace)
        return await caller.goodbye(GOODBYE_SECONDS)

    async def _take_back(self, request: Request) -> None:
        log.warning("a result was not delivered: the ADD is undone")
        async with self.container_lock(request.container_id):
            with suppress(CNIError):
                await self.dispatcher.delete(request, Trace("UNDO"))

    async def _answer(
        self, caller: Caller, message: protocol.Request, descriptor: int | None, trace: Trace
    ) -> tuple[Request | None, protocol.Result]:
        request: Request | None = None
        try:
            request = parse_request(message.argv0, message.env, message.stdin)
            trace.subject = container = _container(request)
            for seen in (self.called, *self.dispatcher.watching):
                if seen is not None:
                    seen.add(container)
            # The lock first: a call that waits for it takes no place from other containers. A GC
            # waits for locks while it works, so it has a place that no lock's holder waits for.
            places = self._collecting if request.command is Command.GC else self._slots
            async with self.container_lock(container), places:
                IN_FLIGHT.inc()
                trace.mark("request")
                try:
                    stdout = await self.dispatcher.dispatch(
                        caller, request, descriptor, trace, message.deadline
                    )
                finally:
                    IN_FLIGHT.inc(by=-1)
            result = protocol.Result(0, stdout)
        except CNIError as error:
            trace.code = error.code
            result = protocol.Result(1, _failure(error, message))
            log.warning("%s failed: %s", trace.command, error, extra={"container": trace.subject})
            if request is not None:
                self._refused(request, error)
        except Exception as error:
            trace.code = Code.INTERNAL
            log.exception("%s failed unexpectedly", trace.command)
            internal = CNIError(Code.INTERNAL, f"internal error: {type(error).__name__}")
            result = protocol.Result(1, _failure(internal, message))
        trace.mark("answer")
        return request, result

    async def replay(self, record: protocol.PendingDelete, file: Path) -> None:
        """Finish one record of the journal; raises while it cannot be done.

        `file` is gone if an ADD of this attachment succeeded while the record waited.
        """
        request = parse_request(record.argv0, {**record.env, "CNI_COMMAND": "DEL"}, record.stdin)
        async with self.container_lock(request.container_id), self._slots:
            if not file.exists():
                return
            await self.dispatcher.replay(request)


def _container(request: Request) -> str:
    """The container that a call is about; GC and STATUS are about none, even if they name one."""
    about_none = request.command in (Command.GC, Command.STATUS)
    return "" if about_none else request.container_id


def _failure(error: CNIError, message: protocol.Request) -> str:
    return error_object(error, request_version(message.stdin)).decode()
