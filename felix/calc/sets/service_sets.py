"""The sets of services that active rules need, and the router between them and selector sets.

Several slices of one service may hold one address, so contributions are counted, and within
one flush what comes and goes cancels, as for the sets of selectors (`felix.calc.sets.set_table`).

Invariants:
  SET-1, SET-2 hold here too.
Tested in tests/felix/calc/policy/test_services.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from felix.calc.policy_model import SetChange, SetKind
from felix.calc.pools import member
from felix.calc.services import ServiceSlice, SliceKey
from felix.calc.sets.set_needs import SetNeed
from felix.calc.sets.set_table import SetTable

Service = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class ServiceNeed:
    """A set that a rule refers to: the endpoints of a service, with their ports or without."""

    id: str
    service: Service
    ports: bool


Need = SetNeed | ServiceNeed


def service_set(namespace: str, name: str, *, ports: bool) -> ServiceNeed:
    """The set of a service's endpoints; its id is Calico's
    (docs/reference/dataplane.md#identity-of-sets)."""
    prefix = "svc" if ports else "svcnoport"
    digest = hashlib.sha224(f"{prefix}:{namespace}/{name}".encode()).digest()
    uid = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return ServiceNeed(f"{prefix}:{uid}", (namespace, name), ports)


@dataclass(slots=True, eq=False)
class _Set:
    need: ServiceNeed
    counts: Counter[str]
    users: int = 0
    flushed: frozenset[str] | None = None

    @property
    def kind(self) -> SetKind:
        return SetKind.ADDRESS_PORTS if self.need.ports else SetKind.NETS


@dataclass(slots=True)
class ServiceSets:
    """Slices by service, and the sets that are needed of them.

    `known`: all slices have been read, so rules may rely on them (SVC-1).
    """

    known: bool = False
    _slices: dict[Service, dict[SliceKey, ServiceSlice]] = field(default_factory=dict)
    _service_of: dict[SliceKey, Service] = field(default_factory=dict)
    _sets: dict[str, _Set] = field(default_factory=dict)
    _by_service: dict[Service, dict[str, _Set]] = field(default_factory=dict)
    _dirty: dict[str, _Set] = field(default_factory=dict)

    @property
    def dirty(self) -> bool:
        """Whether a flush would look at anything."""
        return bool(self._dirty)

    @property
    def kinds(self) -> Mapping[str, SetKind]:
        """The sets that were announced."""
        return {name: one.kind for name, one in self._sets.items() if one.flushed is not None}

    @property
    def size(self) -> int:
        """Members of all sets together."""
        return sum(len(one.counts) for one in self._sets.values())

    def __len__(self) -> int:
        return len(self._sets)

    def __contains__(self, set_id: str) -> bool:
        return set_id in self._sets

    def members(self, set_id: str) -> frozenset[str]:
        """The members as of the last flush. Raises KeyError for a set that was not announced."""
        members = self._sets[set_id].flushed
        if members is None:
            raise KeyError(set_id)
        return members

    def need(self, set_id: str) -> ServiceNeed | None:
        """What a set holds, by its id."""
        one = self._sets.get(set_id)
        return None if one is None else one.need

    def endpoints(self, need: ServiceNeed) -> frozenset[str]:
        """What a set of this need holds, or would, as of now."""
        counts: Counter[str] = Counter()
        for value in self._slices.get(need.service, {}).values():
            counts.update(_members(value, ports=need.ports))
        return frozenset(counts)

    def put(self, key: SliceKey, value: ServiceSlice | None) -> None:
        """Add or change a slice; None removes it."""
        before = self._service_of.pop(key, None)
        if before is not None:
            old = self._slices[before].pop(key)
            if not self._slices[before]:
                del self._slices[before]
            self._count(before, old, -1)
        if value is not None:
            service = (key.namespace, value.service)
            self._service_of[key] = service
            self._slices.setdefault(service, {})[key] = value
            self._count(service, value, 1)

    def acquire(self, need: ServiceNeed) -> None:
        """One more user of a set."""
        one = self._sets.get(need.id)
        if one is None:
            one = self._sets[need.id] = self._dirty[need.id] = _Set(need, Counter())
            self._by_service.setdefault(need.service, {})[need.id] = one
            for value in self._slices.get(need.service, {}).values():
                one.counts.update(_members(value, ports=need.ports))
        one.users += 1

    def release(self, need: ServiceNeed) -> None:
        """One user less; a set without users goes with the next flush."""
        one = self._sets[need.id]
        one.users -= 1
        if not one.users:
            self._dirty[need.id] = one

    def flush(self) -> list[SetChange]:
        """What changed since the last: new sets, then changed ones, then those that go."""
        new, changed, gone = [], [], []
        for set_id, one in self._dirty.items():
            if not one.users:
                del self._sets[set_id]
                del self._by_service[one.need.service][set_id]
                if not self._by_service[one.need.service]:
                    del self._by_service[one.need.service]
                if one.flushed is not None:
                    gone.append(SetChange(set_id, one.kind, removed_whole=True))
                continue
            before, one.flushed = one.flushed, frozenset(one.counts)
            if before is None:
                new.append(SetChange(set_id, one.kind, full=one.flushed))
            elif before != one.flushed:
                added, removed = one.flushed - before, before - one.flushed
                changed.append(SetChange(set_id, one.kind, added=added, removed=removed))
        self._dirty.clear()
        return [*new, *changed, *gone]

    def _count(self, service: Service, value: ServiceSlice, step: int) -> None:
        for one in self._by_service.get(service, {}).values():
            for each in _members(value, ports=one.need.ports):
                one.counts[each] += step
                if not one.counts[each]:
                    del one.counts[each]
            self._dirty[one.need.id] = one


def _members(value: ServiceSlice, *, ports: bool) -> Iterable[str]:
    if not ports:
        return [member(address) for address in value.addresses]
    return [
        f"{member(address)},{port.protocol}:{port.number}"
        for address in value.addresses
        for port in value.ports
    ]


class NeededSets:
    """Both kinds of sets as one: what active rules acquire and release, what a flush tells."""

    def __init__(self, selected: SetTable, services: ServiceSets) -> None:
        self._selected, self._services = selected, services

    @property
    def services_known(self) -> bool:
        """Whether rules may rely on the sets of services."""
        return self._services.known

    @property
    def dirty(self) -> bool:
        """Whether a flush would look at anything."""
        return self._selected.dirty or self._services.dirty

    @property
    def kinds(self) -> Mapping[str, SetKind]:
        """The sets that were announced."""
        return {**self._selected.kinds, **self._services.kinds}

    @property
    def size(self) -> int:
        """Members of all sets together."""
        return self._selected.size + self._services.size

    def __len__(self) -> int:
        return len(self._selected) + len(self._services)

    def members(self, set_id: str) -> frozenset[str]:
        """The members as of the last flush. Raises KeyError for a set that was not announced."""
        table = self._services if set_id in self._services else self._selected
        return table.members(set_id)

    def need(self, set_id: str) -> Need | None:
        """What a set holds, by its id; None for one that has no user."""
        return self._services.need(set_id) or self._selected.need(set_id)

    def endpoints(self, need: ServiceNeed) -> frozenset[str]:
        """The endpoints of a service as a set of this need holds, or would hold, them now."""
        return self._services.endpoints(need)

    def acquire(self, need: Need) -> None:
        """One more user of a set."""
        if isinstance(need, ServiceNeed):
            self._services.acquire(need)
        else:
            self._selected.acquire(need)

    def release(self, need: Need) -> None:
        """One user less; a set without users goes with the next flush."""
        if isinstance(need, ServiceNeed):
            self._services.release(need)
        else:
            self._selected.release(need)

    def flush(self) -> Generator[None, None, list[SetChange]]:
        """What changed since the last: what is new or changed first, then what goes; in steps."""
        changes = yield from self._selected.flush()
        services = self._services.flush()
        if not services:
            return changes
        both = [*changes, *services]
        return sorted(both, key=lambda change: (change.removed_whole, change.full is None))
