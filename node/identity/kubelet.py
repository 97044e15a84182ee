"""The kubelet's life sign: its Lease, and the boot id in its Node.

The kubelet renews the Lease four times in its duration. It writes its boot id with the Node's
status, at its start and with every change. So the two together show which machine lives, once the
kubelet has had its interval to write a new boot id.
Source: Kubernetes, "Node heartbeats". Tested in tests/apiserver/test_node_life.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from libcalico.apiconfig import DatastoreConfig
from libcalico.kubernetes.access import find
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import Forbidden, ObjectNotFound
from libcalico.kubernetes.objects import LEASES, Address, Object, Resource
from libcalico.process import paths
from node.identity.machines import Life, describe

NAMESPACE = "kube-node-lease"
DURATION = 40
"""Seconds that a Lease lasts where it has no duration."""
UNKNOWN = "Unknown"
"""The status that the node controller gives Ready when there is no life sign."""
TIMEOUT = 10.0


class Condition(msgspec.Struct):
    """The fields of a node condition that are read."""

    type: str = ""
    status: str = ""


class Info(msgspec.Struct):
    """The machine of the kubelet."""

    bootID: str = ""


class Status(msgspec.Struct):
    """The fields of a Node's status that are read."""

    addresses: list[Address] | None = None
    conditions: list[Condition] | None = None
    nodeInfo: Info | None = None


class KubeletNode(Object, kw_only=True):
    """The `v1` Node, as its kubelet writes it."""

    status: Status = msgspec.field(default_factory=Status)


NODES = Resource("v1", "nodes", KubeletNode, namespaced=False)


@asynccontextmanager
async def connected(
    environ: Mapping[str, str], config: DatastoreConfig, account: Path = paths.SERVICE_ACCOUNT
) -> AsyncIterator[Client]:
    """A client of the API that is the datastore. Raises NoAccess."""
    client = Client(find(config, environ, account), timeout=TIMEOUT)
    try:
        yield client
    finally:
        await client.close()


async def read(client: Client, name: str, boot: str) -> Life | None:
    """The life sign of the node `name`, as a machine of this boot sees it; None without one.

    Where the Lease may not be read, the Ready condition speaks for it. Raises KubernetesError.
    """
    try:
        node = await client.get(NODES, name)
    except ObjectNotFound:
        return None
    status = node.status
    theirs = status.nodeInfo.bootID if status.nodeInfo else ""
    ours = theirs == boot != ""
    where = [one.address for one in status.addresses or () if one.type == "InternalIP"]
    shown = describe(name, theirs, where)
    try:
        spec = (await client.get(LEASES, name, NAMESPACE)).spec
    except ObjectNotFound:
        return None
    except Forbidden as error:
        ready = {one.status for one in status.conditions or () if one.type == "Ready"}
        if not ready or UNKNOWN in ready:
            return None
        shown += f" (its node is not Ready=Unknown; its Lease cannot be read: {error})"
        return Life(ours, "", shown, 0.0, whole=False, vouched=True)
    interval = (spec.leaseDurationSeconds or DURATION) / 4
    return Life(ours, spec.renewTime or "", shown, interval, whole=False)
