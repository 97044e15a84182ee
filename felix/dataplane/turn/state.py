"""What the main loop knows about its own success: for readiness, waiters, status and metrics.

Tested in tests/felix/dataplane/test_in_force.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from felix.calc.endpoints import Endpoint, IPNetwork
from libcalico.model import ResourceKey

log = logging.getLogger(__name__)


@dataclass
class State:
    """`applied`: a commit went well once. `failures`: what the last one could not do.

    `applies` and `apply_seconds`: how many commits there were, and how long all took;
    `first_seconds`: how long after the start the first one stood. `ruled`: endpoints that lack
    nothing but a link and routes to these networks (`felix.dataplane.routes.in_force`). `news`:
    which endpoints the last turn judged anew, None: all.
    """

    applied: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    failed_applies: int = 0
    applies: int = 0
    apply_seconds: float = 0.0
    first_seconds: float | None = None
    active: dict[str, Endpoint] = field(default_factory=dict)
    shadowed: dict[ResourceKey, str] = field(default_factory=dict)
    in_force: dict[ResourceKey, Endpoint] = field(default_factory=dict)
    ruled: dict[ResourceKey, tuple[Endpoint, tuple[IPNetwork, ...]]] = field(default_factory=dict)
    news: Collection[ResourceKey] | None = None
    version: int = 0

    def count(self, began: float, ended: float, started: float) -> None:
        """A commit from `began` to `ended` by a program that began at `started`; all in seconds."""
        self.applies += 1
        self.apply_seconds += ended - began
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
