"""A topology as a table, as Graphviz or Mermaid text, and as SVG of our own.

Nothing that an object's name may hold can leave its place in the text: names are quoted or
escaped for each form. Tested in `tests/calicoctl/test_bgp_topology.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from bgp.peering.planned import GLOBAL, MESH, NODE
from calicoctl import borders
from calicoctl.routing.topology import Link, Place, Topology, folded

COLOURS = {MESH: "#4878a8", GLOBAL: "#3a7d44", NODE: "#b5651d"}
HEADINGS = ("NODE", "PEER", "ADDRESS", "TYPE", "PEER AS", "NOTE")


def table(whole: Topology) -> str:
    """One session a line, then what is not held."""
    rows = [
        (link.near, link.far, str(link.address), link.kind, str(link.asn), link.note)
        for link in whole.links
    ]
    text = borders.render(HEADINGS, rows) if rows else "No BGP sessions are configured.\n"
    return text + "".join(
        f"{node}: {source} is not held: {reason}\n" for node, source, reason in whole.refused
    )


def dot(whole: Topology) -> str:
    """Graphviz: `calicoctl bgp topology -o dot | dot -Tpng`."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    drawn = folded(whole)
    lines = ["graph bgp {", "  layout=neato; overlap=false; splines=true;"]
    for place in drawn.places:
        shape = "doubleoctagon" if place.reflector else "box" if place.node else "ellipse"
        label = quoted("\n".join(_label(place))).replace("\n", "\\n")
        lines.append(f"  {quoted(place.name)} [shape={shape}, label={label}];")
    for link in drawn.links:
        style = "dashed" if _broken(link) else "solid"
        lines.append(
            f"  {quoted(link.near)} -- {quoted(link.far)}"
            f' [color="{COLOURS[link.kind]}", style={style}];'
        )
    return "\n".join([*lines, "}", ""])


def mermaid(whole: Topology) -> str:
    """Mermaid, as Markdown pages show it."""
    drawn = folded(whole)
    ids = {place.name: f"p{number}" for number, place in enumerate(drawn.places)}
    lines = ["graph LR"]
    for place in drawn.places:
        label = "<br>".join(escape(text, quote=True) for text in _label(place))
        opening, closing = ("{{", "}}") if place.reflector else ("[", "]")
        if not place.node:
            opening, closing = "([", "])"
        lines.append(f'  {ids[place.name]}{opening}"{label}"{closing}')
    for link in drawn.links:
        arrow = "-.-" if _broken(link) else "---"
        lines.append(f"  {ids[link.near]} {arrow} {ids[link.far]}")
    return "\n".join([*lines, ""])


def svg(whole: Topology) -> str:
    """A drawing: nodes on a circle, reflectors inside it, external peers outside."""
    drawn = folded(whole)
    rings = (
        [place for place in drawn.places if place.reflector],
        [place for place in drawn.places if place.node and not place.reflector],
        [place for place in drawn.places if not place.node],
    )
    radius = max(160.0, 26.0 * len(rings[1]))
    radii = (radius * 0.4 if len(rings[0]) > 1 else 0.0, radius, radius + 150.0)
    size = 2 * (radii[2] + 100)
    where: dict[str, tuple[float, float]] = {}
    for ring, distance in zip(rings, radii, strict=True):
        for number, place in enumerate(ring):
            angle = 2 * math.pi * number / len(ring) - math.pi / 2
            x, y = size / 2 + distance * math.cos(angle), size / 2 + distance * math.sin(angle)
            where[place.name] = x, y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size:.0f} {size:.0f}"'
        ' font-family="sans-serif" font-size="12" text-anchor="middle">',
        f'<rect width="{size:.0f}" height="{size:.0f}" fill="#ffffff"/>',
    ]
    for link in drawn.links:
        (x1, y1), (x2, y2) = where[link.near], where[link.far]
        dash = ' stroke-dasharray="5 4"' if _broken(link) else ""
        title = escape(f"{link.near} - {link.far}: {link.kind} {link.note}".strip())
        lines.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            f' stroke="{COLOURS[link.kind]}"{dash}><title>{title}</title></line>'
        )
    for place in drawn.places:
        x, y = where[place.name]
        label = _label(place)
        width = 8 * max(len(text) for text in label) + 16
        fill = "#ffe9b3" if place.reflector else "#e8f0f8" if place.node else "#eeeeee"
        rounding = 4 if place.node else 18
        height = 18 * len(label) + 6
        lines.append(
            f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width}"'
            f' height="{height}" rx="{rounding}" fill="{fill}" stroke="#555555"/>'
        )
        for number, text in enumerate(label):
            base = y - height / 2 + 18 * number + 16
            lines.append(f'<text x="{x:.1f}" y="{base:.1f}">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


FORMS: dict[str, Callable[[Topology], str]] = {
    "table": table,
    "dot": dot,
    "mermaid": mermaid,
    "svg": svg,
}


def _label(place: Place) -> list[str]:
    about = f"AS {place.asn}"
    if place.reflector:
        about += f", reflector {place.reflector}"
    if place.draining:
        about += ", draining"
    return [place.name, about]


def _broken(link: Link) -> bool:
    return "does not hold" in link.note
