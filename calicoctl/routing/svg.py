"""A topology as SVG: boxes and lines by `layout`, states by colour and in words. Pure.

Tested in `tests/calicoctl/test_bgp_topology.py` and `test_bgp_layout.py` there.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from calicoctl.routing import states
from calicoctl.routing.folding import folded
from calicoctl.routing.labels import COLOURS, label, words
from calicoctl.routing.layout import BAND, Box, ends, laid_out
from calicoctl.routing.topology import Link, Place, Topology
from calicoctl.status.values import DOWN

FOOT = 30.0
LEGEND = "green: up, red with its name: down, grey: not known; dashed: one of two nodes holds it"


def svg(whole: Topology) -> str:
    """The drawing; each line has its session and state as a title."""
    drawn = folded(whole)
    plan = laid_out(drawn, label)
    width = max(plan.width, 8.0 * len(LEGEND))
    height = plan.height + FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        ' font-family="sans-serif" font-size="12" text-anchor="middle">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for link in drawn.links:
        lines += _line(link, plan.boxes[link.near], plan.boxes[link.far])
    for place in drawn.places:
        lines += _box(place, plan.boxes[place.name])
    # Over the boxes, so that no text is hidden.
    for link in drawn.links:
        lines += _text(link, plan.boxes[link.near], plan.boxes[link.far])
    counted = states.counted(whole.links) or "none"
    lines.append(
        f'<text x="{width / 2:.1f}" y="{height - 26:.1f}">Sessions: {escape(counted)}</text>'
    )
    lines.append(f'<text x="{width / 2:.1f}" y="{height - 10:.1f}">{escape(LEGEND)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _line(link: Link, near: Box, far: Box) -> Iterator[str]:
    dash = ' stroke-dasharray="5 4"' if link.one_sided else ""
    heavy = ' stroke-width="2.5"' if link.state == DOWN else ""
    style = f'stroke="{COLOURS[link.state]}"{heavy}{dash}'
    title = f"<title>{escape(words(link))}</title>"
    if near.y == far.y:
        bend = _bend(near, far)
        yield (
            f'<path d="M{near.x:.1f} {near.y:.1f} Q{(near.x + far.x) / 2:.1f} {bend:.1f}'
            f' {far.x:.1f} {far.y:.1f}" fill="none" {style}>{title}</path>'
        )
        return
    top, bottom = ends(near, far)
    yield (
        f'<line x1="{near.x:.1f}" y1="{top:.1f}" x2="{far.x:.1f}" y2="{bottom:.1f}"'
        f" {style}>{title}</line>"
    )


def _bend(near: Box, far: Box) -> float:
    """How far below the band an arc hangs: further for ends that lie further apart."""
    return near.y + 60.0 + min(80.0, abs(near.x - far.x) / 12)


def _text(link: Link, near: Box, far: Box) -> Iterator[str]:
    if link.state != DOWN:
        return
    # Half way between neighbouring bands; nearer to its end where a band lies between.
    part = 0.3 if abs(near.y - far.y) > 1.5 * BAND else 0.5
    x, y = near.x + part * (far.x - near.x), near.y + part * (far.y - near.y)
    if near.y == far.y:
        y = (near.y + _bend(near, far)) / 2
    yield f'<rect x="{x - 19:.1f}" y="{y - 9:.1f}" width="38" height="17" fill="#ffffff"/>'
    yield f'<text x="{x:.1f}" y="{y + 4:.1f}" fill="{COLOURS[DOWN]}">down</text>'


def _box(place: Place, box: Box) -> Iterator[str]:
    fill = "#ffe9b3" if place.reflector else "#e8f0f8" if place.node else "#eeeeee"
    rounding = 4 if place.node else 18
    yield (
        f'<rect x="{box.x - box.width / 2:.1f}" y="{box.y - box.height / 2:.1f}"'
        f' width="{box.width:.1f}" height="{box.height:.0f}" rx="{rounding}" fill="{fill}"'
        ' stroke="#555555"/>'
    )
    for number, text in enumerate(box.label):
        base = box.y - box.height / 2 + 18 * number + 16
        yield f'<text x="{box.x:.1f}" y="{base:.1f}">{escape(text)}</text>'
