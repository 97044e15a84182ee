"""View 1, the map: nodes in racks, reflectors and routers, each with the state of its sessions.

Tested in tests/web/test_network.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calicoctl.routing.topology import Place
from web.facts.facts import Facts
from web.views.sessions import Session, sessions
from web.views.state import State, counted, of_many

RACK_LABELS = ("rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
"""Labels of a Node that say where it stands, the first that any node has."""
MOST_LINES = 400
"""Lines that are drawn; beyond that only sessions that are down are."""
TROUBLED = frozenset({State.DOWN, State.WARNING})
NAMED = 120
"""Tiles with their names written on them; beyond that a name stands in the tile's title."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A speaker on the map. `text` says all of it in words."""

    name: str
    state: State
    text: str
    node: bool = True
    reflector: str = ""
    draining: bool = False
    down: int = 0


@dataclass(frozen=True, slots=True)
class Rack:
    """Nodes that stand together."""

    title: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A drawn session (or the spoke of a mesh), with its state."""

    near: str
    far: str
    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Network:
    """The map. `left_out`: lines that are not drawn."""

    racks: tuple[Rack, ...]
    others: tuple[Tile, ...]
    lines: tuple[Line, ...]
    summary: str
    left_out: int = 0


def network(facts: Facts, by: str = "") -> Network:
    """The map of all nodes, in racks by the label `by` (empty: the one that is there)."""
    known = sessions(facts)
    places = {place.name: place for place in facts.topology.places}
    tiles = {node: _tile(facts, node, known[node], places.get(node)) for node in facts.nodes}
    lines = _lines(facts, known)
    others = tuple(_other(place, lines) for place in places.values() if not place.node)
    shown = lines
    if len(lines) > MOST_LINES:
        shown = [line for line in lines if line.state in TROUBLED][:MOST_LINES]
    return Network(
        tuple(_racks(facts, tiles, by)),
        others,
        tuple(shown),
        _summary(tiles.values(), known),
        len(lines) - len(shown),
    )


def rack_label(facts: Facts) -> str:
    """The label that says in which rack a node stands; empty where no node has one."""
    present = {name for node in facts.view.nodes.values() for name in node.labels}
    return next((name for name in RACK_LABELS if name in present), "")


def _racks(facts: Facts, tiles: Mapping[str, Tile], by: str) -> list[Rack]:
    label = by or rack_label(facts)
    grouped: dict[str, list[Tile]] = {}
    for name, tile in tiles.items():
        node = facts.view.nodes.get(name)
        place = node.labels.get(label, "") if node and label else ""
        title = f"{label}: {place}" if place else (f"no {label}" if label else "nodes")
        grouped.setdefault(title, []).append(tile)
    return [
        Rack(title, tuple(sorted(members, key=lambda one: one.name)))
        for title, members in sorted(grouped.items())
    ]


def _tile(facts: Facts, name: str, configured: Sequence[Session], place: Place | None) -> Tile:
    state = of_many([one.state for one in configured])
    word = facts.words.get(name)
    counts = Counter(one.state for one in configured)
    parts = (
        [f"{counts[State.UP]} of {counted(len(configured), 'session')} up"]
        if configured
        else ["no session"]
    )
    if counts[State.UNKNOWN]:
        parts.append(f"{counts[State.UNKNOWN]} not known")
    if word is not None:
        silent = [one.name for one in word.processes if not one.running]
        if silent:
            state = max(state, State.WARNING, key=lambda one: one.rank)
            parts.append(f"not running: {', '.join(silent)}")
        elif word.conditions:
            parts.append(counted(len(word.conditions), "condition"))
            state = max(state, State.WARNING, key=lambda one: one.rank)
    if place is not None:
        parts.append(f"AS {place.asn}")
        if place.reflector:
            parts.append(f"reflector {place.reflector}")
        if place.draining:
            parts.append("draining")
    return Tile(
        name,
        state,
        f"{name}: {state.word}; {', '.join(parts)}",
        True,
        place.reflector if place else "",
        bool(place and place.draining),
        counts[State.DOWN],
    )


def _other(place: Place, lines: Sequence[Line]) -> Tile:
    states = [line.state for line in lines if line.far == place.name]
    state = of_many(states)
    up = sum(one is State.UP for one in states)
    text = (
        f"{place.name}: {state.word}; AS {place.asn}, {up} of {counted(len(states), 'session')} up"
    )
    down = sum(one is State.DOWN for one in states)
    return Tile(place.name, state, text, False, place.reflector, place.draining, down)


def _lines(facts: Facts, known: Mapping[str, list[Session]]) -> list[Line]:
    by_ends = {(one.node, one.address): one for configured in known.values() for one in configured}
    hubs = facts.topology.hubs
    lines = []
    for link in facts.topology.links:
        if link.far in hubs:
            state = of_many([one.state for one in known.get(link.near, ())])
            lines.append(Line(link.near, link.far, state, f"{link.near} in the mesh: {state.word}"))
            continue
        ends = [by_ends.get((link.near, str(link.address)))]
        far, near = facts.view.nodes.get(link.far), facts.view.nodes.get(link.near)
        if far is not None and near is not None:
            back = near.address(link.address.version)
            ends.append(by_ends.get((link.far, str(back))))
        reported = [one for one in ends if one is not None]
        state = _both([one.state for one in reported])
        why = next((one.why for one in reported if one.state is State.DOWN and one.why), "")
        text = f"{link.near} to {link.far}: {state.word}" + (f": {why}" if why else "")
        lines.append(Line(link.near, link.far, state, text))
    return lines


def _both(states: Sequence[State]) -> State:
    """A session is down if one of its ends says so, and up if one says so and none contradicts."""
    if State.DOWN in states:
        return State.DOWN
    return State.UP if State.UP in states else State.UNKNOWN


def _summary(tiles: Iterable[Tile], known: Mapping[str, list[Session]]) -> str:
    counts = Counter(tile.state for tile in tiles)
    configured = Counter(one.state for all_of in known.values() for one in all_of)
    nodes = ", ".join(f"{counts[one]} {one.word}" for one in State if counts[one])
    ends = ", ".join(f"{configured[one]} {one.word}" for one in State if configured[one])
    return f"Nodes: {nodes or 'none'}. Ends of sessions: {ends or 'none'}."
