"""The deadline of a request to the API, and the name of the request in its errors.

Tested in tests/apiserver/test_client.py.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from libcalico.kubernetes.errors import Unreachable


class Deadline:
    """Raises Unreachable, not TimeoutError, when the time is over.

    Errors inside name the request.
    """

    def __init__(self, tried: str, seconds: float) -> None:
        self._tried, self._seconds = tried, seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, value, trace)
        except TimeoutError:
            raise Unreachable(f"{self._tried}: no answer within {self._seconds:.3g} s") from None
        if isinstance(value, Unreachable) and not str(value).startswith(self._tried):
            raise Unreachable(f"{self._tried}: {value}") from None
