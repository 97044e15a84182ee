"""The resolved rules that are active here, of policies or of profiles, and their sets.

Sets of new rules are acquired before those of the old are released, so a set that both use
stays as it is. Rules that a held endpoint names stay, with their sets, as they were told.
Tested in tests/felix/calc/policy/test_engine.py.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from felix.calc.policy_model import ResolvedPolicy
from felix.calc.sets.service_sets import Need, NeededSets

K = TypeVar("K", bound=Hashable)


class ActiveRules(Generic[K]):
    """Resolved policies by key; `flush` returns what differs from the last flush."""

    def __init__(self, sets: NeededSets) -> None:
        self._sets = sets
        self._active: dict[K, tuple[ResolvedPolicy, tuple[Need, ...]]] = {}
        self._flushed: dict[K, ResolvedPolicy] = {}
        self._dirty: set[K] = set()
        self._ended: dict[K, list[Need]] = {}
        """The needs of policies that became inactive since the last flush."""
        self._kept: set[K] = set()

    def __contains__(self, key: K) -> bool:
        return key in self._active

    @property
    def flushed(self) -> Mapping[K, ResolvedPolicy]:
        """The values as of the last flush."""
        return MappingProxyType(self._flushed)

    @property
    def dirty(self) -> bool:
        """Whether a flush would look at anything."""
        return bool(self._dirty)

    def put(self, key: K, resolved: ResolvedPolicy, needs: tuple[Need, ...]) -> None:
        """Make a policy active, with these rules."""
        for need in needs:
            self._sets.acquire(need)
        _, old = self._active.get(key, (None, ()))
        for need in old:
            self._sets.release(need)
        self._active[key] = (resolved, needs)
        self._dirty.add(key)

    def remove(self, key: K) -> None:
        """Make a policy inactive, if it is active."""
        old = self._active.pop(key, None)
        if old is not None:
            self._dirty.add(key)
            self._ended.setdefault(key, []).extend(old[1])

    def flush(self, named: Collection[K] = ()) -> dict[K, ResolvedPolicy | None]:
        """The differences. A policy in `named` is not removed by this flush, but by a later one."""
        changes: dict[K, ResolvedPolicy | None] = {}
        looked_at = self._dirty | self._kept
        self._kept = {key for key in looked_at if key in named and key not in self._active}
        for key in looked_at - self._kept:
            for need in self._ended.pop(key, ()):
                self._sets.release(need)
            active = self._active.get(key)
            resolved = active[0] if active is not None else None
            if resolved == self._flushed.get(key):
                continue
            changes[key] = resolved
            if resolved is None:
                del self._flushed[key]
            else:
                self._flushed[key] = resolved
        self._dirty.clear()
        return changes
