"""`readiness_gates`: URLs that must answer before a pod's network is made.

With them pods wait for a service of the node. Each URL is asked until it
answers with a status from 200 to 399, every 5 s, for 30 s in all; one that answered is not asked
again. Source: docs/reference/data-model.md#cni-configuration, conformance CAL-19. Tested in
tests/cni/test_readiness_gates.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cni.request.errors import CNIError, Code

SECONDS = 30.0
INTERVAL = 5.0
ANSWER_SECONDS = 5.0


async def wait(gates: Sequence[str], seconds: float = SECONDS, interval: float = INTERVAL) -> None:
    """Until all have answered; raises CNIError 11 naming the first that has not."""
    left = list(gates)
    trouble = "it was not asked"
    try:
        async with asyncio.timeout(seconds):
            while True:
                while left and not (trouble := await asyncio.to_thread(_trouble, left[0])):
                    left.pop(0)
                if not left:
                    return
                await asyncio.sleep(interval)
    except TimeoutError:
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"readiness_gates: {left[0]} did not become ready within {seconds:g} s",
            trouble,
        ) from None


def _trouble(url: str) -> str:
    """Why a gate is not open; empty when it is."""
    import urllib.request  # 3 MiB of HTTP, for the few nodes that have gates

    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            return "" if 200 <= answer.status < 400 else f"status {answer.status}"
    except (OSError, ValueError) as error:
        return str(error)
