"""The executable at the other end of a call: it runs plugins for us and says how the answer went.

Tested in tests/cni/test_daemon_faults.py and tests/cni/test_delegation.py.
"""

from __future__ import annotations

import asyncio

import msgspec

from cni import protocol
from cni.channel import Channel
from cni.errors import CNIError, Code

MARGIN_SECONDS = 1.0
"""What an executable needs beside the time that it gives a plugin or the daemon."""


class Caller:
    """The executable of one call."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._runs: dict[int, asyncio.Future[protocol.ExecResult]] = {}
        self._gone = False

    async def run(self, message: protocol.Exec) -> protocol.ExecResult:
        """Let it run a plugin; raises CNIError 11 when it goes away meanwhile."""
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

    async def listen(self) -> bool:
        """Take what it says until it says goodbye; False when the answer was not delivered."""
        try:
            while (received := await self.channel.receive()) is not None:
                message, _ = received
                if isinstance(message, protocol.Undelivered):
                    return False
                if isinstance(message, protocol.ExecResult) and message.id in self._runs:
                    run = self._runs[message.id]
                    if not run.done():
                        run.set_result(message)
            return True
        finally:
            self._gone = True
            for run in self._runs.values():
                if not run.done():
                    run.set_exception(OSError("the executable is gone"))
