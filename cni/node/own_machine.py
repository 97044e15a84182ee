"""Whether this machine is the node whose name it has.

What the daemon sees here, its links and its runtime's sandboxes, proves something about the pods of
the machine that it runs on alone. A cloned machine, a copied nodename file or a typo give it the
name of another one, and there every pod of that node looks dead.

Invariant (tests/cni/test_own_machine.py):
  CNI-73  Nothing of a node is given back for want of a link or an attachment here, and no block
          or claim of it is written again, while none of its stored addresses is on an interface
          of this machine, or where a container has a network of its own and the runtime cannot
          be asked.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_interface
from pathlib import Path

from cni.node.daemon_context import DaemonContext
from ipam.records.blocks import IPAddress
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import Node
from linux import addresses
from linux.errors import KernelError
from linux.netlink import Socket

INITIAL_PIDS = "pid:[4026531836]"
"""The first namespace of processes; its number is a constant of the kernel."""
OWN_NETWORK, FIRST_PROCESS = Path("/proc/thread-self/ns/net"), Path("/proc/1/ns/net")
FIRST_NETWORK_ONLY = Path("/proc/sys/net/core/netdev_max_backlog")
"""A setting that the kernel shows in its first network namespace alone."""


def foreign(name: str, node: Node | None, here: Collection[IPAddress]) -> str:
    """Why a machine with these addresses is not known to be the node; empty where it is. Pure.

    A Node that the kubelet has just registered again has none of the addresses by which it was
    known: another machine of its name could not be told from it.
    """
    if node is None:
        return f"there is no Node({name})"
    stored = stored_addresses(node)
    if not stored:
        return f"Node({name}) has no address by which its machine is known"
    if any(one in here for one in stored):
        return ""
    shown = ", ".join(map(str, stored))
    return f"Node({name}) has {shown}, which is on no interface of this machine"


def stored_addresses(node: Node) -> list[IPAddress]:
    """The addresses of a Node: those of BGP, else those of Kubernetes."""
    texts = [node.spec.bgp.ipv4Address, node.spec.bgp.ipv6Address] if node.spec.bgp else []
    if not any(texts):
        texts = [one.address for one in node.spec.addresses if one.type == "InternalIP"]
    stored = []
    for text in texts:
        with suppress(ValueError):
            stored.append(ip_interface(text).ip)
    return stored


def in_own_container_network() -> bool:
    """Whether this is a container with a network of its own, not the machine's.

    There the container's first process is in the same network. (A namespace that was made for a
    node is another thing: its pods are in it.)
    """
    if FIRST_NETWORK_ONLY.exists():
        return False
    try:
        if os.readlink("/proc/self/ns/pid") == INITIAL_PIDS:
            return False
        return OWN_NETWORK.stat().st_ino == FIRST_PROCESS.stat().st_ino
    except OSError:
        return True


async def why_foreign(context: DaemonContext, *, runtime: bool, unknown: bool = True) -> str:
    """Why this machine may not speak for its node (CNI-73). Raises DatastoreError.

    `runtime`: the container runtime can be asked for its sandboxes. `unknown`: a Node without an
    address counts as foreign; work that only adds what stands here need not wait for one.
    """
    if not runtime and in_own_container_network():
        return "this container has a network of its own, and no CRI socket to ask the runtime"
    entry = await context.store.get(ResourceKey("Node", context.node))
    try:
        here = await context.in_thread(_addresses)
    except (KernelError, OSError) as error:
        return f"the addresses of this machine cannot be read: {error}"
    if entry is not None and not unknown and not stored_addresses(entry.value):
        return ""
    return foreign(context.node, entry.value if entry else None, here)


def _addresses() -> frozenset[IPAddress]:
    with Socket() as sock:
        return frozenset(one.interface.ip for one in addresses.dump(sock))
