"""The deadline of a request to the API, and the name of the request in its errors.

Tested in tests/apiserver/test_client.py.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from libcalico.kubernetes.errors import Unreachable
from libcalico.process import unlooped

if TYPE_CHECKING:
    import asyncio


class Deadline:
    """Raises Unreachable, not TimeoutError, when the time is over.

    Errors inside name the request.
    """

    def __init__(self, tried: str, seconds: float) -> None:
        self._tried, self._seconds = tried, seconds
        self._timeout: asyncio.Timeout | None = None

    async def __aenter__(self) -> None:
        if unlooped.in_loop():
            import asyncio

            self._timeout = asyncio.timeout(self._seconds)
            await self._timeout.__aenter__()
        else:
            from libcalico.kubernetes.streams.blocking import Limit

            Limit.begin(self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if await self._is_over(kind, value, trace):
            raise Unreachable(f"{self._tried}: no answer within {self._seconds:.3g} s") from None
        if isinstance(value, Unreachable) and not str(value).startswith(self._tried):
            raise Unreachable(f"{self._tried}: {value}") from None

    async def _is_over(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._timeout is None:
            from libcalico.kubernetes.streams.blocking import Limit

            # What was late is an error of the socket, under the name of what was done.
            return Limit.end() and isinstance(value, Unreachable | TimeoutError)
        try:
            await self._timeout.__aexit__(kind, value, trace)
        except TimeoutError:
            return True
        return False
