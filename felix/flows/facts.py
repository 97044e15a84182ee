"""What the joiner asks: names, traces and services of one felix, remembered for a moment.

A calculation moves many times a second while pods come and go. What was looked up of a workload or
a rule is kept for `KNOWN_FOR` seconds beyond a change; an address that nothing had is asked again
at once, for it may be a new pod's.

Pending traces may cost a walk through hundreds of rules each. They get `SHARE` of the time; what is
beyond stays without one, and is counted.
Tested in tests/felix/flows/test_facts.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from felix.calc.graph import Calculator
from felix.flows.ends import Ends, Known
from felix.flows.hits import Hits
from felix.flows.joiner import Lost
from felix.flows.pending import Pending
from felix.flows.services import ServiceTable
from flows.record import Hit, Service
from libcalico.model import ResourceKey
from linux.tracking.connections import Key

KNOWN_FOR = 1.0
SHARE, AT_LEAST = 0.05, 50
"""Of one core; and walks in a second that there is always time for."""


class CalculatedFacts:
    """The facts of a calculation. `changed` after each change of it; `lost` counts what there was
    no time for."""

    def __init__(
        self,
        calc: Calculator,
        services: ServiceTable,
        lost: Lost,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._ends, self._hits = Ends(calc), Hits(calc.policy)
        self._pending = Pending(calc.policy, self._hits)
        self._services, self._lost = services, lost
        self._clock, self._worked = clock, worked
        self._stale = False
        self._fresh_since = 0.0
        self._spent = self._since = 0.0
        self._walks = 0

    def changed(self) -> None:
        """Policies, endpoints or nodes may be others now."""
        self._ends.forget_others()
        self._stale = True
        self._renew()

    def _renew(self) -> None:
        now = self._clock()
        if self._stale and now - self._fresh_since >= KNOWN_FOR:
            self._stale, self._fresh_since = False, now
            for each in (self._ends, self._hits, self._pending):
                each.forget()

    def known(self, address: bytes) -> Known:
        """What is at an address."""
        if self._stale:
            self._renew()
        return self._ends.known(address)

    def judges(self, prefix: str, endpoint: ResourceKey) -> bool:
        """Whether a rule that said this is one of the endpoint's."""
        return self._hits.judges(prefix, endpoint)

    def enforced(self, prefixes: Sequence[str], endpoint: ResourceKey) -> tuple[Hit, ...]:
        """The trace of what rules said."""
        return self._hits.enforced(prefixes, endpoint)

    def pending(self, endpoint: ResourceKey, key: Key, *, ingress: bool) -> tuple[Hit, ...]:
        """The trace as if staged policies were enforced; none where there is no time for it."""
        if self._pending.known(endpoint, key, ingress=ingress):
            return self._pending.trace(endpoint, key, ingress=ingress)
        now = self._clock()
        if now - self._since >= 1.0:
            self._since, self._spent, self._walks = now, 0.0, 0
        if self._spent >= SHARE and self._walks >= AT_LEAST:
            self._lost.pending += 1
            return ()
        began = self._worked()
        trace = self._pending.trace(endpoint, key, ingress=ingress)
        self._spent += self._worked() - began
        self._walks += 1
        return trace

    def service(self, address: bytes, port: int, protocol: int) -> Service:
        """The service that has an address and port; an empty one for none."""
        return self._services.service(address, port, protocol)
