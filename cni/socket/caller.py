"""The executable at the other end of a call: it runs plugins for us and says how the answer went.

Tested in tests/cni/test_daemon_faults.py and tests/cni/test_delegation.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from cni.request.errors import CNIError, Code
from cni.socket import protocol
from cni.socket.channel import Channel

MARGIN_SECONDS = 1.0
"""What an executable needs beside the time that it gives a plugin or the daemon."""


class Caller:
    """The executable of one call."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._runs: dict[int, asyncio.Future[protocol.ExecResult]] = {}
        self._gone = False
        self._delivered: bool | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._left: Callable[[], None] = lambda: None

    async def run(self, message: protocol.Exec) -> protocol.ExecResult:
        """Have the executable run a plugin; raises CNIError 11 when it goes away meanwhile."""
        number = len(self._runs) + 1
        ended = self._runs[number] = asyncio.get_running_loop().create_future()
        try:
            if self._gone:
                raise OSError("the executable is gone")
            async with asyncio.timeout(message.timeout + MARGIN_SECONDS):
                await self.channel.send(msgspec.structs.replace(message, id=number))
                result: protocol.ExecResult = await ended
                return result
        except (OSError, TimeoutError) as error:
            raise CNIError(
                Code.TRY_AGAIN_LATER, f'plugin "{message.plugin}" could not be run', str(error)
            ) from error

    def attend(self, gone: Callable[[], None]) -> None:
        """Take what it says until it says goodbye; then `gone` is called."""
        self._left = gone
        self.channel.attend(self._hear)

    async def goodbye(self, seconds: float) -> bool:
        """Whether the answer was delivered: what it said, at the latest after so long True."""
        if self._delivered is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(seconds, self._end, True)
            try:
                await self._waiting
            finally:
                timer.cancel()
        return bool(self._delivered)

    def _hear(self) -> None:
        try:
            while (received := self.channel.receive_now()) is not None:
                message, _ = received
                if isinstance(message, protocol.Undelivered):
                    self._end(False)
                    return
                if isinstance(message, protocol.ExecResult) and message.id in self._runs:
                    run = self._runs[message.id]
                    if not run.done():
                        run.set_result(message)
        except BlockingIOError:
            return
        except (OSError, protocol.ProtocolError):
            self._end(False)
            return
        self._end(True)

    def _end(self, delivered: bool) -> None:
        self.channel.ignore()
        self._gone = True
        if self._delivered is not None:
            return
        self._delivered = delivered
        for run in self._runs.values():
            if not run.done():
                run.set_exception(OSError("the executable is gone"))
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        self._left()
