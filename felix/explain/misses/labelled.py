"""Whose labels an address has: the endpoints and network sets that hold it.

They are what `felix.calc` reduces stored objects to, so a selector means here whom it means there.

Tested in tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from felix.calc.labels import NamedPort
from felix.calc.policy.host_facts import host_facts
from felix.calc.sets.items import Item, of_network_set, of_remote
from felix.explain.flow import IPAddress
from felix.explain.matching import spellings
from felix.explain.world import World
from libcalico.model import ResourceKey

SETS = ("NetworkSet", "GlobalNetworkSet")
KINDS = ("WorkloadEndpoint", "HostEndpoint", *SETS)


@dataclass(frozen=True, slots=True)
class Labelled:
    """An endpoint or network set as selectors see it; `labels` are own and inherited ones."""

    key: ResourceKey
    title: str
    labels: Mapping[str, str]
    ports: tuple[NamedPort, ...] = ()


class Directory:
    """The endpoints and network sets of a world, by address and by key."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: dict[ResourceKey, Item] = {}
        self._holders: dict[str, list[ResourceKey]] = {}
        self._known: dict[ResourceKey, Labelled] = {}
        self._behind: dict[IPAddress, tuple[Labelled, ...]] = {}
        for kind in KINDS:
            for key, value in world.of(kind):
                item = self._items[key] = _item(key, value)
                for member in item.members:
                    self._holders.setdefault(member, []).append(key)

    def of(self, key: ResourceKey) -> Labelled:
        """An endpoint or network set. Raises KeyError for what is not stored."""
        known = self._known.get(key)
        if known is None:
            item = self._items[key]
            labels = self._world.with_inherited(item.labels, item.profiles)
            title = _title(key, self._world.objects[key])
            known = self._known[key] = Labelled(key, title, labels, item.ports)
        return known

    def behind(self, address: IPAddress) -> tuple[Labelled, ...]:
        """All that hold an address, endpoints first; empty for an address that nothing names."""
        holders = self._behind.get(address)
        if holders is None:
            texts = (*spellings(address), str(address))
            keys = dict.fromkeys(key for text in texts for key in self._holders.get(text, ()))
            ordered = sorted(keys, key=lambda key: (KINDS.index(key.kind), key))
            holders = self._behind[address] = tuple(map(self.of, ordered))
        return holders


def _item(key: ResourceKey, value: Any) -> Item:
    if key.kind == "WorkloadEndpoint":
        return of_remote(key, value)[0]
    if key.kind == "HostEndpoint":
        return host_facts(key, value)[0].item
    return of_network_set(key, value)[0]


def _title(key: ResourceKey, value: Any) -> str:
    if key.kind == "WorkloadEndpoint":
        return f"pod {key.namespace}/{value.spec.pod or value.spec.workload}"
    if key.kind == "HostEndpoint":
        return f"host endpoint {key.name}"
    where = f"{key.namespace}/" if key.namespace else ""
    return f"{key.kind} {where}{key.name}"
