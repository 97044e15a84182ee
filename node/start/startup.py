"""Node start-up: from a machine to a Node of the cluster, in Calico's order.

The order is name, datastore, Kubernetes, addresses, Node resource, default pools, cluster objects.
The nodename file comes last: a program that waits for it finds everything else done. Every write is
guarded and repeated on conflict, so that many nodes may start at once. Existing objects are not
written again. Calico's `IPAM.UpgradeHost` has no counterpart: affinities without a state are
read as confirmed. Source: docs/reference/data-model.md#start-of-a-node. Tested in
`tests/node/test_startup.py` with a real etcd in a real network namespace.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ipam.admin import overlap
from libcalico import apiconfig, parsing
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore import connect
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import (
    ABSENT,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import DatastoreError, DatastoreUnavailable, MuslinError
from libcalico.model.defaults import apply_defaults
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import Node
from libcalico.model.validation.validate import validate
from libcalico.process.backoff import Backoff
from node.identity import autodetect, interfaces, kubernetes, life, registration
from node.settings.environment import AddressSetting, IPInterface, Settings, node_name, settings
from node.start import addresses, defaults
from node.start.addresses import Machine

log = logging.getLogger(__name__)

WRITE_TRIES = 20
CLUSTER = ResourceKey("ClusterInformation", "default")


async def start_up(
    environ: Mapping[str, str],
    *,
    doubt: Callable[[], None] = lambda: None,
    wait: life.Wait = asyncio.sleep,
) -> tuple[str, Settings]:
    """Register this machine as a node; returns its name and settings.

    Waits for the datastore without limit, and logs that, unless WAIT_FOR_DATASTORE is false.
    Raises `MuslinError` for errors that last: wrong settings, no address, an address that another
    node has, a name under which another machine lives. `doubt` is called when the name may be
    another machine's: nothing may be done under it before this returns.
    """
    name, chosen = name_of(environ)
    config = apiconfig.of_node(environ)
    store = await connected(config, wait=chosen.wait_for_datastore)
    try:
        await life.require_own_name(environ, config, store, name, doubt=doubt, wait=wait)
        facts = await kubernetes.read(environ, config, chosen.kubernetes_name(name))
        if facts.problem:
            log.warning("going on without what Kubernetes says of this node: %s", facts.problem)
        machine = await addresses.look(facts.internal, bool(facts.problem and not facts.internal))
        await register(store, name, chosen, machine)
        if chosen.default_pools:
            await _default_pools(store, chosen, facts)
        kinds = [chosen.cluster_type, *facts.kinds]
        if config.datastore_type == apiconfig.KUBERNETES:
            kinds.append("kdd")
        await ensure_initialized(store, ",".join(kinds))
        await ensure_objects(store, name)
    finally:
        await store.close()
    write_nodename(chosen.nodename_file, name)
    log.info("this node is registered", extra={"node": name})
    return name, chosen


def name_of(environ: Mapping[str, str]) -> tuple[str, Settings]:
    """The node's name and its settings. Raises `InvalidValue`."""
    chosen = settings(environ)
    return node_name(environ, _text(chosen.nodename_file), socket.gethostname()), chosen


def registered_before(environ: Mapping[str, str]) -> tuple[str, Settings] | None:
    """Name and settings of a node that `start_up` has registered once, None of a new one."""
    name, chosen = name_of(environ)
    return (name, chosen) if name == _text(chosen.nodename_file).strip() else None


def _text(file: Path) -> str:
    return parsing.text_of(file)


async def connected(config: apiconfig.DatastoreConfig, *, wait: bool = True) -> Datastore:
    """A datastore that has answered once; waits with back-off and says why.

    Without `wait` raises DatastoreUnavailable when it does not answer.
    """
    backoff = Backoff(initial=0.5, maximum=5.0)
    store: Datastore = await connect(config)
    while True:
        try:
            await store.get(CLUSTER)
            return store
        except DatastoreUnavailable as error:
            if not wait:
                await store.close()
                raise
            delay = backoff.next()
            log.warning(
                "waiting for the datastore: %s; trying again in %.1f s",
                error,
                delay,
                extra={"endpoints": ",".join(config.endpoints)},
            )
            await asyncio.sleep(delay)
        except BaseException:
            await store.close()
            raise


async def register(
    store: Datastore, name: str, chosen: Settings, machine: Machine, known: Node | None = None
) -> None:
    """Write the Node of this machine, if it differs from the stored one.

    `known` is an earlier Node, for use where none is stored. Raises MuslinError when the Node has
    no address, or one that another node has.
    """
    key = ResourceKey("Node", name)
    for _ in range(WRITE_TRIES):
        entry = await store.get(key)
        stored = entry.value if entry else known
        ipv4 = await _address(chosen.ipv4, 4, stored, chosen.backend, machine)
        ipv6 = await _address(chosen.ipv6, 6, stored, chosen.backend, machine)
        shown = autodetect.shown(machine.interfaces)
        node = registration.desired(stored, name, chosen, ipv4, ipv6, shown)
        if chosen.backend != "none" and not registration.has_address(node):
            raise MuslinError(
                f"Node({name}): no address: set IP or IP6 (allowed: autodetect, an address),"
                " or CALICO_NETWORKING_BACKEND=none"
            )
        if entry is not None and node == stored:
            return
        if await write(store, entry, node, chosen):
            return
    raise DatastoreError(f"{key}: others changed it {WRITE_TRIES} times meanwhile")


async def write(store: Datastore, entry: Entry | None, node: Node, chosen: Settings) -> bool:
    """Write a Node over `entry`, checked against all others; False when it changed meanwhile.

    Raises MuslinError when another node has one of its addresses. Two nodes that start at once do
    not see each other before they write: so both read again, and the one that wrote later takes
    its write back (NODE-2).
    """
    key = ResourceKey("Node", node.metadata.name)
    check = chosen.check_duplicates and _moved(entry.value if entry else None, node)
    if check:
        nodes = (await store.list(Selection("Node"))).entries
        registration.refuse_duplicates(key.name, node, [one.value for one in nodes])
    validate(node)
    try:
        revision = await store.commit([Put(key, node, entry.revision if entry else ABSENT, entry)])
    except CommitConflict:
        return False
    if check:
        # Read the revision of our write: the earlier node may have written again since, such as its
        # tunnel's address, and must not look like the later one.
        pages = pages_of(store, Selection("Node"), revision)
        nodes = [one async for page in pages for one in page.entries]
        earlier = [one.value for one in nodes if one.revision < revision]
        try:
            registration.refuse_duplicates(key.name, node, earlier)
        except MuslinError:
            await _take_back(store, key, entry, revision)
            raise
    wrote = [registration.stored_address(node, version) for version in (4, 6)]
    log.info("wrote the Node", extra={"node": key.name, "ipv4": wrote[0], "ipv6": wrote[1]})
    return True


async def _take_back(
    store: Datastore, key: ResourceKey, entry: Entry | None, revision: int
) -> None:
    """Restore what was there before the write of `revision`, unless it changed since."""
    change = Delete(key, revision) if entry is None else Put(key, entry.value, revision, entry)
    try:
        await store.commit([change])
    except CommitConflict:
        log.warning("a Node with an address of another one was changed meanwhile: it stays")


def _moved(stored: Any, node: Any) -> bool:
    return any(
        registration.stored_address(stored, version) != registration.stored_address(node, version)
        for version in (4, 6)
    )


async def _address(
    setting: AddressSetting, version: int, stored: Any, backend: str, machine: Machine
) -> IPInterface | None:
    """The address to write for a family, None to keep the stored one."""
    known = registration.stored_address(stored, version)
    if addresses.keeps(setting, backend, known):
        return None
    return await addresses.first(setting, version, machine, known)


async def _default_pools(
    store: Datastore, chosen: Settings, cluster: kubernetes.ClusterFacts
) -> None:
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
    store: Datastore, key: ResourceKey, want: Callable[[Any], Any], *, bare: bool = False
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


def write_nodename(file: Path, name: str) -> None:
    """Write the nodename file, whole or not at all, unless it has this name already."""
    if _text(file).strip() != name:
        replace_file(file, name)


def replace_file(file: Path, text: str) -> None:
    """Write a file that all may read, whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(file)
