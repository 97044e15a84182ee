"""What `datastore migrate export` writes, decided from what is stored. Pure.

In a Kubernetes datastore a node has the name that Kubernetes gives it, so everything that
names a node is rewritten from the name in etcd to that of the node's `k8s` reference:
objects, affinities, attributes of addresses and handles of tunnels
(docs/reference/data-model.md#calicoctl-datastore-migrate).
Tested in `tests/calicoctl/test_datastream.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from calicoctl.datastream import KINDS_IN_ORDER
from calicoctl.listing.result import in_order
from calicoctl.output import tree
from libcalico.conversion import POLICY_PREFIX
from libcalico.datastore.interface import Entry, Listing
from libcalico.errors import MuslinError
from libcalico.model import Block
from libcalico.model.base.base import Struct
from libcalico.model.base.meta import API_VERSION
from libcalico.model.keys import AffinityKey, HandleKey, Key
from libcalico.model.resources.ipam import Attribute

HOST = "host:"
PER_NODE = "node."
TUNNELS = tuple(
    f"{kind}-tunnel-addr-" for kind in ("ipip", "vxlan", "vxlan-v6", "wireguard", "wireguard-v6")
)
GONE = ("uid", "resourceVersion", "selfLink", "generation", "managedFields")
GONE_TOO = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
ACTIONS = (
    "defaultEndpointToHostAction",
    "iptablesFilterAllowAction",
    "iptablesMangleAllowAction",
    "iptablesFilterDenyAction",
)


def node_names(nodes: Iterable[Entry]) -> dict[str, str]:
    """Name in etcd -> name in Kubernetes; raises `MuslinError` for nodes that have none."""
    names: dict[str, str] = {}
    lacking = []
    for entry in nodes:
        name = entry.value.metadata.name
        names_in_kubernetes = [
            ref.nodeName for ref in entry.value.spec.orchRefs if ref.orchestrator == "k8s"
        ]
        if not names_in_kubernetes or not names_in_kubernetes[-1]:
            lacking.append(name)
        else:
            names[name] = names_in_kubernetes[-1]
    if lacking:
        raise MuslinError(
            f"node {', '.join(lacking)} missing a 'k8s' orchestrator reference: without"
            " spec.orchRefs nobody knows which Kubernetes node it is"
        )
    twice = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if twice:
        raise MuslinError(f"several nodes refer to the Kubernetes node {', '.join(twice)}")
    return names


def lists(listings: Mapping[str, Listing], names: Mapping[str, str]) -> list[dict[str, object]]:
    """One list object a kind, in the order of the stream, ready to be applied elsewhere."""
    result: list[dict[str, object]] = []
    for kind in KINDS_IN_ORDER:
        listing = listings[kind]
        items = [_exported(kind, tree(entry), names) for entry in in_order(kind, listing.entries)]
        result.append(
            {
                "kind": f"{kind}List",
                "apiVersion": API_VERSION,
                "metadata": {"resourceVersion": str(listing.revision)},
                "items": [item for item in items if item is not None],
            }
        )
    return result


def _exported(kind: str, item: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
    metadata, spec = item["metadata"], item.get("spec") or {}
    if kind == "NetworkPolicy" and metadata["name"].startswith(POLICY_PREFIX):
        # Made from a policy of the Kubernetes API, which the new datastore reads itself.
        return None
    for name in (*GONE, *GONE_TOO):
        metadata.pop(name, None)
    if kind == "Node":
        metadata["name"] = names[metadata["name"]]
    elif metadata["name"].startswith(PER_NODE):
        node = metadata["name"].removeprefix(PER_NODE)
        metadata["name"] = PER_NODE + names.get(node, node)
    if kind in ("BGPPeer", "HostEndpoint") and spec.get("node"):
        spec["node"] = names.get(spec["node"], spec["node"])
    if kind == "FelixConfiguration":
        # Releases of the first generation stored these in capitals.
        for name in ACTIONS:
            if spec.get(name):
                spec[name] = spec[name].capitalize()
    return item


def ipam_records(entries: Iterable[Entry], names: Mapping[str, str]) -> dict[Key, Struct]:
    """The records of IPAM with the names of nodes in Kubernetes."""
    records: dict[Key, Struct] = {}
    for entry in entries:
        key, value = entry.key, entry.value
        if isinstance(key, AffinityKey) and key.kind == "host":
            key = key._replace(host=names.get(key.host, key.host))
        elif isinstance(key, HandleKey):
            key = HandleKey(_handle(key.handle_id, names))
        elif isinstance(value, Block):
            value = _block(value, names)
        records[key] = value
    return records


def _block(block: Block, names: Mapping[str, str]) -> Block:
    owner = block.owner
    host = owner.removeprefix(HOST) if owner and owner.startswith(HOST) else ""
    if host in names:
        block = replace(block, affinity=HOST + names[host], hostAffinity=None)
    return replace(block, attributes=[_attribute(one, names) for one in block.attributes or []])


def _attribute(attribute: Attribute, names: Mapping[str, str]) -> Attribute:
    secondary = dict(attribute.secondary or {})
    if secondary.get("node") in names:
        secondary["node"] = names[secondary["node"]]
    handle = attribute.handle_id
    return replace(
        attribute,
        handle_id=_handle(handle, names) if handle else handle,
        secondary=secondary if attribute.secondary is not None else attribute.secondary,
    )


def _handle(handle_id: str, names: Mapping[str, str]) -> str:
    for prefix in TUNNELS:
        node = handle_id.removeprefix(prefix)
        if node != handle_id and node in names:
            return prefix + names[node]
    return handle_id
