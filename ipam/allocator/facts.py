"""What the allocator must know of the cluster to choose pools: facts of one moment.

The CNI daemon keeps them by a watch, so that an ADD reads nothing; a caller without a watch reads
them. Namespaces are many and seldom matter: their labels are read only where a pool selects by
them. Tested in tests/ipam/test_library.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ipam.allocator.settings import get_config
from ipam.records.pools import Pool, reserved_networks, usable
from libcalico.datastore.interface import Datastore, Selection
from libcalico.model import IPAMConfig
from libcalico.model.keys import IPNetwork, ResourceKey

NAMESPACE_PROFILE = "kns."
NAMESPACE_LABEL = "pcns."


@dataclass(frozen=True, slots=True)
class Facts:
    """All pools, this node's labels, what is reserved, and the settings (None: not known)."""

    pools: Sequence[Pool]
    node_labels: Mapping[str, str]
    reserved: Sequence[IPNetwork] = ()
    config: IPAMConfig | None = None


async def read_facts(store: Datastore, host: str) -> Facts:
    """The facts, straight from the datastore."""
    listing, reservations, node, config = await asyncio.gather(
        store.list(Selection("IPPool")),
        store.list(Selection("IPReservation")),
        store.get(ResourceKey("Node", host)),
        get_config(store),
    )
    return Facts(
        pools=usable(listing.entries),
        node_labels=dict(node.value.metadata.labels) if node else {},
        reserved=reserved_networks(entry.value for entry in reservations.entries),
        config=config,
    )


async def namespace_labels(
    store: Datastore, namespaces: Iterable[str]
) -> dict[str, Mapping[str, str] | None]:
    """The labels of namespaces as their profiles carry them; None for one that has no profile."""
    names = sorted(set(namespaces))
    keys = [ResourceKey("Profile", f"{NAMESPACE_PROFILE}{name}") for name in names]
    profiles = await store.get_many(keys) if keys else {}
    labels: dict[str, Mapping[str, str] | None] = {}
    for name, key in zip(names, keys, strict=True):
        entry = profiles[key]
        labels[name] = _unprefixed(entry.value.spec.labelsToApply) if entry else None
    return labels


def _unprefixed(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {
        key.removeprefix(NAMESPACE_LABEL): value
        for key, value in (labels or {}).items()
        if key.startswith(NAMESPACE_LABEL)
    }
