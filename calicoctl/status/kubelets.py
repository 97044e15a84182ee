"""What kubelets say of their nodes: the life signs where the datastore is the Kubernetes API.

Source: API reference of Node (`status.conditions`). Tested in
`tests/calicoctl/test_status_kubernetes.py` on answers of a real API server's form.
"""

from __future__ import annotations

import os

import msgspec

from calicoctl.status.facts import Signs
from libcalico.apiconfig import DatastoreConfig
from libcalico.kubernetes.decoding import decode_page
from libcalico.kubernetes.objects import Object, Resource

PAGE = 500
PATH = "/api/v1/nodes"


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Node(Object, kw_only=True):
    status: _Status = msgspec.field(default_factory=_Status)


NODES = Resource("v1", "nodes", _Node, namespaced=False)


def decoded(raw: bytes) -> tuple[dict[str, Signs], str]:
    """The signs of one page of a list of Nodes, and the token of the next page.

    A node that cannot be read has none. Raises Unreachable for what is no list.
    """
    page = decode_page(NODES, raw)
    return {node.metadata.name: signs_of(node) for node in page.items}, page.token


def signs_of(node: _Node) -> Signs:
    """What the conditions of a node say of its life and of its network."""
    by_type = {one.type: one for one in node.status.conditions or ()}
    ready, network = by_type.get("Ready"), by_type.get("NetworkUnavailable")
    said = ready is not None and ready.status == "True"
    lacking = None if network is None else network.status == "True"
    speaker = ready if not said else network if lacking else None
    return Signs(
        ready=said,
        network=lacking,
        reason="" if speaker is None else speaker.message or speaker.reason,
    )


async def read(config: DatastoreConfig) -> dict[str, Signs]:
    """The signs of all nodes of a Kubernetes datastore. Raises KubernetesError, NoAccess."""
    from libcalico.datastore.kubernetes import client_of

    client = client_of(config, os.environ)
    by_node: dict[str, Signs] = {}
    token = ""
    try:
        while True:
            query = {"limit": str(PAGE), **({"continue": token} if token else {})}
            signs, token = decoded(await client.request("GET", PATH, query))
            by_node |= signs
            if not token:
                return by_node
    finally:
        await client.close()
