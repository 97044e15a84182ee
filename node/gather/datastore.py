"""Facts from the datastore: whether it answers, and its nodes, pools and service ranges.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network

from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import MuslinError
from libcalico.model.keys import IPNetwork, ResourceKey
from libcalico.model.resources.bgp import BGPConfiguration
from libcalico.model.resources.node import Node
from libcalico.model.resources.pool import IPPool
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
    store = Store(
        configured=True,
        endpoints=tuple(endpoints),
        files=tuple(files),
        file_errors=tuple(errors),
        key_modes=modes,
    )
    if endpoints and all(one.error for one in endpoints):
        # No endpoint listens: a read would only wait for its deadline.
        reasons = "; ".join(f"{one.url}: {one.error}" for one in endpoints)
        return replace(store, error=f"no endpoint can be reached: {reasons}")
    return await _asked(config, store)


async def _asked(config: DatastoreConfig, facts: Store) -> Store:
    # A late import: gRPC starts with it, and no program may run after it.
    from libcalico.datastore import connect

    try:
        store = await connect(config)
    except MuslinError as error:
        return replace(facts, error=str(error))
    try:
        return await _contents(store, facts)
    except MuslinError as error:
        return replace(facts, error=str(error))
    finally:
        await store.close()


async def _contents(store: Datastore, facts: Store) -> Store:
    await store.get(CLUSTER)
    start = time.perf_counter()
    cluster = await store.get(CLUSTER)
    took = (time.perf_counter() - start) * 1000
    nodes = await store.list(Selection("Node"))
    pools = await store.list(Selection("IPPool"))
    bgp = await store.get(ResourceKey("BGPConfiguration", "default"))
    return replace(
        facts,
        error="",
        milliseconds=took,
        nodes=tuple(_node(entry.value) for entry in nodes.entries),
        pools=tuple(pool for entry in pools.entries if (pool := _pool(entry.value)) is not None),
        service_ranges=_services(bgp.value) if bgp else (),
        locked=cluster is not None and cluster.value.spec.datastoreReady is False,
    )


def _node(value: Node) -> OtherNode:
    bgp = value.spec.bgp
    return OtherNode(
        name=value.metadata.name,
        ipv4=bgp.ipv4Address if bgp else "",
        ipv6=bgp.ipv6Address if bgp else "",
    )


def _pool(value: IPPool) -> Pool | None:
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


def _services(value: BGPConfiguration) -> tuple[IPNetwork, ...]:
    ranges = []
    for block in value.spec.serviceClusterIPs or ():
        try:
            ranges.append(ip_network(block.cidr, strict=False))
        except ValueError:
            continue
    return tuple(ranges)
