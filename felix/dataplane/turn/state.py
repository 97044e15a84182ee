"""What the main loop knows about its own success: for readiness, waiters, status and metrics.

Tested in tests/felix/dataplane/test_in_force.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from felix.calc.endpoints import Endpoint, IPNetwork
from libcalico.model import ResourceKey
from libcalico.process.summaries import Summary

log = logging.getLogger(__name__)


@dataclass
class State:
    """`applied`: a commit went well once. `failures`: what the last one could not do.

    `apply_times`: seconds that each commit took; `first_seconds`: how long after the start the
    first one stood. `messages`: what the calculation handed over so far, by kind; `batches`: how
    much of it a turn took. `ruled`: endpoints that lack nothing but a link and routes to these
    networks (`felix.dataplane.routes.in_force`). `news`: which endpoints the last turn judged
    anew, None: all.
    """

    applied: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    failed_applies: int = 0
    apply_times: Summary = field(default_factory=Summary)
    messages: Counter[str] = field(default_factory=Counter)
    batches: Summary = field(default_factory=Summary)
    first_seconds: float | None = None
    active: dict[str, Endpoint] = field(default_factory=dict)
    shadowed: dict[ResourceKey, str] = field(default_factory=dict)
    in_force: dict[ResourceKey, Endpoint] = field(default_factory=dict)
    ruled: dict[ResourceKey, tuple[Endpoint, tuple[IPNetwork, ...]]] = field(default_factory=dict)
    news: Collection[ResourceKey] | None = None
    version: int = 0

    @property
    def applies(self) -> int:
        """How many commits there were."""
        return self.apply_times.count

    def took(self, handed: Mapping[str, int]) -> None:
        """Count what a turn took of the calculation, by kind."""
        size = sum(handed.values())
        if size:
            self.messages.update(handed)
            self.batches.observe(size)

    def count(self, began: float, ended: float, started: float) -> None:
        """A commit from `began` to `ended` by a program that began at `started`; all in seconds."""
        self.apply_times.observe(ended - began)
        if self.applied and self.first_seconds is None:
            self.first_seconds = ended - started

    def fail(self, failures: dict[str, str]) -> None:
        """Keep what a commit could not do; log it where that differs from the last one's."""
        if failures != self.failures:
            for name, reason in failures.items():
                log.warning("not in the kernel yet: %s", reason, extra={"object": name})
        self.failures = failures
        self.failed_applies += 1

    def settle(self, in_force: Mapping[ResourceKey, Endpoint]) -> None:
        """These endpoints are in force now; `version` grows when that differs."""
        self.news = None
        if dict(in_force) != self.in_force:
            self.in_force = dict(in_force)
            self.version += 1

    def settle_some(
        self, about: Collection[ResourceKey], in_force: Mapping[ResourceKey, Endpoint]
    ) -> None:
        """Of these endpoints those are in force now; what was said of the others holds."""
        self.news = about
        differs = False
        for key in about:
            endpoint = in_force.get(key)
            if endpoint != self.in_force.get(key):
                differs = True
                if endpoint is None:
                    del self.in_force[key]
                else:
                    self.in_force[key] = endpoint
        self.version += differs
