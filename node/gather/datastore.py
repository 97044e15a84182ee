"""Facts from the datastore: whether it answers, and its nodes, pools and service ranges.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import MuslinError
from libcalico.model.keys import IPNetwork, ResourceKey
from libcalico.pools import network_of
from node.checks.datastore_facts import OtherNode, Pool, Store
from node.gather import certificates

CLUSTER = ResourceKey("ClusterInformation", "default")


async def read(config_file: str | None, environ: Mapping[str, str]) -> Store:
    """The facts; empty where no datastore is configured."""
    try:
        given = config_file is not None
        config = apiconfig.load(config_file, environ) if given else apiconfig.of_node(environ)
        if config.datastore_type != apiconfig.ETCD and not environ.get("DATASTORE_TYPE"):
            return Store()
        config.check()
    except MuslinError as error:
        return Store(configured=True, config_error=str(error))
    endpoints = await asyncio.gather(
        *(asyncio.to_thread(certificates.endpoint, url, config) for url in config.endpoints)
    )
    files, errors, modes = certificates.of_config(config)
    base: dict[str, Any] = {
        "configured": True,
        "endpoints": tuple(endpoints),
        "files": tuple(files),
        "file_errors": tuple(errors),
        "key_modes": modes,
    }
    if endpoints and all(one.error for one in endpoints):
        # No endpoint listens: a read would only wait for its deadline.
        reasons = "; ".join(f"{one.url}: {one.error}" for one in endpoints)
        return Store(**base, error=f"no endpoint can be reached: {reasons}")
    return Store(**base, **await _asked(config))


async def _asked(config: DatastoreConfig) -> dict[str, Any]:
    # A late import: gRPC starts with it, and no program may run after it.
    from libcalico.datastore import connect

    try:
        store = await connect(config)
    except MuslinError as error:
        return {"error": str(error)}
    try:
        return await _contents(store)
    except MuslinError as error:
        return {"error": str(error)}
    finally:
        await store.close()


async def _contents(store: Datastore) -> dict[str, Any]:
    await store.get(CLUSTER)
    start = time.perf_counter()
    cluster = await store.get(CLUSTER)
    took = (time.perf_counter() - start) * 1000
    nodes = await store.list(Selection("Node"))
    pools = await store.list(Selection("IPPool"))
    bgp = await store.get(ResourceKey("BGPConfiguration", "default"))
    ready = cluster.value.spec.datastoreReady if cluster else None
    return {
        "error": "",
        "milliseconds": took,
        "nodes": tuple(_node(entry.value) for entry in nodes.entries),
        "pools": tuple(pool for entry in pools.entries if (pool := _pool(entry.value)) is not None),
        "service_ranges": _services(bgp.value) if bgp else (),
        "locked": ready is False,
        "cluster_version": str(cluster.value.spec.calicoVersion) if cluster else "",
    }


def _node(value: Any) -> OtherNode:
    bgp = value.spec.bgp
    return OtherNode(
        name=value.metadata.name,
        ipv4=bgp.ipv4Address if bgp else "",
        ipv6=bgp.ipv6Address if bgp else "",
    )


def _pool(value: Any) -> Pool | None:
    spec = value.spec
    cidr = network_of(value)
    if cidr is None:
        return None
    modes = {"ipip": spec.ipipMode, "vxlan": spec.vxlanMode}
    used = {name: mode for name, mode in modes.items() if mode not in ("", "Never")}
    return Pool(
        name=value.metadata.name,
        cidr=cidr,
        encapsulation=next(iter(used), ""),
        cross_subnet="CrossSubnet" in used.values(),
        disabled=spec.disabled or bool(value.metadata.deletionTimestamp),
    )


def _services(value: Any) -> tuple[IPNetwork, ...]:
    ranges = []
    for block in value.spec.serviceClusterIPs or ():
        cidr = block["cidr"] if isinstance(block, dict) else block.cidr
        try:
            ranges.append(ip_network(cidr, strict=False))
        except ValueError:
            continue
    return tuple(ranges)
