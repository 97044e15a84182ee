"""What a click on a node shows: sessions with cause and remedy, routes, processes, conditions.

Tested in tests/web/test_node.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from web.facts.facts import Facts
from web.facts.words import Word
from web.views.sessions import Session, sessions

NO_WORD = (
    "Nothing carries this node's own word here. With an aggregator (Deployment calico-goldmane) its"
    " processes, conditions and causes stand here; without one, on the node: calicoctl node status"
)
NO_ROUTES = (
    "Routes are not known here. A CalicoNodeStatus with the class Routes brings them:"
    " calicoctl apply -f - with spec.node, spec.classes [Agent, BGP, Routes] and"
    " spec.updatePeriodSeconds"
)


@dataclass(frozen=True, slots=True)
class Route:
    """A route as the node reported it; FIB is in the kernel, RIB in BGP alone."""

    type: str
    destination: str
    gateway: str
    interface: str
    source: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `missing`: what is not known here, and how to learn it."""

    name: str
    facts: tuple[tuple[str, str], ...]
    sessions: tuple[Session, ...]
    refused: tuple[tuple[str, str], ...]
    routes: tuple[Route, ...]
    processes: tuple[tuple[str, str], ...]
    conditions: tuple[tuple[str, str, str], ...]
    missing: tuple[str, ...]


def node_view(facts: Facts, name: str) -> NodeView | None:
    """The view of a node; None where there is no such node."""
    if name not in facts.nodes:
        return None
    word, status = facts.words.get(name), facts.statuses.get(name)
    routes = tuple(_routes(facts, name))
    missing = []
    if word is None:
        missing.append(NO_WORD)
    elif word.error:
        missing.append(word.error)
    if not routes and (status is None or "Routes" not in status.spec.classes):
        missing.append(NO_ROUTES)
    return NodeView(
        name,
        tuple(_facts(facts, name)),
        tuple(sessions(facts)[name]),
        tuple(dict.fromkeys(_refused(facts, name, word))),
        routes,
        () if word is None else tuple(_processes(word)),
        () if word is None else tuple(word.conditions),
        tuple(missing),
    )


def _facts(facts: Facts, name: str) -> Iterator[tuple[str, str]]:
    node = facts.view.nodes.get(name)
    place = next((one for one in facts.topology.places if one.name == name), None)
    if node is not None:
        yield "addresses", ", ".join(map(str, node.addresses)) or "none for BGP"
        labels = ", ".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
        yield "labels", labels or "none"
    if place is not None:
        yield "AS", str(place.asn)
        if place.reflector:
            yield "reflector", place.reflector
        if place.draining:
            yield "draining", "others take its routes last (calicoctl node bgp undrain)"
    pods = sum(value.spec.node == name for _, value in facts.world.of("WorkloadEndpoint"))
    blocks = sum(key.host == name for key in facts.snapshot.affinities)
    yield "pods", str(pods)
    yield "blocks", str(blocks)


def _refused(facts: Facts, name: str, word: Word | None) -> Iterator[tuple[str, str]]:
    for node, source, reason in facts.topology.refused:
        if node == name:
            yield source, reason
    if word is not None:
        for each in word.bgp.objects("refused"):
            yield str(each.get("peer", "")), str(each.get("reason", ""))
        reported = word.bgp.status.get("felix_refused")
        if isinstance(reported, dict):
            yield from ((str(prefix), f"felix: {reason}") for prefix, reason in reported.items())
        for peer in word.bgp.objects("peers"):
            paths = peer.get("refused_paths")
            if isinstance(paths, dict):
                source = f"from {peer.get('address')}"
                yield from ((str(prefix), f"{source}: {why}") for prefix, why in paths.items())


def _routes(facts: Facts, name: str) -> Iterator[Route]:
    status = facts.statuses.get(name)
    if status is None:
        return
    reported = status.status.routes
    for route in (*reported.routesV4, *reported.routesV6):
        learned = route.learnedFrom
        yield Route(
            route.type,
            route.destination,
            route.gateway,
            route.interface,
            " ".join(filter(None, (learned.sourceType, learned.peerIP))),
        )


def _processes(word: Word) -> Iterator[tuple[str, str]]:
    for one in word.processes:
        if one.running:
            yield one.name, f"runs; written {one.seen}" if one.seen else "runs"
        else:
            yield one.name, f"does not run. {one.last_seen()}"
