"""Nodes: what Calico knows of a node stands in annotations of Kubernetes' own Node.

The kubelet makes the object, so it is neither created nor deleted here. Labels and annotations
that were given to the Calico node alone are kept in annotations of their own.
Anything may stand in an annotation: a value that cannot be read is left out and named in the log,
and the rest of the node counts.
Source: docs/reference/data-model.md#kubernetes-datastore. Tested in
tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_interface, ip_network

import msgspec

from libcalico.datastore.interface import Change, Delete, Entry, Put, Selection
from libcalico.datastore.kubernetes.fields import NODE
from libcalico.datastore.kubernetes.mapping import Asked, Collection, Place, encoded, metadata
from libcalico.datastore.kubernetes.metadata import V3, Tree, native_metadata
from libcalico.datastore.kubernetes.node_annotations import (
    as_text,
    interfaces_of,
    pairs_of,
    readable,
    set_at,
    value_at,
)
from libcalico.errors import DatastoreError
from libcalico.model import codec
from libcalico.model.base.numorstring import as_number
from libcalico.model.keys import Key, ResourceKey

PREFIX = "projectcalico.org/"
KUBE_LABELS, LABELS, ANNOTATIONS = (
    PREFIX + word for word in ("kube-labels", "labels", "annotations")
)
INTERFACES, AS_NUMBER = PREFIX + "Interfaces", PREFIX + "ASNumber"
TEXTS = {
    "IPv4Address": ("spec", "bgp", "ipv4Address"),
    "IPv6Address": ("spec", "bgp", "ipv6Address"),
    "IPv4IPIPTunnelAddr": ("spec", "bgp", "ipv4IPIPTunnelAddr"),
    "RouteReflectorClusterID": ("spec", "bgp", "routeReflectorClusterID"),
    "IPv4VXLANTunnelAddr": ("spec", "ipv4VXLANTunnelAddr"),
    "VXLANTunnelMACAddr": ("spec", "vxlanTunnelMACAddr"),
    "IPv6VXLANTunnelAddr": ("spec", "ipv6VXLANTunnelAddr"),
    "VXLANTunnelMACAddrV6": ("spec", "vxlanTunnelMACAddrV6"),
    "IPv4WireguardInterfaceAddr": ("spec", "wireguard", "interfaceIPv4Address"),
    "IPv6WireguardInterfaceAddr": ("spec", "wireguard", "interfaceIPv6Address"),
    "WireguardPublicKey": ("status", "wireguardPublicKey"),
    "WireguardPublicKeyV6": ("status", "wireguardPublicKeyV6"),
}


class Nodes:
    """`Node` is Kubernetes' Node.

    With `pod_cidr` the IPIP tunnel address derives from its pod CIDR.
    """

    collection = Collection("v1", "nodes", "Node", fields=NODE)

    def __init__(self, pod_cidr: bool = False) -> None:
        self._pod_cidr = pod_cidr
        self._named: dict[tuple[str, str], str] = {}

    def place(self, key: Key) -> Place | None:
        """The place by the key's name."""
        assert isinstance(key, ResourceKey)
        return Place(key.name)

    def key(self, tree: Tree) -> Key | None:
        """The key by the object's name."""
        return ResourceKey("Node", metadata(tree).get("name", ""))

    def asked(self, selection: Selection) -> Asked:
        """Ask for all nodes, or for the one that the selection names."""
        only = {"fieldSelector": f"metadata.name={selection.host}"} if selection.host else {}
        return Asked(parameters=only, brief=selection.brief)

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The v3 form of the node."""
        assert isinstance(key, ResourceKey)
        meta = metadata(tree)
        stored: dict[str, str] = meta.get("annotations") or {}
        node: Tree = {"spec": {}, "status": {}}
        unread: set[str] = set()
        for word, path in TEXTS.items():
            if text := stored.get(PREFIX + word):
                if readable(word, text):
                    set_at(node, path, text)
                else:
                    unread.add(PREFIX + word)
        if text := stored.get(AS_NUMBER):
            try:
                set_at(node, ("spec", "bgp", "asNumber"), as_number(text))
            except ValueError:
                unread.add(AS_NUMBER)
        cidrs = (tree.get("spec") or {}).get("podCIDRs") or []
        if self._pod_cidr and (tunnel := _first_plus_one(cidrs)):
            set_at(node, ("spec", "bgp", "ipv4IPIPTunnelAddr"), tunnel)
        if text := stored.get(INTERFACES):
            interfaces = interfaces_of(text)
            if interfaces is None:
                unread.add(INTERFACES)
            elif interfaces:
                node["spec"]["interfaces"] = interfaces
        node["spec"]["addresses"] = _addresses(tree, node["spec"].get("bgp") or {})
        node["spec"]["orchRefs"] = [{"nodeName": key.name, "orchestrator": "k8s"}]
        if cidrs:
            node["status"]["podCIDRs"] = cidrs
        own = {}
        for name in (LABELS, ANNOTATIONS):
            own[name], whole = pairs_of(stored.get(name))
            if not whole:
                unread.add(name)
        self._name(key.name, stored, unread)
        labels = {**own[LABELS], **(meta.get("labels") or {})}
        annotations = {**own[ANNOTATIONS], KUBE_LABELS: as_text(meta.get("labels") or {})}
        shown = native_metadata(tree, key.name)
        shown |= {"labels": dict(sorted(labels.items())), "annotations": annotations}
        return encoded({"kind": "Node", "apiVersion": V3, "metadata": shown, **node})

    def annotations(self, change: Change, before: Tree) -> dict[str, str | None]:
        """The annotations that change; None removes one."""
        if not isinstance(change, Put):
            raise DatastoreError(
                f"{change.key} cannot be deleted: Kubernetes has it; `kubectl delete node` does it"
            )
        base = change.base.raw if change.base else None
        value: Tree = msgspec.json.decode(codec.encode_value(change.key, change.value, base))
        meta = metadata(before)
        stored: dict[str, str] = meta.get("annotations") or {}
        desired: dict[str, str | None] = {}
        for word, path in TEXTS.items():
            desired[PREFIX + word] = value_at(value, path)
        if self._pod_cidr:
            desired.pop(PREFIX + "IPv4IPIPTunnelAddr")
        number = value_at(value, ("spec", "bgp", "asNumber"))
        desired[AS_NUMBER] = None if number is None else str(number)
        interfaces = value["spec"].get("interfaces")
        desired[INTERFACES] = as_text(interfaces) if interfaces else None
        kube = meta.get("labels") or {}
        labels = value["metadata"].get("labels") or {}
        own = {name: text for name, text in labels.items() if kube.get(name) != text}
        desired[LABELS] = as_text(own) if own else None
        annotations = dict(value["metadata"].get("annotations") or {})
        annotations.pop(KUBE_LABELS, None)
        desired[ANNOTATIONS] = as_text(annotations) if annotations else None
        return {name: text for name, text in desired.items() if (stored.get(name) or None) != text}

    def stands(self, change: Change, seen: Entry | None, before: Tree) -> bool:
        """Whether our part of the node is unchanged: the kubelet writes the object as well."""
        if seen is None:
            return False
        now = self.raw(change.key, before)
        return now is not None and _counting(now) == _counting(seen.raw)

    def absent(self, change: Change) -> Exception | None:
        """The error for a node that does not exist: only the kubelet creates it."""
        if isinstance(change, Delete):
            return None
        return DatastoreError(
            f"{change.key} does not exist in Kubernetes: its kubelet makes it, and its name must"
            " be this node's (NODENAME)"
        )

    def _name(self, node: str, annotations: Mapping[str, str], unread: set[str]) -> None:
        """Log each unreadable text once: a node is read anew with each heartbeat."""
        for name in [name for of, name in self._named if of == node and name not in unread]:
            del self._named[node, name]
        for name in sorted(unread):
            if self._named.get((node, name)) != annotations[name]:
                self._named[node, name] = annotations[name]
                import logging

                logging.getLogger(__name__).warning(
                    "an annotation of a node cannot be read and is left out",
                    extra={"node": node, "annotation": name, "value": annotations[name][:60]},
                )


def _counting(raw: bytes) -> object:
    """The part of a Node that is ours, without what the kubelet and users write to the object."""
    node = msgspec.json.decode(raw)
    spec = {name: one for name, one in node["spec"].items() if name != "addresses"}
    status = {name: one for name, one in node["status"].items() if name != "podCIDRs"}
    annotations = dict(node["metadata"].get("annotations") or {})
    kube = pairs_of(annotations.pop(KUBE_LABELS, None))[0]
    labels = (node["metadata"].get("labels") or {}).items()
    own = {name: text for name, text in labels if kube.get(name) != text}
    return spec, status, annotations, own


def _addresses(tree: Tree, bgp: Tree) -> list[Tree]:
    addresses: list[Tree] = []
    for name in ("ipv4Address", "ipv6Address"):
        with suppress(ValueError):
            ip_interface(bgp.get(name, ""))
            addresses.append({"address": bgp[name], "type": "CalicoNodeIP"})
    for one in (tree.get("status") or {}).get("addresses") or ():
        if one.get("type") in ("InternalIP", "ExternalIP"):
            addresses.append({"address": one.get("address", ""), "type": one["type"]})
    return addresses


def _first_plus_one(cidrs: list[str]) -> str:
    for text in cidrs:
        with suppress(ValueError):
            net = ip_network(text)
            if net.version == 4:
                return str(net.network_address + 1)
    return ""
