"""The endpoints of the whole cluster as they come from the datastore: which are ours.

Rows of stored bytes come in (libcalico/datastore/syncer.py). An endpoint of this node is decoded
whole and goes the ordinary way, as an object; any other goes into the columns of the policy
calculation and is forgotten. An endpoint that was ours once goes the ordinary way for good.

Invariants:
  ROW-1  A listing that is begun anew leaves exactly what it named, and nothing else of what was
         there before.
  ROW-2  What cannot be read counts as absent and is logged; it ends nothing.
Tested in tests/felix/calc/policy/test_rows.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from felix.calc.graph import Calculator
from felix.calc.sets.remote import NOT_PLAIN, Reduced, decode, whole
from libcalico.datastore.interface import Row
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey, WorkloadEndpoint

STAMP = (1 << 64) - 1
Take = Callable[[ResourceKey, WorkloadEndpoint | None, int], object]
"""Of an endpoint: what it is as of a revision."""

log = logging.getLogger(__name__)


class EndpointRows:
    """A sink of the syncer. `take_own` gets this node's endpoints, and says itself what changed;
    `changed` is called where the others' change what is to be told.
    """

    def __init__(self, calc: Calculator, take_own: Take, changed: Callable[[], object]) -> None:
        self._calc, self._remote = calc, calc.policy.remote
        self._take_own, self._changed = take_own, changed
        self._own: dict[str, int] = {}
        self._seen: bytearray | None = None
        self._seen_own: set[str] = set()

    def __len__(self) -> int:
        return self._remote.count + len(self._own)

    def begin(self) -> None:
        """Begin a listing."""
        # Nothing is taken away by the first.
        self._seen = bytearray() if len(self) else None
        self._seen_own = set()
        self._calc.endpoints.listing_begins()

    def apply_rows(self, rows: Sequence[Row]) -> None:
        """Apply rows of the datastore."""
        remote, own, node = self._remote, self._own, self._calc.node
        endpoints = self._calc.endpoints
        numbers, stamps, local = remote.numbers, remote.stamps, remote.local
        value: Reduced | WorkloadEndpoint
        for name, raw, revision in rows:
            # The bytes count too: in a store that was set up anew, revisions begin anew.
            stamp = hash((revision, raw)) & STAMP
            number = numbers.get(name)
            if number is not None and stamps[number] == stamp:
                self._see(number)
                continue
            if endpoints.remembers and endpoints.remembered(_key(name), raw) is not None:
                self._take(name, raw, revision, stamp)
                continue
            try:
                value = decode(raw)
            except NOT_PLAIN:
                # Null for absent, and the like: the full decoder knows better.
                whole = self._whole(name, raw, revision)
                if whole is None:
                    continue
                value = whole
            if value.spec.node == node or name in own or name in local:
                self._take(name, raw, revision, stamp)
                continue
            number = remote.put(name, number, value, stamp)
            if self._seen is not None:
                self._see(number)
        if self._calc.policy.dirty:
            self._changed()

    def gone(self, name: str, revision: int) -> None:
        """Remove an endpoint that was deleted."""
        if name in self._own or name in self._remote.local:
            self._own.pop(name, None)
            self._take_own(_key(name), None, revision)
            return
        self._remote.remove(name)
        if self._calc.policy.dirty:
            self._changed()

    def end(self, revision: int) -> None:
        """End a listing: remove what it did not name."""
        if self._seen is not None:
            seen, count = self._seen, len(self._seen)
            unseen = [
                name
                for name, number in self._remote.numbers.items()
                if isinstance(name, str) and not (number < count and seen[number])
            ]
            for name in unseen:
                if name not in self._seen_own and name not in self._remote.local:
                    self.gone(name, revision)
        for name in self._own.keys() - self._seen_own:
            self.gone(name, revision)
        self._seen, self._seen_own = None, set()
        if self._calc.endpoints.listing_ended():
            self._changed()

    def _take(self, name: str, raw: bytes, revision: int, stamp: int) -> None:
        """One that is ours, or was."""
        self._seen_own.add(name)
        if self._own.get(name) == stamp:
            return
        self._own[name] = stamp
        key = _key(name)
        value = self._calc.endpoints.remembered(key, raw)
        value = value or self._whole(name, raw, revision)
        if value is not None:
            self._take_own(key, value, revision)

    def _whole(self, name: str, raw: bytes, revision: int) -> WorkloadEndpoint | None:
        try:
            return whole(_key(name), raw)
        except InvalidValue as problem:
            log.error("not readable: %s", problem, extra={"object": name})
        if name in self._own:
            self._take_own(_key(name), None, revision)
        else:
            self._remote.remove(name)
        return None

    def _see(self, number: int) -> None:
        if self._seen is not None:
            missing = number + 1 - len(self._seen)
            if missing > 0:
                self._seen.extend(bytes(missing + 1000))
            self._seen[number] = 1


def _key(name: str) -> ResourceKey:
    namespace, _, own = name.partition("/")
    return ResourceKey("WorkloadEndpoint", own, namespace)
