"""Prepares large policies beside the turns (felix.calc.policy.large), a few milliseconds at a time.

Not before the first commit stands: until then no pod waits, and a restart must find what it left.
Tested in tests/felix/calc/policy/test_large.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from felix.calc.policy.engine import PolicyEngine
from felix.calc.policy_model import ResolvedPolicy
from felix.dataplane.turn.cooperative_steps import in_slices
from libcalico.process.tasks import Background

_WORK = "preparation of large policies"
MOMENT = 0.005
"""Seconds of work at a time."""


class Ahead:
    """`warm` renders a policy's rules ahead, in steps; `done`: a policy can be taken now."""

    def __init__(
        self,
        engine: PolicyEngine,
        warm: Callable[[ResolvedPolicy], Iterator[None]],
        done: Callable[[], None],
    ) -> None:
        self._engine, self._warm, self._done = engine, warm, done
        self._work = asyncio.Event()

    def begin(self, background: Background) -> None:
        """From now on large policies are prepared before a turn takes them."""
        # One that has failed is begun again by its owner, and prepares nothing any more.
        if not background.busy(_WORK):
            self._engine.large.wake = self._work.set
            background.keep(_WORK, self._run)

    async def _run(self) -> None:
        """Prepare for ever. After a failure all are taken in turns, as small ones are."""
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                await in_slices(self._engine.preparing(self._warm), MOMENT)
                self._done()
        finally:
            self._engine.take_at_once()
