"""What is taken from the child's log: its last words, refused keys, and whether it has reloaded.

Tested in tests/bgp/test_speaker_contract.py, test_keys.py and test_removal.py.
"""

from __future__ import annotations

import asyncio
from collections import deque

from bgp.speaker.exabgp import child_command
from bgp.speaker.exabgp.keys import Keyless

_RELOADED = b"loaded new configuration successfully"
_NOT_RELOADED = b"could not load/reload configuration"
_RELOAD_TIMEOUT = 60.0


class ChildLog:
    """`keyless`: the peers whose key the kernel refused."""

    def __init__(self) -> None:
        self.keyless = Keyless()
        self._last_words: deque[bytes] = deque(maxlen=6)
        self._reload: asyncio.Future[bool] | None = None

    def hear(self, line: bytes) -> None:
        """A line of the log."""
        if _RELOADED in line:
            self._settle(loaded=True)
        elif _NOT_RELOADED in line:
            self._settle(loaded=False)
        self._last_words.append(line)
        self.keyless.hear(line)

    def last_words(self) -> str:
        """The last lines, as they may be logged."""
        return " | ".join(child_command.readable(line) for line in self._last_words)

    def ended(self) -> None:
        """The child has ended: the next one speaks for itself, and a reload has failed."""
        self._last_words.clear()
        self.keyless.forget()
        self._settle(loaded=False)

    def expect_reload(self) -> None:
        """A reload is about to be asked for."""
        self._reload = asyncio.get_running_loop().create_future()

    async def reloaded(self) -> bool:
        """Whether the reload that is expected was done; not in a minute: it was not."""
        assert self._reload is not None
        try:
            return await asyncio.wait_for(self._reload, _RELOAD_TIMEOUT)
        except TimeoutError:
            return False
        finally:
            self._reload = None

    def _settle(self, *, loaded: bool) -> None:
        if self._reload is not None and not self._reload.done():
            self._reload.set_result(loaded)
