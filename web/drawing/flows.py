"""Flows as a table and as a Sankey in SVG. Pure. Tested in tests/web/test_drawing.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from web.drawing.markup import Content, Html, choices, entry, form, joined, notice, table, tag
from web.views.flows import ACTIONS, FIELDS, MINUTES, REPORTERS, Band, FlowView

WIDTH, LEFT, RIGHT = 1180, 250, 930
TALL, GAP, LEAST = 420.0, 6.0, 3.0


def filters(given: Mapping[str, str]) -> Html:
    """The form with every filter of the API."""
    fields: list[Content] = [entry(name, label, given.get(name, "")) for name, label in FIELDS]
    for name, label, values in (
        ("action", "Verdict", tuple(ACTIONS)),
        ("pending", "Staged verdict", tuple(ACTIONS)),
        ("reporter", "Reporter", tuple(REPORTERS)),
        ("minutes", "Minutes", MINUTES),
    ):
        chosen = given.get(name, "15" if name == "minutes" else "")
        fields.append(choices(name, label, chosen, [(one, one or "any") for one in values]))
    return form("/flows", *fields)


def flows(shown: FlowView) -> Html:
    """The Sankey, and the table that names the rule of each."""
    parts: list[Content] = [
        tag(
            "p",
            f"{shown.total} flows; {len(shown.rows)} are listed, newest first.",
            class_="summary",
        )
    ]
    if not shown.rows:
        parts.append(
            notice("missing", "No flow fits. Flow logs may be off, or the time too short.")
        )
        return joined(parts)
    parts.append(_sankey(shown.bands))
    rows: list[list[Content]] = [
        [one.when, tag("strong", one.verdict), one.source, one.destination, one.packets,
         one.service, one.decided, one.pending, one.reporter, str(one.connections), one.counts]
        for one in shown.rows
    ]  # fmt: skip
    headings = (
        "Time", "Verdict", "Source", "Destination", "Packets", "Service", "Decided by",
        "Staged would", "Reporter", "Connections", "In/out",
    )  # fmt: skip
    parts.append(table("Flows", headings, rows))
    return joined(parts)


def _sankey(bands: Sequence[Band]) -> Html:
    """Two columns of namespaces and the bands between; denied ones are dashed and say so."""
    total = sum(band.total for band in bands) or 1
    sides = [_stacked(bands, side, total) for side in (0, 1)]
    height = max(end for side in sides for _, end in side.values()) + GAP
    offsets = [{name: start for name, (start, _) in side.items()} for side in sides]
    drawn: list[Html] = []
    for band in bands:
        thick = max(LEAST, band.total / total * TALL)
        ys = [offsets[0][band.source], offsets[1][band.destination]]
        offsets[0][band.source] += thick
        offsets[1][band.destination] += thick
        words = f"{band.source} to {band.destination}: {band.total} connections"
        if band.denied:
            words += f", {band.denied} DENIED"
        drawn.append(
            _band(ys, thick, words, denied=band.denied == band.total, some=bool(band.denied))
        )
    for side, x, anchor in ((0, LEFT - 8, "end"), (1, RIGHT + 8, "start")):
        for name, (start, end) in sides[side].items():
            y = f"{(start + end) / 2 + 4:.1f}"
            drawn.append(tag("text", name, x=x, y=y, text_anchor=anchor))
    return tag(
        "svg", tag("title", "Connections between namespaces, sources left"), *drawn,
        viewBox=f"0 0 {WIDTH} {height:.0f}", role="group", class_="sankey",
        aria_label="connections between namespaces",
    )  # fmt: skip


def _stacked(bands: Sequence[Band], side: int, total: int) -> dict[str, tuple[float, float]]:
    """From where to where each name of a side stands."""
    heights: dict[str, float] = {}
    for band in bands:
        name = (band.source, band.destination)[side]
        heights[name] = heights.get(name, 0.0) + max(LEAST, band.total / total * TALL)
    result: dict[str, tuple[float, float]] = {}
    y = GAP
    for name, height in heights.items():
        result[name] = (y, y + height)
        y += max(height, 14.0) + GAP
    return result


def _band(ys: Sequence[float], thick: float, words: str, *, denied: bool, some: bool) -> Html:
    middle = (LEFT + RIGHT) / 2
    near, far = ys[0] + thick / 2, ys[1] + thick / 2
    curve = f"M{LEFT} {near:.1f} C{middle:.0f} {near:.1f} {middle:.0f} {far:.1f} {RIGHT} {far:.1f}"
    css = "band " + ("denied" if denied else "some" if some else "allowed")
    return tag(
        "path", tag("title", words), d=curve, class_=css, stroke_width=f"{thick:.1f}",
        tabindex=0, role="img", aria_label=words,
    )  # fmt: skip
