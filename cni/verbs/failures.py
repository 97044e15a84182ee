"""What a verb answers where it fails: codes and sentences for a runtime.

Tested in tests/cni/test_daemon_faults.py and tests/cni/test_delegation.py.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from cni.request.errors import CNIError, Code
from ipam.records.errors import IPAMError, NoPool
from libcalico.errors import DatastoreError


class DatastoreLimit:
    """`async with`: until this time of the loop, then code 11. A generator costs four times it."""

    __slots__ = ("_limit",)

    def __init__(self, until: float) -> None:
        self._limit = asyncio.timeout_at(until)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as late:
            error = late
        if isinstance(error, TimeoutError):
            raise CNIError(
                Code.TRY_AGAIN_LATER, "the datastore did not answer in time, try again later"
            ) from None


def as_cni_error(error: BaseException) -> CNIError:
    """The code and sentence for a runtime (docs/reference/cni.md#errors)."""
    match error:
        case CNIError():
            return error
        case NoPool():
            return CNIError(Code.CALICO, str(error))
        case IPAMError():
            return CNIError(Code.TRY_AGAIN_LATER, str(error))
        case DatastoreError():
            return CNIError(
                Code.TRY_AGAIN_LATER, "the datastore is not available, try again later", str(error)
            )
        case TimeoutError():
            return CNIError(Code.TRY_AGAIN_LATER, "the call did not end in time, try again later")
        case _:
            return CNIError(Code.INTERNAL, str(error) or type(error).__name__)
