"""Whether another machine lives under this node's name.

A machine that starts with the name of another one (a cloned disk, a copied nodename file, a typo in
NODENAME) would take over its addresses, and give those of its living pods away. If the Node's
stored address is on an interface here, this machine is the node. Otherwise the life sign of the
name decides: on etcd calico-node's own (`LifeSign`), on the Kubernetes datastore the kubelet's
Lease with the boot id of its Node. A sign of another boot that changes within an interval belongs
to a machine that lives; so does one whose lease was kept alive, for it has more time left than
before. One that stands still is of this node before it was renumbered, rebooted or installed anew.
(A new leader of etcd gives every lease its whole time again. Then a node is refused that might have
gone on, and starts once more.)

Invariant (tests/node/test_life.py; on Kubernetes tests/apiserver/test_node_life.py):
  NODE-3  A name under which another machine gives signs of life is never taken over.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from libcalico import apiconfig
from libcalico.datastore.capabilities import Leasing
from libcalico.datastore.interface import Datastore
from libcalico.errors import MuslinError
from libcalico.model.keys import LifeSignKey, ResourceKey
from libcalico.model.resources.node import Node
from libcalico.model.resources.status import LifeSign
from node.identity import autodetect, interfaces, registration
from node.identity.autodetect import Interface
from node.identity.machines import Life, Machine, describe

INTERVAL, TTL = 15.0, 60
"""Seconds after which calico-node keeps its life sign alive again, and until one expires."""
SLACK = 2.0
"""Seconds by which a life sign may be late."""
LOOK = 1.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Wait = Callable[[float], Awaitable[None]]


Read = Callable[[], Awaitable[Life | None]]


def this_machine(local_interfaces: Iterable[Interface]) -> Machine:
    """The machine of the calling thread."""
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    own = [str(one.ip) for kept in autodetect.shown(local_interfaces) for one in kept.addresses]
    network = os.stat("/proc/thread-self/ns/net").st_ino
    return Machine(boot, network, socket.gethostname(), tuple(own))


def is_here(node: Node | None, local_interfaces: Iterable[Interface]) -> bool:
    """Whether an address of the Node is on an interface of this machine."""
    known = [registration.stored_address(node, version) for version in (4, 6)]
    here = {one.ip for kept in local_interfaces for one in kept.addresses}
    return any(one is not None and one.ip in here for one in known)


async def another(read: Read, wait: Wait = asyncio.sleep) -> Life | None:
    """The life sign of another machine, once it changed; None where there is no such machine.

    Takes no time unless there is a sign of another boot, and then an interval at most.
    """
    first = await read()
    if first is None or first.ours:
        return None
    now, waited, moved = first, 0.0, False
    while waited < first.interval + SLACK:
        await wait(LOOK)
        waited += LOOK
        last = await read()
        if last is None or last.ours:
            return None
        moved = moved or last.beat != first.beat or last.left > now.left
        now = last
        if moved and now.whole:
            return now
    return now if moved or now.vouched else None


def of_sign(sign: LifeSign, beat: str, machine: Machine) -> Life:
    """A life sign of calico-node, as this machine sees it."""
    ours = (sign.bootID, sign.network) == (machine.boot, machine.network) and machine.boot != ""
    shown = describe(sign.host, sign.bootID, sign.addresses)
    return Life(ours, beat, shown, sign.keptAlive or sign.interval or INTERVAL)


async def read_sign(store: Datastore, name: str, machine: Machine) -> Life | None:
    """calico-node's life sign in etcd."""
    entry = await store.get(LifeSignKey(name))
    return of_sign(entry.value, str(entry.revision), machine) if entry else None


async def read_life(store: Datastore, name: str, machine: Machine) -> Life | None:
    """`read_sign`; of another machine's sign also the time that it has left."""
    sign = await read_sign(store, name, machine)
    if sign is None or sign.ours or not isinstance(store, Leasing):
        return sign
    return replace(sign, left=await store.seconds_left(LifeSignKey(name)))


async def require_own_name(
    environ: Mapping[str, str],
    config: apiconfig.DatastoreConfig,
    store: Datastore,
    name: str,
    *,
    doubt: Callable[[], None] = lambda: None,
    wait: Wait = asyncio.sleep,
) -> None:
    """Raise MuslinError when another machine lives under this name (NODE-3).

    `doubt` is called before a check that may take an interval.
    """
    entry = await store.get(ResourceKey("Node", name))
    local_interfaces = await asyncio.to_thread(interfaces.read)
    if entry is not None and is_here(entry.value, local_interfaces):
        return
    doubt()
    machine = this_machine(local_interfaces)
    other = await another_of(environ, config, store, name, machine, wait)
    if other is not None:
        raise MuslinError(refusal(name, machine, other))


async def another_of(
    environ: Mapping[str, str],
    config: apiconfig.DatastoreConfig,
    store: Datastore,
    name: str,
    machine: Machine,
    wait: Wait = asyncio.sleep,
) -> Life | None:
    """`another`, by the life sign that this datastore has."""
    async with AsyncExitStack() as opened:
        read: Read = partial(read_life, store, name, machine)
        if config.datastore_type == apiconfig.KUBERNETES:
            # A late import: most of the standard library's network code comes with it.
            from node.identity import kubelet

            client = await opened.enter_async_context(kubelet.connected(environ, config))
            read = partial(kubelet.read, client, name, machine.boot)
        return await another(read, wait)


def refusal(name: str, machine: Machine, other: Life) -> str:
    """The error text: both machines, and the remedy."""
    return (
        f"Node({name}): another machine lives under this name, and its pods' addresses would be"
        f" given away: there is {other.shown}; this machine is {machine}. Give this machine a name"
        " of its own (NODENAME, and remove a nodename file that was copied:"
        " CALICO_NODENAME_FILE); where it is to replace the other one, stop that one first"
    )
