"""To felix of this node and back, over `node.sock`: root only, and only where felix runs.

Tested in `tests/felix/kernel/test_explain_live.py`, `tests/felix/kernel/test_drops.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from libcalico.errors import MuslinError
from libcalico.local.frames import ProtocolError
from libcalico.local.framing import Connection, connect_unix
from libcalico.local.node_api import Hello, Message
from libcalico.process import paths

ANSWER_TIMEOUT = 20.0
T = TypeVar("T")


@asynccontextmanager
async def felix() -> AsyncIterator[Connection]:
    """A connection to felix. Raises MuslinError saying what is in the way."""
    path = paths.NODE_SOCKET
    if os.geteuid() != 0:
        raise MuslinError(
            f"felix answers root only ({path} is private): run this as root on the node"
        )
    try:
        connection = await connect_unix(path, Hello("calicoctl"))
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise MuslinError(
            f"felix does not run on this machine: {path}: {error.strerror};"
            " run this on the node, where /var/run/calico is felix's"
        ) from None
    except (OSError, ProtocolError) as error:
        raise MuslinError(f"felix does not answer at {path}: {error}") from None
    async with connection:
        yield connection


async def ask_felix(question: Message, answer: type[T]) -> T:
    """One question, one answer. Raises MuslinError."""
    async with felix() as connection:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await connection.send(question)
                async for message in connection:
                    if isinstance(message, answer):
                        return message
        except TimeoutError:
            raise MuslinError(f"felix has not answered within {ANSWER_TIMEOUT:g} s") from None
        except (ConnectionError, ProtocolError) as error:
            raise MuslinError(f"felix broke off: {error}") from None
    raise MuslinError("felix closed the connection; an older release does not know the question")
