"""What is said of endpoints that do not answer: a warning, an error, whether TLS is at fault.

Tested in tests/libcalico/test_etcd_failover.py and test_tls.py there.
"""

from __future__ import annotations

import asyncio
import logging
import time

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.failures import NotSent
from libcalico.errors import CertificateProblem, DatastoreUnavailable
from libcalico.process import tasks

log = logging.getLogger(__name__)

EXPLAIN_SHARE = 0.5
"""Of the time that a call has, what it may take besides to say why a handshake fails."""
WARN_AGAIN = 300.0


class Outages:
    """The endpoints of a configuration that failed, as an operator is told of them."""

    def __init__(self, config: DatastoreConfig) -> None:
        self._config = config
        self._warned: dict[str, float] = {}
        self._warnings: set[asyncio.Task[None]] = set()

    def warn(self, problems: dict[str, NotSent], instead: str) -> None:
        """Log each endpoint that failed where another one answers, once in a while."""
        for endpoint, problem in problems.items():
            if time.monotonic() - self._warned.get(endpoint, -WARN_AGAIN) >= WARN_AGAIN:
                self._warned[endpoint] = time.monotonic()
                work = self._warn(endpoint, problem, instead)
                task = tasks.start(work, "help of the etcd connection")
                self._warnings.add(task)
                task.add_done_callback(self._warnings.discard)

    async def error(self, problems: dict[str, NotSent]) -> DatastoreUnavailable:
        """The error where no endpoint answered, by endpoint."""
        # What never came up may be a matter of certificates.
        unknown = [one for one, problem in problems.items() if not problem.connected]
        explained = await asyncio.gather(*map(self._explain, unknown))
        reasons = dict.fromkeys(problems, "") | dict(zip(unknown, explained, strict=True))
        tried = "; ".join(f"{one}: {reasons[one] or problems[one]}" for one in problems)
        text = (
            f"no etcd endpoint answered within {self._config.timeout:g} s "
            f"({tried or ', '.join(self._config.endpoints)})"
        )
        bad = [endpoint for endpoint, reason in reasons.items() if reason]
        return CertificateProblem(text, bad[0]) if bad else DatastoreUnavailable(text)

    def close(self) -> None:
        """Drop the warnings that are not out yet."""
        for task in self._warnings:
            task.cancel()

    async def _explain(self, endpoint: str) -> str:
        from libcalico.datastore import tls

        return await tls.explain(endpoint, self._config, EXPLAIN_SHARE * self._config.timeout)

    async def _warn(self, endpoint: str, problem: NotSent, instead: str) -> None:
        reason = "" if problem.connected else await self._explain(endpoint)
        log.warning("etcd at %s: %s; going on with %s", endpoint, reason or problem, instead)
