"""Policies with very many rules: read and rendered beside the turns, not in one.

Problem: a policy of 10,000 rules takes seconds of pure work. Done in a turn it holds up every pod
that starts meanwhile. So what can be done ahead is done ahead, in steps between which the loop
works, and the turn that takes the policy finds it done.

Invariants:
  LRG-1  A policy in preparation stays as it was told last. An endpoint that would come to have
         it keeps what it has, and a new one, or one of another container, waits, so no pod starts
         without it; whose policies are others does not wait. The policies and profiles that it
         keeps have their rules, also those that have ended meanwhile.
  LRG-2  A policy that changes in preparation is prepared again; one that goes, or becomes small,
         is taken at once.
Tested in tests/felix/calc/policy/test_large.py.
"""

from __future__ import annotations

from collections.abc import Callable

from felix.calc.policy.facts import Policy
from felix.calc.policy_model import EndpointPolicy
from libcalico.model import ResourceKey

LARGE = 200
"""Rules of both directions from which on a policy is prepared ahead: some 50 ms of work."""

Version = tuple[object, bool]


class LargePolicies:
    """Those in preparation. `wake` is called when there is one; None: none is prepared ahead."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] | None = None
        self._waiting: dict[ResourceKey, Version] = {}
        self._ready: dict[ResourceKey, Version] = {}
        self._held: set[ResourceKey] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def defers(self, key: ResourceKey, policy: Policy, version: Version) -> bool:
        """Whether this policy is to be prepared first. `version`: what it is, and how it is read;
        the preparation of another version does not count.
        """
        if self.wake is None or len(policy.spec.ingress) + len(policy.spec.egress) < LARGE:
            self.forget(key)
            return False
        if self._ready.pop(key, None) == version:
            self._waiting.pop(key, None)
            return False
        self._waiting[key] = version
        self.wake()
        return True

    def waiting(self) -> set[ResourceKey]:
        """Those in preparation."""
        return set(self._waiting)

    def next(self) -> ResourceKey | None:
        """One that is to be prepared."""
        return next((key for key in self._waiting if key not in self._ready), None)

    def prepared(self, key: ResourceKey, version: Version) -> None:
        """Done for this version; that of the policy may be another one by now."""
        self._ready[key] = version

    def forget(self, key: ResourceKey) -> None:
        """Drop a policy that is gone or needs no preparation."""
        self._waiting.pop(key, None)
        self._ready.pop(key, None)

    def holds(self, key: ResourceKey, policy: EndpointPolicy | None) -> bool:
        """Whether an endpoint must wait for a policy of these (LRG-1)."""
        if (
            policy is None
            or not self._waiting
            or self._waiting.keys().isdisjoint(policy.policies())
        ):
            return False
        self._held.add(key)
        return True

    @property
    def waiting_endpoints(self) -> frozenset[ResourceKey]:
        """The endpoints that wait."""
        return frozenset(self._held)

    def release(self) -> set[ResourceKey]:
        """The endpoints that were held: each is to be looked at again."""
        endpoints, self._held = self._held, set()
        return endpoints
