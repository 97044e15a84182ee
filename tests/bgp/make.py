"""Values that several tests of pure decisions need: views, sources, paths, filters by text."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

import msgspec

from bgp.cluster.view import ClusterView
from bgp.routes import filters
from bgp.routes.bestpath import Candidate, Source
from bgp.speaker.interface import Attributes, IPNetwork
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import AffinityKey, Key, ResourceKey
from libcalico.model.resources.bgpfilter import BGPFilterSpec
from libcalico.model.resources.ipam import BlockAffinity

ME = "n1"


def resource(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> tuple[Key, Any]:
    """A v3 resource and its key."""
    tree = {
        "kind": kind,
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }
    return ResourceKey(kind, name), resource_from_tree(tree)


def put(view: ClusterView, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
    """Write a resource into a view."""
    view.apply(*resource(kind, name, spec, **metadata))


def node(view: ClusterView, number: int, **more: Any) -> None:
    """Node `n<number>` at 10.0.0.<number>; `more`: fields of bgp, `labels`, `annotations`."""
    metadata = {
        name: more.pop(name)
        for name in ("labels", "annotations", "creationTimestamp")
        if name in more
    }
    bgp = {"ipv4Address": f"10.0.0.{number}/24", **more}
    put(view, "Node", f"n{number}", {"bgp": bgp}, **metadata)


def view_of(count: int = 3, me: str = ME) -> ClusterView:
    """A view of so many nodes."""
    view = ClusterView(me)
    for number in range(1, count + 1):
        node(view, number)
    return view


def claim(view: ClusterView, host: str, cidr: str, state: str | None = "confirmed") -> None:
    """A block affinity; None: gone."""
    value = None if state is None else BlockAffinity(state=state)
    view.apply(AffinityKey(host, ip_network(cidr)), value)


def block(view: ClusterView, cidr: str, owner: str | None, used: dict[int, str]) -> None:
    """A block: which ordinals are used on which nodes; felix names those that do not own it."""
    network = ip_network(cidr)
    users = {network[ordinal]: name for ordinal, name in used.items() if name != owner}
    view.lend(network, users)


def source(number: int = 2, **more: Any) -> Source:
    """The session with node `n<number>`, or an external one with `internal=False`."""
    internal = more.pop("internal", True)
    values: dict[str, Any] = {
        "peer": IPv4Address(f"10.0.0.{number}"),
        "internal": internal,
        "local_as": 64512,
        "remote_as": 64512 if internal else 64500,
        "router_id": IPv4Address(f"1.1.1.{number}"),
        "own_router_id": IPv4Address("9.9.9.9"),
        "in_cluster": internal,
        "node": f"n{number}" if internal else "",
        **more,
    }
    return Source(**values)


def path(session: Source | None = None, /, next_hop: str = "", **more: Any) -> Candidate:
    """A path of a session; `more` are attributes."""
    session = session or source()
    more.setdefault("as_path_length", len(more.get("as_path", ())))
    hop = ip_address(next_hop) if next_hop else session.peer
    return Candidate(session, hop, Attributes(**more))


def net(text: str) -> IPNetwork:
    """A network."""
    return ip_network(text)


def rules(**directions: list[dict[str, Any]]) -> filters.Rules:
    """A compiled BGPFilter: `exportV4=[{...}]`."""
    spec = msgspec.convert(directions, BGPFilterSpec)
    return filters.compiled("f", spec)
