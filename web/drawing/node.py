"""A node that was clicked on the map, as tables. Pure. Tested in tests/web/test_drawing.py."""

from __future__ import annotations

from collections.abc import Sequence

from web.drawing.markup import Content, Html, badge, joined, link, notice, table, tag
from web.views.node import NodeView
from web.views.sessions import Session

MOST_ROUTES = 200


def node(shown: NodeView) -> Html:
    """Everything about one node, what is wrong first."""
    facts = [tag("dt", name) + tag("dd", value) for name, value in shown.facts]
    parts: list[Content] = [
        tag("h2", f"Node {shown.name} ", link("close", "/map")),
        tag("dl", *map(Html, facts), class_="facts"),
        *(notice("missing", words) for words in shown.missing),
        _sessions(shown.sessions),
    ]
    if shown.refused:
        rows = [list(each) for each in shown.refused]
        parts.append(table("Refused", ("What", "Why"), rows))
    if shown.conditions:
        rows = [list(each) for each in shown.conditions]
        parts.append(table("Conditions", ("Process", "Object", "Reason"), rows))
    if shown.processes:
        rows = [list(each) for each in shown.processes]
        parts.append(table("Processes", ("Process", "State"), rows))
    parts.append(_routes(shown))
    return tag("section", *parts, aria_label=f"node {shown.name}", class_="detail", id="detail")


def _sessions(sessions: Sequence[Session]) -> Html:
    rows: list[list[Content]] = [
        [
            badge(one.state.sign, one.state.word, one.state.css),
            one.peer,
            one.address,
            one.kind,
            str(one.asn or ""),
            one.since,
            tag("strong", one.cause) if one.cause else one.info,
            one.seen,
            one.fix,
            "/".join(filter(None, (one.received, one.sent, one.refused))),
            one.source,
        ]
        for one in sessions
    ]
    headings = (
        "State", "Peer", "Address", "Type", "AS", "Since", "Cause", "Seen", "What to do",
        "Received/sent/refused", "Told by",
    )  # fmt: skip
    return table("BGP sessions, worst first", headings, rows, "No session is configured.")


def _routes(shown: NodeView) -> Html:
    rows: list[list[Content]] = [
        [one.type, one.destination, one.gateway, one.interface, one.source]
        for one in shown.routes[:MOST_ROUTES]
    ]
    drawn = table(
        "Routes", ("Table", "Destination", "Gateway", "Interface", "Learned from"), rows,
        "No route is known here.",
    )  # fmt: skip
    more = len(shown.routes) - MOST_ROUTES
    return joined([drawn, tag("p", f"{more} more routes.")]) if more > 0 else drawn
