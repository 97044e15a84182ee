"""A TCP forwarder that counts what goes to the client."""

from __future__ import annotations

import asyncio

from tests.support.proxy import Proxy


class CountingProxy(Proxy):
    """Counts what goes to the client."""

    received = 0

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        to_client = writer.get_extra_info("sockname")[1] == self.port
        while data := await reader.read(65536):
            self.received += len(data) if to_client else 0
            writer.write(data)
            await writer.drain()
        writer.close()
