"""Where the places of a drawing lie: five bands, so that no line runs behind a third place. Pure.

From the top: routers of the upper nodes, upper nodes, reflectors with hubs and with routers of both
halves, lower nodes, and their routers. Lines join neighbouring bands; a session inside a band is an
arc. Tested in `tests/calicoctl/test_bgp_layout.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from calicoctl.routing.topology import Place, Topology

GAP, BAND, MARGIN = 28.0, 150.0, 40.0
"""Between two boxes of a band, between the middles of two bands, around everything; in pixels."""
LETTER, LINE = 7.6, 18.0
ONE_BAND = 10
"""Nodes that lie beside each other at most; more are an upper and a lower half."""


@dataclass(frozen=True, slots=True)
class Box:
    """A place in the drawing: its middle, its size, its lines of text."""

    x: float
    y: float
    width: float
    height: float
    label: tuple[str, ...]


def ends(near: Box, far: Box) -> tuple[float, float]:
    """The heights at which a line between two bands leaves its boxes: the edges that face."""
    if near.y < far.y:
        return near.y + near.height / 2, far.y - far.height / 2
    return near.y - near.height / 2, far.y + far.height / 2


@dataclass(frozen=True)
class Layout:
    """All boxes by the places' names, and the size of the drawing."""

    boxes: Mapping[str, Box]
    width: float
    height: float


def laid_out(whole: Topology, label: Callable[[Place], Sequence[str]]) -> Layout:
    """The layout of a topology that is folded already."""
    bands = [band for band in _bands(whole) if band]
    near = _neighbours(whole)
    sizes = {place.name: _size(label(place)) for place in whole.places}
    width = max((_length(band, sizes) for band in bands), default=0.0) + 2 * MARGIN
    boxes: dict[str, Box] = {}
    labels = {place.name: tuple(label(place)) for place in whole.places}
    # The fullest band first: the places of the others go beside their neighbours in it.
    for number in sorted(range(len(bands)), key=lambda one: -_length(bands[one], sizes)):
        y = MARGIN + BAND / 2 + number * BAND
        for name, x in _spread(bands[number], sizes, near, boxes, width):
            boxes[name] = Box(x, y, *sizes[name], labels[name])
    return Layout(boxes, width, MARGIN * 2 + BAND * max(1, len(bands)))


def _size(label: Sequence[str]) -> tuple[float, float]:
    return LETTER * max(map(len, label)) + 16, LINE * len(label) + 6


def _length(band: Sequence[str], sizes: Mapping[str, tuple[float, float]]) -> float:
    return sum(sizes[name][0] + GAP for name in band) - GAP


def _neighbours(whole: Topology) -> dict[str, set[str]]:
    near: dict[str, set[str]] = {place.name: set() for place in whole.places}
    for link in whole.links:
        near[link.near].add(link.far)
        near[link.far].add(link.near)
    return near


def _bands(whole: Topology) -> list[list[str]]:
    near = _neighbours(whole)
    middle = {place.name for place in whole.places if place.reflector or place.hub}
    nodes = [place.name for place in whole.places if place.node and place.name not in middle]
    routers = [place.name for place in whole.places if not place.node and place.name not in middle]
    # A router of a reflector lies beside it.
    middle |= {name for name in routers if near[name] & middle}
    racks: dict[tuple[str, ...], list[str]] = {}
    for name in nodes:
        racks.setdefault(tuple(sorted(near[name] & set(routers) - middle)), []).append(name)
    upper: list[str] = []
    lower: list[str] = []
    for _, rack in sorted(racks.items()):
        half = upper if len(nodes) <= ONE_BAND or len(upper) <= len(lower) else lower
        half += rack
    if len(racks) == 1 and len(nodes) > ONE_BAND:
        upper, lower = upper[: (len(upper) + 1) // 2], upper[(len(upper) + 1) // 2 :]
    above, below = set(upper), set(lower)
    both = {name for name in routers if near[name] & above and near[name] & below}
    middle |= both
    order = [place.name for place in whole.places]
    return [
        [name for name in routers if name not in middle and near[name] & above],
        upper,
        [name for name in order if name in middle],
        lower,
        [name for name in routers if name not in middle and not near[name] & above],
    ]


def _spread(
    band: Sequence[str],
    sizes: Mapping[str, tuple[float, float]],
    near: Mapping[str, set[str]],
    boxes: Mapping[str, Box],
    width: float,
) -> list[tuple[str, float]]:
    """A place on the line for each name of a band: near its neighbours, and none over another."""
    ideal: dict[str, float] = {}
    for name in band:
        known = [boxes[other].x for other in near[name] if other in boxes]
        ideal[name] = sum(known) / len(known) if known else -1.0
    if any(place < 0 for place in ideal.values()) or not boxes:
        order = list(band)
        start = (width - _length(order, sizes)) / 2
        ideal = {}
        for name in order:
            ideal[name] = start + sizes[name][0] / 2
            start += sizes[name][0] + GAP
    order = sorted(band, key=lambda name: (ideal[name], band.index(name)))
    placed: list[float] = []
    edge = MARGIN
    for name in order:
        half = sizes[name][0] / 2
        middle = max(edge + half, ideal[name])
        placed.append(middle)
        edge = middle + half + GAP
    edge = width - MARGIN
    for number in range(len(order) - 1, -1, -1):
        half = sizes[order[number]][0] / 2
        placed[number] = min(placed[number], edge - half)
        edge = placed[number] - half - GAP
    return list(zip(order, placed, strict=True))
