"""Pods' starts as bars. Pure. Tested in tests/web/test_drawing.py."""

from __future__ import annotations

from collections.abc import Sequence

from web.drawing.markup import Content, Html, choices, form, joined, notice, table, tag
from web.views.starts import COMMANDS, Start, Starts

WIDTH, HEIGHT, LEFT = 1180, 24, 330
MOST = 60
LETTERS = 44
NARROWEST = 60
"""Pixels from which on a stage's name fits into its part of the bar."""


def starts(shown: Starts, command: str, node: str) -> Html:
    """The stages, then each call as a bar of its stages."""
    parts: list[Content] = [
        form(
            "/starts",
            choices("command", "Call", command, [(one, one) for one in COMMANDS]),
            choices("node", "Node", node, [("", "all"), *((one, one) for one in shown.nodes)]),
        )
    ]
    if shown.missing:
        parts.append(notice("missing", shown.missing))
        return joined(parts)
    rows = [
        [one.name, str(one.count), *(f"{each:.2f}" for each in (one.p50, one.p99, one.worst))]
        for one in shown.stages
    ]
    headings = ("Stage", "Calls", "p50 ms", "p99 ms", "Worst ms")
    parts.append(table(f"Stages of {command}", headings, rows))
    parts.append(
        tag("h3", f"Calls, slowest first ({min(len(shown.calls), MOST)} of {len(shown.calls)})")
    )
    parts.append(_bars(shown.calls[:MOST]))
    return joined(parts)


def _bars(calls: Sequence[Start]) -> Html:
    longest = max((call.total for call in calls), default=1.0) or 1.0
    scale = (WIDTH - LEFT - 80) / longest
    names = list(dict.fromkeys(name for call in calls for name, _ in call.stages))
    drawn: list[Html] = []
    for number, call in enumerate(calls):
        y = number * HEIGHT
        subject = call.subject if len(call.subject) <= LETTERS else f"{call.subject[:LETTERS]}…"
        drawn.append(tag("text", f"{call.node}  {subject}", x=0, y=y + 16, class_="bar-name"))
        x = float(LEFT)
        for name, value in call.stages:
            width = value * scale
            title = tag("title", f"{name}: {value:.2f} ms")
            css = f"stage hue-{names.index(name) % 12}"
            bar = tag(
                "rect",
                title,
                x=f"{x:.1f}",
                y=y + 3,
                width=f"{max(width, 1):.1f}",
                height=18,
                class_=css,
            )
            drawn.append(bar)
            if width >= NARROWEST:
                drawn.append(tag("text", name, x=f"{x + 4:.1f}", y=y + 16, class_="stage-name"))
            x += width
        drawn.append(tag("text", f"{call.total:.1f} ms", x=f"{x + 6:.1f}", y=y + 16))
    height = len(calls) * HEIGHT + 4
    words = "; ".join(f"{call.node} {call.subject} {call.total:.1f} ms" for call in calls[:10])
    return tag(
        "svg", tag("title", f"Calls by stage: {words}"), *drawn,
        viewBox=f"0 0 {WIDTH} {height}", role="img", class_="bars",
    )  # fmt: skip
