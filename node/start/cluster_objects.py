"""Writing what a cluster lacks when a node starts: default pools and settings objects.

Tested in tests/node/test_startup.py and tests/node/test_own_node.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipam.admin import overlap
from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Put
from libcalico.errors import DatastoreError
from libcalico.model.defaults import apply_defaults
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource
from libcalico.model.validation.validate import validate
from node.identity import interfaces, kubernetes
from node.settings.environment import Settings
from node.start import defaults
from node.start.node_object import WRITE_TRIES

log = logging.getLogger(__name__)


async def default_pools(
    store: Datastore, chosen: Settings, cluster: kubernetes.ClusterFacts
) -> None:
    """Make the default pools that are missing and desired. Raises MuslinError."""
    own_interfaces = await asyncio.to_thread(interfaces.read)
    local = [address.network for one in own_interfaces for address in one.addresses]
    routes = await asyncio.to_thread(interfaces.kernel_networks)
    for version, setting in ((4, chosen.pool4), (6, chosen.pool6)):
        if version == 6 and not (chosen.ipv6_support and Path("/proc/sys/net/ipv6").exists()):
            continue
        facts = await overlap.read_facts(store, routes)
        taken = [*local, *facts.all()]
        pool = defaults.default_pool(
            version, setting, facts.pools, taken, os.urandom, cluster.pod_networks
        )
        if pool is None:
            continue
        pool = apply_defaults(pool)
        validate(pool)
        defaults.check_pool(version, pool, facts, chosen.allow_overlap)
        try:
            await store.commit([Put(ResourceKey("IPPool", pool.metadata.name), pool, ABSENT)])
            log.info("made a default pool", extra={"cidr": pool.spec.cidr})
        except CommitConflict:
            continue


async def ensure_objects(store: Datastore, name: str) -> None:
    """Write the cluster's configurations and the node's own, where they are missing."""
    await _ensure(store, ResourceKey("FelixConfiguration", "default"), defaults.felix_default)
    await _ensure(
        store,
        ResourceKey("FelixConfiguration", f"node.{name}"),
        lambda stored: defaults.felix_node(stored, name),
        bare=True,
    )
    await _ensure(
        store, ResourceKey("BGPConfiguration", "default"), lambda old: old or defaults.bgp_default()
    )
    await _ensure(
        store,
        ResourceKey("IPAMConfiguration", "default"),
        lambda old: old or defaults.ipam_default(),
    )


async def _ensure(
    store: Datastore, key: ResourceKey, want: Callable[[Any], Resource], *, bare: bool = False
) -> None:
    """Store the value that `want` makes of the stored one, if they differ.

    `bare`: without the API's defaults. A node's own FelixConfiguration goes before the cluster's,
    so a default in it would hide what an operator sets for all nodes.
    """
    for _ in range(WRITE_TRIES):
        entry = await store.get(key)
        stored = entry.value if entry else None
        desired = want(stored)
        if stored is not None and desired == stored:
            return
        try:
            fresh = desired if bare else apply_defaults(desired)
            await store.commit([Put(key, fresh, entry.revision if entry else ABSENT, entry)])
            return
        except CommitConflict:
            continue
    raise DatastoreError(f"{key}: others changed it {WRITE_TRIES} times meanwhile")
