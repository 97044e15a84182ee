"""A topology as a table, as Graphviz or Mermaid text, as JSON, and as SVG of our own.

Nothing that an object's name may hold can leave its place in the text: names are quoted or
escaped for each form. A state is told by colour and in words. Tested in
`tests/calicoctl/test_bgp_topology.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape

from calicoctl import borders
from calicoctl.routing import states
from calicoctl.routing.folding import folded
from calicoctl.routing.labels import COLOURS, label
from calicoctl.routing.svg import svg
from calicoctl.routing.topology import Topology
from calicoctl.status.values import DOWN, STATE_WORDS

HEADINGS = ("NODE", "PEER", "ADDRESS", "TYPE", "PEER AS", "STATE", "NOTE")


def table(whole: Topology) -> str:
    """One session a line, those that are down first; then what is not held."""
    links = sorted(whole.links, key=lambda link: link.state != DOWN)
    rows = [
        (
            link.near,
            link.far,
            str(link.address),
            link.kind,
            str(link.asn),
            STATE_WORDS[link.state],
            "; ".join(filter(None, (link.note, link.why))),
        )
        for link in links
    ]
    if not rows:
        text = "No BGP sessions are configured.\n"
    else:
        text = borders.render(HEADINGS, rows) + f"Sessions: {states.counted(links)}\n"
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
        text = quoted("\n".join(label(place))).replace("\n", "\\n")
        lines.append(f"  {quoted(place.name)} [shape={shape}, label={text}];")
    for link in drawn.links:
        style = "dashed" if link.one_sided else "solid"
        lines.append(
            f"  {quoted(link.near)} -- {quoted(link.far)}"
            f' [color="{COLOURS[link.state]}", style={style}, label="{STATE_WORDS[link.state]}"];'
        )
    return "\n".join([*lines, "}", ""])


def mermaid(whole: Topology) -> str:
    """Mermaid, as Markdown pages show it."""
    drawn = folded(whole)
    ids = {place.name: f"p{number}" for number, place in enumerate(drawn.places)}
    lines = ["graph LR"]
    for place in drawn.places:
        text = "<br>".join(escape(line, quote=True) for line in label(place))
        opening, closing = ("{{", "}}") if place.reflector else ("[", "]")
        if not place.node:
            opening, closing = "([", "])"
        lines.append(f'  {ids[place.name]}{opening}"{text}"{closing}')
    for link in drawn.links:
        arrow = "-.-" if link.one_sided else "---"
        lines.append(f"  {ids[link.near]} {arrow}|{STATE_WORDS[link.state]}| {ids[link.far]}")
    lines += [
        f"  linkStyle {number} stroke:{COLOURS[link.state]}"
        for number, link in enumerate(drawn.links)
    ]
    return "\n".join([*lines, ""])


def as_json(whole: Topology) -> str:
    """`places`, `links` with their state, `refused`: nothing is folded."""
    tree = {
        "places": [
            {
                "name": place.name,
                "asNumber": place.asn,
                "node": place.node,
                "reflector": place.reflector,
                "draining": place.draining,
            }
            for place in whole.places
        ],
        "links": [
            {
                "node": link.near,
                "peer": link.far,
                "address": str(link.address),
                "type": link.kind,
                "asNumber": link.asn,
                "state": link.state,
                "why": link.why,
                "note": link.note,
            }
            for link in whole.links
        ],
        "refused": [
            {"node": node, "peer": source, "reason": reason}
            for node, source, reason in whole.refused
        ],
    }
    return json.dumps(tree, indent=2) + "\n"


FORMS: dict[str, Callable[[Topology], str]] = {
    "table": table,
    "dot": dot,
    "mermaid": mermaid,
    "svg": svg,
    "json": as_json,
}
