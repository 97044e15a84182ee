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
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from libcalico import apiconfig, parsing
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore
from libcalico.errors import DatastoreUnavailable
from libcalico.process.backoff import Backoff
from node.identity import kubernetes, life
from node.settings.environment import Settings, node_name, settings
from node.start import addresses
from node.start.cluster_objects import default_pools, ensure_objects
from node.start.node_object import register

log = logging.getLogger(__name__)


async def start_up(
    environ: Mapping[str, str],
    *,
    doubt: Callable[[], None] = lambda: None,
    wait: life.Wait = asyncio.sleep,
) -> tuple[str, Settings]:
    """Register this machine as a node; returns its name and settings.

    Waits for the datastore without limit, and logs that, unless WAIT_FOR_DATASTORE is false; also
    when it stops answering half-way.
    Raises `MuslinError` for errors that last: wrong settings, no address, an address that another
    node has, a name under which another machine lives. `doubt` is called when the name may be
    another machine's: nothing may be done under it before this returns.
    """
    name, chosen = name_of(environ)
    config = apiconfig.of_node(environ)
    backoff = Backoff(initial=0.5, maximum=5.0)
    store: Datastore = await connect(config)
    try:
        while True:
            try:
                await life.require_own_name(environ, config, store, name, doubt=doubt, wait=wait)
                await _write_objects(environ, config, store, name, chosen)
                break
            except DatastoreUnavailable as error:
                # Also after a write in doubt: each is guarded, so all may be done once more.
                if not chosen.wait_for_datastore:
                    raise
                delay = backoff.next()
                log.warning(
                    "waiting for the datastore: %s; trying again in %.1f s",
                    error,
                    delay,
                    extra={"endpoints": ",".join(config.endpoints)},
                )
                await asyncio.sleep(delay)
    finally:
        await store.close()
    write_nodename(chosen.nodename_file, name)
    log.info("this node is registered", extra={"node": name})
    return name, chosen


async def _write_objects(
    environ: Mapping[str, str],
    config: apiconfig.DatastoreConfig,
    store: Datastore,
    name: str,
    chosen: Settings,
) -> None:
    """The Node, the default pools and the objects of the cluster, where they are not there yet."""
    facts = await kubernetes.read(environ, config, chosen.kubernetes_name(name))
    if facts.problem:
        log.warning("going on without what Kubernetes says of this node: %s", facts.problem)
    machine = await addresses.look(facts.internal, bool(facts.problem and not facts.internal))
    await register(store, name, chosen, machine)
    if chosen.default_pools:
        await default_pools(store, chosen, facts)
    kinds = [chosen.cluster_type, *facts.kinds]
    if config.datastore_type == apiconfig.KUBERNETES:
        kinds.append("kdd")
    await ensure_initialized(store, ",".join(kinds))
    await ensure_objects(store, name)


def name_of(environ: Mapping[str, str]) -> tuple[str, Settings]:
    """The node's name and its settings. Raises `InvalidValue`."""
    chosen = settings(environ)
    return node_name(environ, parsing.text_of(chosen.nodename_file), socket.gethostname()), chosen


def registered_before(environ: Mapping[str, str]) -> tuple[str, Settings] | None:
    """Name and settings of a node that `start_up` has registered once, None of a new one."""
    name, chosen = name_of(environ)
    return (name, chosen) if name == parsing.text_of(chosen.nodename_file).strip() else None


def write_nodename(file: Path, name: str) -> None:
    """Write the nodename file, whole or not at all, unless it has this name already."""
    if parsing.text_of(file).strip() != name:
        replace_file(file, name)


def replace_file(file: Path, text: str) -> None:
    """Write a file that all may read, whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(file)
